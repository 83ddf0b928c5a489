"""A page under the keyboard, in headless Chromium through its DevTools pipe, for the checks of pages. Needs nothing but Python itself and Chromium."""
import json
import os
import subprocess
import sys

KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " "), "ArrowRight": (39, ""), "ArrowLeft": (37, "")}
SHIFT = 8
# What can be used and is not folded away now, numbered in the order of the page.
STOPS = """(() => {
  const folded = (one) => { const d = one.closest('details:not([open])'); return d && !(one.tagName === 'SUMMARY' && one.parentElement === d && !d.parentElement.closest('details:not([open])')); };
  const all = [...document.querySelectorAll('a[href], summary, [tabindex="0"], button, input, select')].filter((one) => !folded(one));
  all.forEach((one, at) => one.dataset.stop = at);
  return all.map((one) => one.tagName + ' ' + (one.getAttribute('aria-label') || one.textContent).trim().slice(0, 60));
})()"""
FOCUSED = """(() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  return {stop: one.dataset.stop === undefined ? -1 : +one.dataset.stop, name: one.tagName, marked: one.matches(':focus-visible')
    && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1, seen: box.bottom > 0 && box.top < innerHeight
    && box.right > 0 && box.left < innerWidth, label: one.getAttribute('aria-label') || one.textContent.trim()};
})()"""


class Browser:
    """Chromium, spoken to over a pair of pipes: messages end with a zero byte."""

    def __init__(self, profile):
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def ends():
            os.dup2(to_read, 3)
            os.dup2(to_write, 4)

        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--remote-debugging-pipe", "--user-data-dir=" + profile, "about:blank"]
        # Both ends need to be above the two that they become.
        self.process = subprocess.Popen(["chromium", *flags], preexec_fn=ends, pass_fds=(3, 4, to_read, to_write),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.rest, self.session, self.events = 0, b"", None, []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Page.enable")

    def receive(self):
        while b"\0" not in self.rest:
            more = os.read(self.read_end, 1 << 20)
            if not more:
                sys.exit("browser: the browser ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    sys.exit(f"browser: {method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, page):
        self.events.clear()
        self.ask("Page.navigate", url=page)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.receive())

    def see(self, script):
        told = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            sys.exit(f"browser: {script[:60]}: {told['exceptionDetails']}")
        return told["result"].get("value")

    def press(self, key, modifiers=0):
        code, text = KEYS[key]
        same = {"key": key, "code": {" ": "Space"}.get(key, key), "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.ask("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **same)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **same)


problems = []


def hold(is_so, what):
    if not is_so:
        problems.append(what)


def walk(browser, width):
    """Tab through the whole page; how many stops it has."""
    names = browser.see(STOPS)
    for at, name in enumerate(names):
        browser.press("Tab")
        now = browser.see(FOCUSED)
        hold(now["stop"] == at, f"at {width} wide, Tab {at + 1} does not reach '{name}' but {now['name']} {now['label'][:40]!r}")
        hold(now["marked"], f"at {width} wide, '{name}' does not show that it has the focus")
        hold(now["seen"], f"at {width} wide, '{name}' has the focus and cannot be seen")
        hold(now["label"], f"'{name}' has no name for those who hear the page")
        if len(problems) > 20:
            break
    browser.press("Tab", SHIFT)
    back = browser.see(FOCUSED)["stop"]
    hold(back == len(names) - 2, f"Shift+Tab does not go back to stop {len(names) - 2} but to {back}")
    return len(names)
