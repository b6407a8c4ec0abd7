// The live page: countdowns by the namespace's clock, frames from the feed, and the one indicator that says how live it all is.
// A frame is described in explorer/live/feed.py. hx-ws keeps the connection; applying a frame is done here, with htmx's morph, so
// that focus, selection and typed text stay. Nothing here evaluates code or writes styles.
(() => {
  "use strict";

  const LATE_MS = 2500; // without a beat, which comes each second
  const OLD_SECONDS = 1.5; // age of the server's own knowledge from which it is called delayed
  const SAME_CLOCK_MS = 5000; // what a page takes to arrive, at most
  const GHOST_MS = 2500; // a row that left its list stays so long, saying what became of it
  const UNREPEATABLE = "[role=alert], #taken-title"; // a fragment that shows a refusal, or what was received and deleted, stays

  const connection = document.getElementById("live-connection");
  const button = document.getElementById("live");
  const newRowsButton = document.getElementById("new-rows");
  const word = document.getElementById("live-word");
  const said = document.getElementById("live-said");

  // --- The clock: what deadlines are read by. `at` is performance.now() when it showed `now`. ---

  const clock = { now: Date.now(), rate: 1, at: performance.now(), read: 0 };

  let moved = 0; // by how much it was set otherwise than it would have gone on

  // read: the real time at which the server read it. What was under way while a later reading came is no news: whether it was
  // set.
  function setClock(now, rate, at, read) {
    if (read <= clock.read) return false;
    moved += now + (performance.now() - at) * rate - clockNow();
    Object.assign(clock, { now, rate, at, read });
    return true;
  }

  // What the page's namespace lives by, as its control says; that comes anew when the clock is moved from here.
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
    const paused = clock.rate === 0 && !document.querySelector("#clock .notice"); // which says so for the whole page
    for (const element of document.querySelectorAll("[data-clock-now]")) setText(element, clockText());
    for (const element of document.querySelectorAll("[data-deadline]")) {
      const left = Number(element.dataset.deadline) - now;
      setText(element, paused && left > 0 ? `${countdownText(left)}, clock paused` : countdownText(left));
    }
    for (const bar of document.querySelectorAll("progress[data-to]")) {
      bar.value = Math.min(1, Math.max(0, (now - bar.dataset.from) / (bar.dataset.to - bar.dataset.from)));
    }
    for (const element of document.querySelectorAll("[data-since]")) {
      const age = ageText(Math.max(0, now + skew(element, now) - Number(element.dataset.since)));
      setText(element, "inWords" in element.dataset && age !== "now" ? `${age} ago` : age);
    }
  }

  // How far the clock that an age was read by is from the page's: a row of another namespace, a real instant on a page of a
  // manual one. What was read after a step may be here before the page is told of that step: then the two clocks turn out to be
  // one.
  const skews = new WeakMap();

  function skew(element, now) {
    const readAt = element.dataset.now;
    const known = skews.get(element);
    const apart = known?.readAt === readAt ? known.by && known.by - (moved - known.moved) : readAt - now;
    const by = Math.abs(apart) > SAME_CLOCK_MS ? apart : 0;
    skews.set(element, { readAt, by, moved });
    return by;
  }

  // --- The indicator: live, paused, delayed (with its age), disconnected. ---

  let socket = null;
  let paused = false;
  let heardAt = performance.now();
  let serverAge = 0;
  let refusal = "";
  let shown = "";

  function liveState() {
    if (paused) return ["paused", "paused"];
    if (!socket || refusal) return ["disconnected", "disconnected"];
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

  // --- The connection. It serves one page; where htmx moved on to another address, that is asked for. ---

  function page() {
    return location.pathname.slice(connection.dataset.prefix.length) + location.search;
  }

  function ask() {
    if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ page: page() }));
  }

  function onConnected(event) {
    const first = socket === null && new URL(event.detail.connection.url).searchParams.get("page") === page();
    socket = event.detail.connection.socket;
    heardAt = performance.now();
    refusal = "";
    if (!first) ask();
    tick();
  }

  function onClosed() {
    socket = null;
    tick();
  }

  function onFrame(event) {
    event.detail.cancelled = true; // htmx has nothing to swap: what a frame holds goes where its ids say
    const frame = JSON.parse(event.detail.message.data);
    heardAt = performance.now();
    if (frame.beat !== undefined) serverAge = frame.beat;
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
  const ghosts = new Map(); // id of a row that left its list -> when it goes
  const waiting = new Set(); // ids of rows that are held back

  function apply(frame) {
    const told = frame.clock;
    if (told) setClock(told.now, told.rate, performance.now(), told.read);
    const elements = (frame.fragments ?? []).flatMap(parsed);
    for (const element of elements) latest.set(element.id, element.outerHTML);
    show(elements, frame.left);
  }

  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return [...template.content.children];
  }

  // Morph elements into the page by their ids. left: what became of rows. evenIfHeld: new rows are not held back.
  async function show(elements, left = {}, evenIfHeld = false) {
    const token = document.querySelector("input[name=csrfmiddlewaretoken]")?.value;
    let fragments = "";
    for (const element of elements) {
      const old = document.getElementById(element.id);
      if (!old || old.querySelector(UNREPEATABLE)) continue;
      for (const input of element.querySelectorAll("input[name=csrfmiddlewaretoken]")) input.setAttribute("value", token);
      keepRows(old, element, left, evenIfHeld);
      element.setAttribute("hx-swap-oob", "outerMorph");
      fragments += element.outerHTML;
    }
    if (!fragments) return;
    const focused = document.activeElement;
    await htmx.swap({ sourceElement: connection, target: connection, swap: "none", text: fragments, transition: false });
    // Where rows cannot be moved with the focus in them, it is given back.
    if (document.activeElement === document.body && focused.isConnected) focused.focus({ preventScroll: true });
  }

  function showAgain(evenIfHeld) {
    show([...latest.values()].flatMap(parsed), {}, evenIfHeld);
  }

  // In a list, rows that left stay a moment, and new ones wait while somebody is at work in it.
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

  // Whether a row that is no longer in the list stays a moment, saying what became of it.
  function stays(row, fate) {
    const badge = row.querySelector(".state");
    if (!ghosts.has(row.id) && (fate && badge || inUse(row))) {
      ghosts.set(row.id, performance.now() + GHOST_MS);
      setTimeout(endGhosts, GHOST_MS + 10);
    }
    if (fate && badge) {
      badge.className = "state state-gone";
      badge.textContent = fate;
      row.querySelector("[data-deadline]")?.closest("td").replaceChildren(); // nothing is to come
    }
    return ghosts.has(row.id);
  }

  function endGhosts() {
    for (const [id, end] of ghosts) {
      if (end > performance.now()) continue;
      ghosts.delete(id); // one that is in use stays again
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

  // New rows wait while somebody has scrolled into the list, selected rows or text in it, or stands in it with the keyboard.
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

  // --- Wiring. ---

  // A browser that moves the row with the focus scrolls to it. What is fetched by itself scrolls nothing.
  let scrolled = null;

  function onSwap(event) {
    if (event.detail.ctx?.sourceElement === connection) scrolled = [scrollX, scrollY];
  }

  function scrollBack() {
    if (scrolled && (scrolled[0] !== scrollX || scrolled[1] !== scrollY))
      scrollTo({ left: scrolled[0], top: scrolled[1], behavior: "instant" });
    scrolled = null;
  }

  function onSwapped(event) {
    const source = event.detail.ctx?.sourceElement;
    if (source === connection) {
      scrollBack();
      return;
    }
    if (source?.closest?.("#clock")) readClockControl(performance.now());
    forget();
    ask(); // what was swapped in may be older than frames that came while it was under way
  }

  function onKey(event) { // the key p presses the button, as app.js has it
    const shortcuts = document.documentElement.dataset.shortcuts !== "off" && !document.querySelector("dialog[open]");
    if (event.key !== " " || event.target !== document.body || !shortcuts) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    pause(!paused);
  }

  // A morph must not close what the reader has opened.
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
    document.addEventListener("htmx:before:swap", onSwap);
    document.addEventListener("htmx:after:swap", onSwapped);
    document.addEventListener("keydown", onKey);
    // htmx may have gone over the page before hx-ws was loaded; and a connection made before now would not have been noticed
    // here.
    htmx.process(connection);
    connection.dispatchEvent(new Event("live-ready"));
  }
  addEventListener("pageshow", (event) => event.persisted && location.reload()); // out of the browser's cache, its socket closed
  setInterval(tick, 250);
  tick();
})();
