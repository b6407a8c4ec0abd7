// The live page: countdowns by the namespace's clock, frames from the feed, and the one indicator that says how live it all is.
// A frame is described in explorer/live/frames.py. hx-ws keeps the connection; applying a frame is done here, with htmx's morph,
// so that focus, selection and typed text stay. Nothing here evaluates code or writes styles.
(() => {
  "use strict";

  const LATE_MS = 2500; // without a beat, which comes each second
  const OLD_SECONDS = 1.5; // age of the server's own knowledge from which it is called delayed
  const SAME_CLOCK_MS = 5000; // what a page takes to arrive, at most
  const GHOST_MS = 2500; // a row that left its list stays so long, saying what became of it
  // what is fetched again where rows do not tell all
  const RELOADED = "#messages, #message, #receiver, #queues, #connections, #overview, #fullest";
  const UNREPEATABLE = "[role=alert], #taken-title"; // but not while it shows a refusal, or what was received and deleted

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

  // Who paused or resumed it somewhere else: the notice of it comes, or goes.
  function fetchClockControl(manual) {
    const control = document.getElementById("clock");
    if (!control?.dataset.url) return;
    if (Number(control.dataset.rate) === clock.rate && Boolean(control.dataset.manual) === manual) return;
    htmx.ajax("GET", control.dataset.url, { source: connection, target: control, swap: "outerMorph" });
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

  let stamp = reloaded()?.dataset.stamp; // of what the page was fetched for, where it is fetched again rather than told
  let order = null; // ids of the list as it should be, from top to bottom; null: not known, or no whole list
  const coming = new Map(); // id -> row that is not in the page yet
  const ghosts = new Map(); // id -> timer of a row that left

  function apply(frame) {
    const told = frame.clock;
    if (told && setClock(told.now, told.rate, performance.now(), told.read)) fetchClockControl(told.manual);
    for (const [id, text] of Object.entries(frame.texts ?? {})) {
      const element = document.getElementById(id);
      if (element) setText(element, text);
    }
    for (const [id, fate] of Object.entries(frame.left ?? {})) leave(id, fate);
    morph(Object.entries(frame.rows ?? {}));
    if (frame.order) order = frame.order;
    if (order) arrange();
    else coming.clear();
    if (frame.next) turnFurther(frame.next);
    if (frame.stamp !== undefined && frame.stamp !== stamp) {
      stamp = frame.stamp;
      fetchAgain();
    }
  }

  function reloaded() {
    return document.querySelector(RELOADED);
  }

  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  }

  function morph(contents) {
    let fragments = "";
    for (const [id, html] of contents) {
      const element = parsed(html);
      if (!element) continue;
      if (document.getElementById(id)) {
        stay(id);
        element.setAttribute("hx-swap-oob", "outerMorph");
        fragments += element.outerHTML;
      } else {
        coming.set(id, element);
      }
    }
    if (fragments) htmx.swap({ sourceElement: connection, target: connection, swap: "none", text: fragments, transition: false });
  }

  function leave(id, fate) {
    coming.delete(id);
    const row = document.getElementById(id);
    if (!row || ghosts.has(id)) return;
    const badge = row.querySelector(".state");
    if (!fate || !badge) {
      remove(id);
      return;
    }
    badge.className = "state state-gone";
    badge.textContent = fate;
    ghosts.set(id, setTimeout(remove, GHOST_MS, id));
  }

  function stay(id) {
    clearTimeout(ghosts.get(id));
    ghosts.delete(id);
  }

  function remove(id) {
    const row = document.getElementById(id);
    if (row && inUse(row)) {
      ghosts.set(id, setTimeout(remove, GHOST_MS, id));
      return;
    }
    ghosts.delete(id);
    row?.remove();
    fetchIfEmpty();
  }

  // An empty list has words instead of a table, so both ways between the two are the server's to draw.
  function fetchIfEmpty() {
    const list = document.getElementById("rows");
    if (order && (list ? !order.length && !list.rows.length : order.length)) fetchAgain();
  }

  // Rows that new ones push off this page are the first of the next.
  function turnFurther(cursor) {
    const link = document.querySelector("#messages a[rel=next]");
    if (!link) {
      fetchAgain();
      return;
    }
    const address = new URL(link.href);
    address.searchParams.set("cursor", cursor);
    link.href = address;
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

  function arrange(evenIfHeld = false) {
    const list = document.getElementById("rows");
    const wanted = new Set(order);
    for (const id of coming.keys()) if (!wanted.has(id)) coming.delete(id);
    fetchIfEmpty();
    if (!list) return;
    for (const row of [...list.rows]) if (!wanted.has(row.id) && !ghosts.has(row.id)) remove(row.id);
    if (evenIfHeld || !isHeld(list)) insert(list);
    showWaiting();
  }

  function insert(list) {
    let before = null;
    for (const id of [...order].reverse()) {
      let row = document.getElementById(id);
      if (!row && coming.has(id)) {
        row = coming.get(id);
        coming.delete(id);
        list.insertBefore(row, before);
        htmx.process(row);
      }
      before = row ?? before;
    }
  }

  function showWaiting() {
    newRowsButton.hidden = coming.size === 0;
    if (coming.size) setText(newRowsButton, `${coming.size} new`);
  }

  let fetching = false;
  let fetchOnceMore = false;

  async function fetchAgain() {
    const target = reloaded();
    if (!target || target.querySelector(UNREPEATABLE)) return;
    fetchOnceMore = fetching;
    if (fetching) return;
    fetching = true;
    const address = location.pathname + location.search;
    const focused = document.activeElement;
    try {
      await htmx.ajax("GET", address, { source: connection, target, swap: "outerMorph" });
    } finally {
      fetching = false;
    }
    // Where rows cannot be moved with the focus in them, it is given back.
    if (document.activeElement === document.body && focused.isConnected) focused.focus({ preventScroll: true });
    if (address !== location.pathname + location.search) fetchOnceMore = true; // the reader went on to another list meanwhile
    forgetList();
    if (fetchOnceMore) fetchAgain();
    else ask(); // for what changed while it was under way
  }

  function forgetList() {
    order = null;
    coming.clear();
    showWaiting();
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
    stamp = reloaded()?.dataset.stamp ?? stamp;
    forgetList();
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
      arrange(true);
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
