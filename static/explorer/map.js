// The live map: the menus of senders and receivers, and a dot for each message that the feed reports, along the way that it took.
// At most DOTS_PER_SECOND are in sight: with more messages, one dot stands for several, and the key of the map says for how many.
// The dots are moved by element.animate(). With reduced motion there are none; widths and numbers say the same.
(() => {
  "use strict";

  const DOTS_PER_SECOND = 20;
  const TRAVEL_MS = 1400;
  const SPREAD_MS = 500; // the time between two frames, over which their dots start
  const SCALES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  const POINTS = 24; // of a way
  const SVG = "http://www.w3.org/2000/svg";

  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const owed = new Map(); // id of a way -> messages for which no dot has started yet
  let rate = 0; // steps per second, smoothed
  let scale = 1;
  let measuredAt = performance.now();

  // How many messages a dot stands for.
  function measure(count) {
    const now = performance.now();
    const seconds = Math.max((now - measuredAt) / 1000, 0.05);
    const weight = 1 - Math.exp(-seconds / 3);
    rate += (count / seconds - rate) * weight;
    measuredAt = now;
    scale = SCALES.find((one) => rate / one <= DOTS_PER_SECOND) ?? SCALES.at(-1);
    const words = document.getElementById("map-scale");
    const text = scale === 1 ? words?.dataset.one : `1 dot = ${scale.toLocaleString("en")} messages`;
    if (words && words.textContent !== text) words.textContent = text;
  }

  function keyframes(path) {
    const length = path.getTotalLength();
    return Array.from({ length: POINTS + 1 }, (_, i) => {
      const { x, y } = path.getPointAtLength((length * i) / POINTS);
      return { transform: `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)` };
    });
  }

  function send(path, delay) {
    const dot = document.createElementNS(SVG, "circle");
    dot.setAttribute("class", path.classList.contains("dead") ? "dot dead" : "dot");
    dot.setAttribute("r", "3.5");
    document.getElementById("map-dots").append(dot);
    const timing = { duration: TRAVEL_MS, delay, easing: "ease-in-out", fill: "backwards" };
    dot.animate(keyframes(path), timing).finished.finally(() => dot.remove());
  }

  function onMoved(event) {
    const moved = Object.entries(event.detail);
    measure(moved.reduce((sum, [, count]) => sum + count, 0));
    if (still.matches || document.hidden || !document.getElementById("map-dots")) return;
    for (const [id, count] of moved) {
      const path = document.getElementById(id)?.querySelector("path");
      if (!path) continue;
      const all = (owed.get(id) ?? 0) + count;
      const dots = Math.floor(all / scale);
      owed.set(id, all - dots * scale);
      for (let i = 0; i < Math.min(dots, DOTS_PER_SECOND); i += 1) send(path, (SPREAD_MS * (i + Math.random())) / dots);
    }
  }

  document.addEventListener("vitrine:moved", onMoved);

  // --- The menu of a sender or receiver opens beside it; the arrow keys move in it, Escape leads back to the node. ---

  const GAP = 6;
  const menu = document.getElementById("map-menu");
  const controls = () => [...menu.querySelectorAll("a, button:not([disabled]), input:not([type=hidden])")];

  // Right of the node, or left of it; where there is no space beside it, at the bottom of the window.
  function placeBeside(node, { width, height }) {
    const left = node.right + GAP + width <= innerWidth ? node.right + GAP : node.left - GAP - width;
    return left < 0 ? "" : `${Math.max(GAP, Math.min(node.top, innerHeight - height - GAP))}px auto auto ${left}px`;
  }

  async function openMenu(node) {
    await htmx.ajax("GET", node.getAttribute("href").split("#")[0], { target: menu, swap: "innerHTML" });
    menu.showPopover();
    menu.style.inset = placeBeside(node.getBoundingClientRect(), menu.getBoundingClientRect());
    controls()[0]?.focus();
  }

  if (!menu?.popover) return;
  document.addEventListener("click", (event) => {
    const node = event.target.closest?.("[data-map-menu]");
    if (!node || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    node.focus();
    openMenu(node);
  });
  menu.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.matches("[type=radio]")) return;
    event.preventDefault();
    const all = controls();
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  });
})();
