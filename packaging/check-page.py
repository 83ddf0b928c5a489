#!/usr/bin/env python3
"""The daemon's page in headless Chromium. Called by check-page.

    check-page.py URL PROGRAM DAEMON-PROCESS DIRECTORY

At two widths, light and dark: no word on the console, nothing asked of other hosts, no sideways scrolling, nothing cut off, text with
enough contrast. It can be used by keyboard and has what a screen reader needs, and it is complete without script. After `ashlar fail` it
changes by itself and the focus stays. When the daemon ends, the page says so. Pictures are left in DIRECTORY.
"""
import base64
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../crates/lab"))
from browser import Browser, hold, problems, walk  # noqa: E402

# Elements whose right edge is out of sight, unless they are in something that scrolls.
CUT_OFF = """[...document.querySelectorAll('body *')].filter((one) => !one.closest('.scroll, .heard, .signs, .skip, svg')
  && one.getBoundingClientRect().right > innerWidth + 0.5).map((one) => one.tagName + '.' + one.className + ' ' + one.textContent.slice(0, 40))"""
# Text of too little contrast (WCAG AA) with the nearest background that is not transparent.
PALE = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((it) => it / 255).map((it) => it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4)
    .reduce((sum, it, at) => sum + it * [0.2126, 0.7152, 0.0722][at], 0);
  const under = (one) => { for (; one; one = one.parentElement) { const c = parse(getComputedStyle(one).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), pale = [];
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || one.closest('script, style, noscript, symbol, .heard, .skip')) continue;
    const style = getComputedStyle(one), [a, b] = [light(parse(one.closest('svg') ? style.fill : style.color)), light(under(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) pale.push(walker.currentNode.textContent.trim().slice(0, 40) + ' ' + ratio.toFixed(2));
  }
  return pale;
})()"""
# What somebody who does not see the page would miss.
UNHEARD = """(() => {
  const all = (what) => [...document.querySelectorAll(what)], wrong = [];
  for (const [what, count] of [['main', 1], ['body > header', 1], ['nav[aria-label]', 1], ['body > footer', 1], ['h1', 1], ['[role=status]', 1]])
    if (all(what).length !== count) wrong.push(`${all(what).length} of ${what}`);
  let level = 1;
  for (const one of all('h1, h2, h3, h4')) { const own = +one.tagName[1]; if (own > level + 1) wrong.push(`${one.tagName} ${one.textContent} after h${level}`); level = own; }
  for (const one of all('table')) { if (!one.caption?.textContent) wrong.push('a table without a caption'); if (one.querySelector('th:not([scope])')) wrong.push('a th without a scope'); }
  for (const one of all('svg')) if (one.getAttribute('aria-hidden') !== 'true' && !one.getAttribute('aria-label')) wrong.push('an svg without words');
  for (const one of all('figure')) if (!document.getElementById(one.getAttribute('aria-labelledby'))?.textContent.includes('highest')) wrong.push('a chart without words');
  for (const one of all('progress, .slots')) if (!one.getAttribute('aria-label')) wrong.push(one.className + one.tagName + ' without a name');
  for (const one of all('.slot')) if (!one.querySelector('.word').textContent.trim()) wrong.push('a slot without a word');
  const ids = all('[id]').map((one) => one.id); for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`two of #${id}`);
  return wrong;
})()"""


def told(event):
    """What an event says on the console, if it is of that kind."""
    params = event.get("params", {})
    match event.get("method"):
        case "Runtime.consoleAPICalled":
            return str(params["args"])
        case "Runtime.exceptionThrown":
            return str(params["exceptionDetails"])
        case "Log.entryAdded":
            return params["entry"]["text"]
    return None


def picture(browser, path, width):
    """All of the page as a picture."""
    height = browser.see("document.documentElement.scrollHeight")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    data = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
    with open(path, "wb") as file:
        file.write(base64.b64decode(data))


def wait_for(browser, what, script, seconds=120):
    """Until the page says so by itself; how many seconds that took."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        if browser.see(script):
            return time.monotonic() - began
        time.sleep(0.1)
    hold(False, f"waited in vain until {what}")
    return seconds


