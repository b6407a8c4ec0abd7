// Live pages: countdowns by the namespace's clock, frames from the feed, and the live indicator.
// Frames are described in explorer/live/feed.py. hx-ws keeps the connection; frames are applied here with htmx's morph, so that
// focus, selection and typed text are kept. No code is evaluated and no styles are written, as the CSP requires.
(() => {
  "use strict";

  const LATE_MS = 2500; // without a beat, which arrives every second
  const OLD_SECONDS = 1.5; // age of the server's data from which the page counts as delayed
  const SAME_CLOCK_MS = 5000; // clocks with a smaller difference are the same; covers the load time of a page
  const GHOST_MS = 2500; // how long a row that left its list stays, with the reason
  const UNREPEATABLE = "[role=alert], #taken-title"; // fragments with an error or with deleted messages are not replaced

  const connection = document.getElementById("live-connection");
  const button = document.getElementById("live");
  const newRowsButton = document.getElementById("new-rows");
  const word = document.getElementById("live-word");
  const said = document.getElementById("live-said");

  // --- The clock of the deadlines. `at` is performance.now() at the time `now`. ---

  const clock = { now: Date.now(), rate: 1, at: performance.now(), read: 0 };

  let moved = 0; // sum of all changes beyond the normal running of the clock

  // read: the real time of the server's reading. Older readings than the current one are ignored. Returns whether it was set.
  function setClock(now, rate, at, read) {
    if (read <= clock.read) return false;
    moved += now + (performance.now() - at) * rate - clockNow();
    Object.assign(clock, { now, rate, at, read });
    return true;
  }

  // Read the clock from its control on the page, which is replaced when the user changes the clock.
  function readClockControl(at) {
    const control = document.getElementById("clock");
    const { clock: now, rate, read } = control?.dataset ?? {};
    if (now) setClock(Number(now), Number(rate), at, Number(read));
  }

  function clockText() {
    const text = new Date(clockNow()).toISOString().replace("T", " ");
    return `${clock.rate === 0 ? text.slice(0, 23) : text.slice(0, 19)} UTC`;
  }

  function readPageClock() {
    const meta = document.querySelector('meta[name="vitrine-clock"]');
    const navigation = performance.getEntriesByType("navigation")[0];
    const at = navigation?.responseStart ?? performance.now();
    if (meta) setClock(Number(meta.content), Number(meta.dataset.rate), at, Number(meta.dataset.read));
    readClockControl(at);
  }

  function clockNow() {
    return clock.now + (performance.now() - clock.at) * clock.rate;
  }

  function countdownText(ms) {
    const whole = Math.floor(ms / 1000);
    if (ms <= 0) return "moments";
    if (whole >= 2 * 86400) return `${Math.round(whole / 86400)} days`;
    const two = (n) => String(n).padStart(2, "0");
    const [hours, minutes, seconds] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
    return hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
  }

  function ageText(ms) {
    const seconds = Math.floor(ms / 1000);
    if (seconds < 1) return "now";
    for (const [name, size] of [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
      const count = Math.floor(seconds / size);
      if (count) return `${count} ${name}${name === "day" && count > 1 ? "s" : ""}`;
    }
  }

  function setText(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function showTime() {
    const now = clockNow();
    const paused = clock.rate === 0 && !document.querySelector("#clock .notice"); // the notice says so for the whole page
    for (const element of document.querySelectorAll("[data-clock-now]")) setText(element, clockText());
    for (const element of document.querySelectorAll("[data-deadline]")) {
      const left = Number(element.dataset.deadline) - now;
      setText(element, paused && left > 0 ? `${countdownText(left)}, clock paused` : countdownText(left));
    }
    for (const bar of document.querySelectorAll("progress[data-to]")) {
      bar.value = Math.min(1, Math.max(0, (now - bar.dataset.from) / (bar.dataset.to - bar.dataset.from)));
    }
    for (const ring of document.querySelectorAll("[data-ring-to]")) {
      const { ringFrom: from, ringTo: to } = ring.dataset;
      ring.setAttribute("stroke-dasharray", `${(100 * Math.min(1, Math.max(0, (to - now) / (to - from)))).toFixed(1)} 100`);
    }
    for (const element of document.querySelectorAll("[data-since]")) {
      const age = ageText(Math.max(0, now + skew(element, now) - Number(element.dataset.since)));
      setText(element, "inWords" in element.dataset && age !== "now" ? `${age} ago` : age);
    }
  }

  // The difference between the clock of an age and the page's clock: for rows of other namespaces, and for real instants on a
  // page with a manual clock. An age read after a step may arrive before the step itself: then both clocks are the same.
  const skews = new WeakMap();

  function skew(element, now) {
    const readAt = element.dataset.now;
    const known = skews.get(element);
    const apart = known?.readAt === readAt ? known.by && known.by - (moved - known.moved) : readAt - now;
    const by = Math.abs(apart) > SAME_CLOCK_MS ? apart : 0;
    skews.set(element, { readAt, by, moved });
    return by;
  }

  // --- The indicator: connecting, live, paused, delayed (with its age), disconnected. ---

  let socket = null;
  let connecting = true; // until the first connection was made, or failed
  let paused = false;
  let heardAt = performance.now();
  let serverAge = 0;
  let refusal = "";
  let shown = "";

  function liveState() {
    if (paused) return ["paused", "paused"];
    if (!socket || refusal) return connecting ? ["connecting", "connecting"] : ["disconnected", "disconnected"];
    const silent = performance.now() - heardAt;
    const age = (silent > LATE_MS ? silent / 1000 : 0) + (serverAge > OLD_SECONDS ? serverAge : 0);
    return age ? ["delayed", `delayed ${ageText(age * 1000)}`] : ["live", "live"];
  }

  function showState() {
    const [state, text] = liveState();
    setText(word, text);
    if (state === shown) return;
    shown = state;
    button.dataset.live = state;
    button.setAttribute("aria-pressed", String(paused));
    button.title = refusal || (paused ? "Resume live updates" : "Pause live updates");
    said.textContent = `Live updates: ${state}. ${refusal}`;
  }

  function tick() {
    if (!paused) showTime();
    if (button) showState();
  }

  // --- The connection. It serves one page; after htmx has changed the URL, the new page is requested. ---

  function page() {
    return location.pathname.slice(connection.dataset.prefix.length) + location.search;
  }

  let asks = 0; // requests of a page's state
  let answered = 0; // the last one that was answered; frames before the answer are older than the request

  function ask() {
    if (socket?.readyState !== WebSocket.OPEN) return;
    asks += 1;
    socket.send(JSON.stringify({ page: page(), ask: asks }));
  }

  function onConnected(event) {
    const first = socket === null && new URL(event.detail.connection.url).searchParams.get("page") === page();
    socket = event.detail.connection.socket;
    heardAt = performance.now();
    connecting = false;
    refusal = "";
    answered = asks;
    if (!first) ask();
    tick();
  }

  function onClosed() {
    connecting = false;
    socket = null;
    tick();
  }

  function onFrame(event) {
    event.detail.cancelled = true; // htmx does not swap: a frame's fragments replace elements by id
    const frame = JSON.parse(event.detail.message.data);
    heardAt = performance.now();
    if (frame.beat !== undefined) serverAge = frame.beat;
    else if (frame.asked !== undefined) answered = frame.asked;
    else if (answered < asks) return; // drawn before what the page shows now
    else if (frame.refused) refusal = frame.refused;
    else if (!paused) {
      refusal = "";
      apply(frame);
    }
    tick();
  }

  function pause(on) {
    paused = on;
    if (!on) ask();
    tick();
  }

  // --- Frames. ---

  const latest = new Map(); // id of a fragment -> its HTML as last sent
  const ghosts = new Map(); // id of a row that left its list -> when it is removed
  const waiting = new Set(); // ids of rows that are held back

  function apply(frame) {
    const reading = frame.clock;
    if (reading) setClock(reading.now, reading.rate, performance.now(), reading.read);
    const elements = (frame.fragments ?? []).flatMap(parsed);
    for (const element of elements) latest.set(element.id, element.outerHTML);
    show(elements, frame.left);
    if (frame.moved) document.dispatchEvent(new CustomEvent("vitrine:moved", { detail: frame.moved }));
  }

  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return [...template.content.children];
  }

  const requests = new Set(); // those of htmx under way

  function isRequested(element) {
    return [...requests].some((ctx) => ctx.sourceElement.isConnected && ctx.target?.contains?.(element));
  }

  // Morph elements into the page by their ids, except where an answer is about to replace them: a button must not change while
  // it is pressed. left: why rows left. evenIfHeld: do not hold back new rows.
  async function show(elements, left = {}, evenIfHeld = false) {
    const token = document.querySelector("input[name=csrfmiddlewaretoken]")?.value;
    let fragments = "";
    for (const element of elements) {
      const old = document.getElementById(element.id);
      if (!old || isRequested(old) || old.querySelector(UNREPEATABLE) || isOfAnotherMessage(element)) continue;
      for (const input of element.querySelectorAll("input[name=csrfmiddlewaretoken]")) input.setAttribute("value", token);
      keepOpen(element);
      keepRows(old, element, left, evenIfHeld);
      element.setAttribute("hx-swap-oob", "outerMorph");
      fragments += element.outerHTML;
    }
    if (!fragments) return;
    const focused = document.activeElement;
    await htmx.swap({ sourceElement: connection, target: connection, swap: "none", text: fragments, transition: false });
    // Restore the focus if the browser lost it when rows moved.
    if (document.activeElement === document.body && focused.isConnected) focused.focus({ preventScroll: true });
  }

  // What is unfolded stays so while the page is open, that nothing jumps: a tab, a lane of a board, the time bar.
  function keepOpen(element) {
    for (const one of [element, ...element.querySelectorAll("[data-folded]")]) {
      const shown = document.getElementById(one.id);
      if (shown && !("folded" in shown.dataset)) delete one.dataset.folded;
    }
  }

  // A pane that was rendered before the user opened another message, or closed it (split.js).
  function isOfAnotherMessage(element) {
    const { m } = element.dataset;
    return m !== undefined && m !== (new URLSearchParams(location.search).get("m") ?? "");
  }

  function showAgain(evenIfHeld) {
    show([...latest.values()].flatMap(parsed), {}, evenIfHeld);
  }

  // In a list, rows that left stay for a moment, and new ones are held back while the user works in it.
  function keepRows(old, element, left, evenIfHeld) {
    const list = old.querySelector("#rows");
    if (!list) return;
    let next = element.querySelector("#rows");
    const wanted = new Set([...(next?.rows ?? [])].map((row) => row.id));
    for (const id of wanted) ghosts.delete(id);
    const kept = [...list.rows].filter((row) => !wanted.has(row.id) && stays(row, left[row.id]));
    if (kept.length && !next) next = tableInsteadOfWords(list, element);
    waiting.clear();
    if (next && !evenIfHeld && isHeld(list)) [...next.rows].filter((row) => !document.getElementById(row.id)).forEach(holdBack);
    for (const row of next ? kept.reverse() : []) {
      next.insertBefore(row.cloneNode(true), following(row, next));
    }
    newRowsButton.hidden = waiting.size === 0;
    if (waiting.size) setText(newRowsButton, `${waiting.size} new`);
  }

  // Whether a row that left the list stays for a moment, with the reason.
  function stays(row, fate) {
    const badge = row.querySelector(".state");
    if (!ghosts.has(row.id) && (fate && badge || inUse(row))) {
      ghosts.set(row.id, performance.now() + GHOST_MS);
      setTimeout(endGhosts, GHOST_MS + 10);
    }
    if (fate && badge) {
      badge.className = "state state-gone";
      badge.textContent = fate;
    }
    if (ghosts.has(row.id) && !row.classList.contains("left")) markLeft(row);
    return ghosts.has(row.id);
  }

  // A row that left has no deadline and cannot be selected; it says since when it is gone.
  function markLeft(row) {
    const deadline = row.querySelector("[data-deadline]")?.closest("td") ?? row.querySelector("td.next, td.until");
    const now = Math.round(clockNow());
    const since = document.createElement("time");
    Object.assign(since.dataset, { since: now, now, inWords: "" });
    since.textContent = "now";
    deadline?.replaceChildren("left ", since);
    row.querySelector(".check")?.replaceChildren();
    row.classList.add("left");
    document.dispatchEvent(new Event("vitrine:rows-left"));
  }

  function endGhosts() {
    for (const [id, end] of ghosts) {
      if (end > performance.now()) continue;
      ghosts.delete(id); // one in use stays again
    }
    if (!paused) showAgain();
  }

  function tableInsteadOfWords(list, element) {
    const words = element.querySelector(".empty");
    const table = list.closest(".scroller")?.cloneNode(true);
    if (!words || !table) return null;
    words.replaceWith(table);
    const rows = table.querySelector("#rows");
    rows.replaceChildren();
    return rows;
  }

  function following(row, next) {
    for (let other = row.nextElementSibling; other; other = other.nextElementSibling) {
      const found = [...next.rows].find((one) => one.id === other.id);
      if (found) return found;
    }
    return null;
  }

  function holdBack(row) {
    waiting.add(row.id);
    row.remove();
  }

  function inUse(row) {
    return row.contains(document.activeElement) || row.querySelector("input:checked") !== null;
  }

  // New rows are held back while the user has scrolled into the list, has selected rows or text in it, or has the focus in it.
  function isHeld(list) {
    const bar = document.querySelector(".bar")?.getBoundingClientRect().bottom ?? 0;
    const selection = document.getSelection();
    return (
      list.getBoundingClientRect().top < bar ||
      list.contains(document.activeElement) ||
      list.querySelector("input:checked") !== null ||
      (selection && !selection.isCollapsed && list.contains(selection.anchorNode))
    );
  }

  function forget() {
    latest.clear();
    ghosts.clear();
    waiting.clear();
    newRowsButton.hidden = true;
  }

  // --- Boards: a chip whose message changed travels to its new place, above the lanes, and appears there at the end. A chip is
  // known by its id, wherever it is (data-was: the id before). With reduced motion it is there at once. ---

  const FLY_MS = 250;
  const PLUS_MS = 1400;
  const MOST_FLIGHTS = 40; // at once
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const chipsOf = (within) => [...(within?.querySelectorAll(".chip-item") ?? [])];
  const laneOf = (item) => item.closest(".lane").id;
  const linkIn = (item) => item?.querySelector(".board-chip");

  let chips = new Map(); // id -> where the chip was before the swap, and its failed deliveries
  let missing = new Map(); // those in no lane for at most GHOST_MS, as a message that changes while the lanes are read
  let focusedChip = null; // its standIn has the focus while it is missing

  function rememberChips() {
    const all = chipsOf(document.querySelector("[data-board]"));
    const rect = (item) => linkIn(item).getBoundingClientRect();
    const there = all.map((item) => [item.id, { rect: rect(item), tried: Number(item.dataset.tried), lane: laneOf(item) }]);
    chips = new Map([...missing, ...there]);
    const active = document.activeElement;
    if (focusedChip?.standIn && focusedChip.standIn === active) return;
    const focused = active?.closest?.(".chip-item");
    focusedChip = focused ? { id: focused.id, lane: laneOf(focused), standIn: null } : null;
  }

  function moveChips() {
    const board = document.querySelector("[data-board]");
    if (!board) return;
    followFocus(board);
    missing = missingChips();
    if (still.matches || document.hidden || !chips.size) return;
    const air = board.querySelector(".board-air");
    // All places are read before anything is added: else each flight would lay out the board once more.
    const now = chipsOf(board).map((item) => [item, linkIn(item), linkIn(item).getBoundingClientRect()]);
    const origin = air.getBoundingClientRect();
    let flights = 0;
    for (const [item, link, rect] of now) {
      const old = chips.get(item.id) ?? chips.get(item.dataset.was);
      if (!old) {
        link.animate({ opacity: [0, 1] }, FLY_MS);
      } else if (old.lane !== laneOf(item)) {
        flights += 1;
        if (flights <= MOST_FLIGHTS) fly(air, origin, link, old.rect, rect);
        if (Number(item.dataset.tried) > old.tried) showPlus(air, origin, Number(item.dataset.tried) - old.tried, rect);
      } else if (Math.abs(old.rect.top - rect.top) > 1 || Math.abs(old.rect.left - rect.left) > 1) {
        const from = `translate(${old.rect.left - rect.left}px, ${old.rect.top - rect.top}px)`;
        item.animate({ transform: [from, "none"] }, { duration: FLY_MS, easing: "ease-out" });
      }
    }
    chips = new Map();
  }

  function missingChips() {
    const now = performance.now();
    const dated = [...chips].map(([id, place]) => [id, { until: now + GHOST_MS, ...place }]);
    return new Map(dated.filter(([id, { until }]) => until > now && !document.getElementById(id)));
  }

  function fly(air, { left, top }, link, from, to) {
    const copy = document.createElement("span");
    copy.className = link.className;
    copy.append(...[...link.childNodes].map((node) => node.cloneNode(true)));
    const at = (rect, turn) => `translate(${rect.left - left}px, ${rect.top - top}px) rotate(${turn}deg)`;
    const frames = { transform: [at(from, 0), at(from, 2), at(to, 0)], offset: [0, 0.15, 1] };
    drift(air, copy, frames, { duration: FLY_MS, easing: "ease-in-out", fill: "both" });
    link.animate({ opacity: [0, 0, 1], offset: [0, 0.95, 1] }, FLY_MS);
  }

  // "+1" beside a chip that came back: another failed delivery.
  function showPlus(air, { left, top }, count, rect) {
    const sign = document.createElement("span");
    sign.className = "board-plus";
    sign.textContent = `+${count}`;
    const at = (dy) => `translate(${rect.right - left - 14}px, ${rect.top - top - 10 + dy}px)`;
    const frames = { transform: [at(6), at(0), at(0), at(-6)], opacity: [0, 1, 1, 0], offset: [0, 0.2, 0.8, 1] };
    drift(air, sign, frames, { duration: PLUS_MS, fill: "both" });
  }

  function drift(air, element, frames, timing) {
    air.append(element);
    element.animate(frames, timing).finished.finally(() => element.remove());
  }

  // The focus goes with its chip; if that is missing, to the first one of its lane, or to the lanes.
  function followFocus(board) {
    if (!focusedChip || (!focusedChip.standIn && !document.activeElement.contains(board))) return;
    const { id, lane } = focusedChip;
    const link = linkIn(document.getElementById(id));
    if (!link) focusedChip.standIn = linkIn(chipsOf(document.getElementById(lane))[0]) ?? document.getElementById("lanes");
    (link ?? focusedChip.standIn).focus({ preventScroll: true });
  }

  // --- Wiring. ---

  function onRequest(event) {
    requests.add(event.detail.ctx);
  }

  function onRequestEnd(event) {
    if (requests.delete(event.detail.ctx)) ask(); // without an answer: for what was skipped
  }

  // Browsers scroll to a focused row that is moved. Live updates must not scroll, so the position is restored.
  let scrolled = null;

  function onSwap(event) {
    if (event.detail.ctx?.sourceElement !== connection) return;
    scrolled = [scrollX, scrollY];
    rememberChips();
  }

  function scrollBack() {
    if (scrolled && (scrolled[0] !== scrollX || scrolled[1] !== scrollY))
      scrollTo({ left: scrolled[0], top: scrolled[1], behavior: "instant" });
    scrolled = null;
  }

  function onSwapped(event) {
    const source = event.detail.ctx?.sourceElement;
    if (source === connection) {
      moveChips();
      scrollBack();
      return;
    }
    if (source?.closest?.("#clock")) readClockControl(performance.now());
    requests.delete(event.detail.ctx);
    forget();
    ask(); // the response may be older than frames that arrived in the meantime
  }

  function onKey(event) { // the space bar; the key p is handled in app.js
    const shortcuts = document.documentElement.dataset.shortcuts !== "off" && !document.querySelector("dialog[open]");
    if (event.key !== " " || event.target !== document.body || !shortcuts) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    pause(!paused);
  }

  // A morph must not close what the user has opened.
  htmx.registerExtension("vitrine-live", {
    htmx_before_morph_attr: (element, detail) => !(detail.attrName === "open" && element.matches("details, dialog")),
  });

  readPageClock();
  if (connection) {
    button.hidden = false;
    button.addEventListener("click", () => pause(!paused));
    newRowsButton.addEventListener("click", () => {
      showAgain(true);
      document.getElementById("rows")?.closest("section")?.scrollIntoView();
    });
    connection.addEventListener("htmx:ws:after:connection", onConnected);
    connection.addEventListener("htmx:ws:close", onClosed);
    connection.addEventListener("htmx:ws:before:message:incoming", onFrame);
    document.addEventListener("htmx:before:request", onRequest);
    document.addEventListener("htmx:finally:request", onRequestEnd);
    document.addEventListener("htmx:before:swap", onSwap);
    document.addEventListener("htmx:after:swap", onSwapped);
    document.addEventListener("keydown", onKey);
    // htmx may have processed the page before hx-ws was loaded, and a connection made before now would be missed here.
    htmx.process(connection);
    connection.dispatchEvent(new Event("live-ready"));
  }
  addEventListener("pageshow", (event) => event.persisted && location.reload()); // from the browser's cache: its socket is closed
  setInterval(tick, 250);
  tick();
})();
