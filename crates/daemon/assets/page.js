// Puts the parts that changed in the place of the old ones. Focus, scrolling and what is selected stay.
(() => {
  const link = document.getElementById("link");
  const tell = (text, isBad) => {
    if (link.textContent !== text) link.textContent = text;
    document.documentElement.classList.toggle("stale", isBad);
  };
  const late = new Map();
  const isSelected = (part) => {
    const chosen = getSelection();
    return chosen && !chosen.isCollapsed && chosen.rangeCount > 0 && chosen.getRangeAt(0).intersectsNode(part);
  };
  const put = (name, html) => {
    const part = document.getElementById(name);
    if (!part) return;
    if (isSelected(part)) return void late.set(name, html);
    late.delete(name);
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    const moved = [...part.querySelectorAll(".scroll")].map((one) => [one.id, one.scrollLeft]);
    part.innerHTML = html;
    for (const [id, left] of moved) {
      const one = document.getElementById(id);
      if (one) one.scrollLeft = left;
    }
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };
  const source = new EventSource("live");
  source.addEventListener("look", (event) => {
    const isReloaded = performance.getEntriesByType("navigation")[0]?.type === "reload";
    if (event.data !== document.documentElement.dataset.look && !isReloaded) location.reload();
  });
  source.addEventListener("message", (event) => {
    const parts = new Map([...late, ...JSON.parse(event.data)]);
    parts.forEach((html, name) => put(name, html));
    tell("live", false);
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) tell("not updated; reload the page", true);
    else tell("no connection; this is the last state seen", true);
  });
})();