def look(browser, url, folder, seen):
    """The page at both widths, light and dark."""
    for width in (1280, 390):
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        for scheme in ("light", "dark"):
            browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            browser.open(url)
            wait_for(browser, "the stream is live", "document.getElementById('link').textContent === 'live'")
            where = f"at {width} wide, {scheme}"
            hold(browser.see("document.documentElement.scrollWidth <= innerWidth"), f"{where}: the page scrolls sideways")
            for problem in browser.see(CUT_OFF)[:5]:
                hold(False, f"{where}: cut off: {problem}")
            for problem in browser.see(PALE)[:5]:
                hold(False, f"{where}: too pale: {problem}")
            picture(browser, f"{folder}/page-{width}-{scheme}.png", width)
            seen.extend(browser.events)
    for problem in browser.see(UNHEARD):
        hold(False, f"for those who hear the page: {problem}")


def main():
    url, program, daemon, folder = sys.argv[1:]
    browser = Browser(folder + "/profile")
    for domain in ("Runtime", "Log", "Network"):
        browser.ask(domain + ".enable")
    seen = []
    browser.open(url)
    # The first load of clients comes into the charts with the third sample.
    drawn = "(() => { const all = [...document.querySelectorAll('.chart .line')]; return all.filter((one) => one.getAttribute('d').includes('L')).length >= 12; })()"
    wait_for(browser, "charts have two lines each", drawn, 300)
    seen.extend(browser.events)
    look(browser, url, folder, seen)
    for words in ("tank0", "archive", "shelf2", "ABSENT", "DEGRADED", "clean", "spare", "Group 1", "rebuilding", "paused", "highest", "a member was taken out"):
        hold(browser.see(f"document.body.innerText.includes({words!r})"), f"the page does not say {words!r}")

    # By keyboard, and without script: nothing is exchanged meanwhile.
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    for width in (1280, 390):
        browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.open(url)
        hold(browser.see("document.querySelectorAll('.slot').length === 23"), "without script slots are missing")
        stops = walk(browser, width)
    browser.ask("Emulation.setScriptExecutionDisabled", value=False)

    # A change appears by itself, and leaves the focus alone.
    browser.open(url)
    wait_for(browser, "the stream is live", "document.getElementById('link').textContent === 'live'")
    browser.see("window.isSame = true; document.getElementById('events-table').focus(); window.old = document.getElementById('events-table')")
    subprocess.run([program, "fail", "archive", "7"], check=True, stdout=subprocess.DEVNULL)
    took = wait_for(browser, "slot 7 of archive is out", "document.getElementById('said').textContent.includes('archive is DEGRADED, slot 7 OUT.')")
    outs = wait_for(browser, "two slots are drawn as out", "document.querySelectorAll('.slot.out').length === 2")
    wait_for(browser, "the events were exchanged", "document.getElementById('events-table') !== window.old")
    hold(browser.see("window.isSame === true"), "the page was loaded anew")
    hold(browser.see("document.activeElement.id === 'events-table'"), "the focus was lost")
    hold(browser.see("document.getElementById('verdict').innerText.includes('archive slot 7 is out')"), "the verdict does not say it")
    picture(browser, folder + "/page-after-fail.png", 390)
    seen.extend(browser.events)

    words = [word for word in map(told, seen) if word]
    hold(not words, f"on the console: {words[:3]}")
    asked = [event["params"]["request"]["url"] for event in seen if event.get("method") == "Network.requestWillBeSent"]
    hold(len(asked) >= 10, f"only {len(asked)} requests were seen")
    foreign = [one for one in asked if not one.startswith((url, "data:"))]
    hold(not foreign, f"asked of others: {foreign[:3]}")

    os.kill(int(daemon), signal.SIGTERM)
    wait_for(browser, "the page says that the daemon is gone", "document.getElementById('link').textContent.startsWith('no connection')")
    picture(browser, folder + "/page-daemon-gone.png", 390)
    os.close(browser.write_end)
    browser.process.wait()
    for problem in problems[:20]:
        print("check-page:", problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"check-page: 4 views, {stops} stops by keyboard, a change seen after {max(took, outs):.1f} s")


main()
