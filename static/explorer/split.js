// The split view: rows of a list open beside it, in #pane. The server renders the pane as part of the page (?m=704) and, for this
// script, alone from the message's own URL. Without JavaScript rows lead to the message's page, and ?m= works as a plain link.
// In a group of dead letters (data-split="group") the pane is for repairs: the page itself renders it, rows are links to ?m=704,
// and data-shown says which message is open if the address names none. The chips of a board open in the same way.
"use strict";
(() => {
  const split = document.querySelector("[data-split]");
  if (!split) return;
  const MESSAGE = /\/messages\/(.+)\/(\d+)$/;
  const WALK_MS = 120; // after the last key: rows that are only passed are not fetched
  const $ = (selector, within = document) => within.querySelector(selector);
  const pane = () => document.getElementById("pane");
  const query = () => new URLSearchParams(location.search);
  const isGroup = split.dataset.split === "group";
  const opened = () => query().get("m") ?? (split.dataset.shown || null);
  const isMessage = (link) => (isGroup ? new URLSearchParams(link.search).has("m") : MESSAGE.test(link.pathname));
  const links = () => [...split.querySelectorAll("table[data-rows] .row-link, .board-chip")].filter(isMessage);
  const linkOf = (m) => links().find((link) => keyOf(link) === m);
  const keysAreOff = (event) =>
    document.documentElement.dataset.shortcuts === "off" || event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]");
  const isTyping = (element) => element.matches?.("input:not([type=checkbox], [type=radio]), textarea, select");

  function keyOf(link) {
    if (isGroup) return new URLSearchParams(link.search).get("m");
    return link.pathname.match(MESSAGE).at(-1);
  }

  function withMessage(m) {
    const found = query();
    found.delete("body");
    if (m) found.set("m", m);
    else found.delete("m");
    return found;
  }

  const address = (found) => `${location.pathname}${found.size ? `?${found}` : ""}`;

  let at = location.search; // of what is shown

  function go(how, url) {
    history[how](null, "", url);
    at = location.search;
  }

  // --- opening, walking, closing --------------------------------------------------------------------------------------

  let request = null;

  async function fetchPane(path, found, options = {}) {
    request?.abort();
    const own = request = new AbortController();
    const headers = { "HX-Request": "true", "HX-Request-Type": "partial", "HX-Target": "aside#pane" };
    try {
      const response = await fetch(`${path}?${found}`, { ...options, headers, signal: own.signal });
      const text = await response.text();
      const ours = text.includes('id="pane"') && !own.signal.aborted;
      if (ours) await htmx.swap({ sourceElement: pane(), target: pane(), swap: "outerHTML", text, transition: false });
      else if (!own.signal.aborted) location.reload(); // signed out, or an error page
    } catch (error) {
      if (error.name !== "AbortError") document.dispatchEvent(new CustomEvent("htmx:error"));
    }
  }

  async function open(link, how) {
    const found = withMessage(keyOf(link));
    go(how, address(found));
    link.focus({ preventScroll: true });
    mark();
    await fetchPane(isGroup ? location.pathname : link.pathname, found);
    if (covers()) $("#pane-title")?.focus({ preventScroll: true });
  }

  function close() {
    const link = linkOf(opened());
    clearTimeout(walking);
    request?.abort();
    go("pushState", address(withMessage(null)));
    empty();
    (link ?? links()[0] ?? $("#messages"))?.focus();
  }

  function empty() {
    split.dataset.shown = "";
    pane().hidden = true;
    pane().replaceChildren();
    mark();
    pane().dispatchEvent(new CustomEvent("htmx:after:swap", { bubbles: true, detail: {} })); // live.js asks for the page again
  }

  const covers = () => getComputedStyle(pane()).position === "fixed"; // a sheet over the list

  function step(by) {
    const all = links();
    const at = all.indexOf(linkOf(opened()));
    const next = all[at < 0 ? 0 : at + by];
    if (next) open(next, "replaceState");
  }

  let marked = null;

  // Show which row is open; rows are replaced by live updates, so this is repeated after each.
  function mark() {
    const m = marked = opened();
    const all = links();
    for (const link of all) {
      const isOpen = keyOf(link) === m;
      link.closest("tr, .chip-item").classList.toggle("opened", isOpen);
      if (isOpen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const tried = $("#open-m"); // the message of "Try 1" in a group: without an open one, the first of the list
    if (tried) tried.value = m ?? (all[0] ? keyOf(all[0]) : "");
    const at = all.findIndex((link) => keyOf(link) === m);
    for (const button of pane().querySelectorAll("[data-pane-step]")) {
      button.hidden = false;
      button.disabled = at >= 0 && !all[at + Number(button.dataset.paneStep)];
    }
  }

  // --- events ---------------------------------------------------------------------------------------------------------

  function onClick(event) {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const within = (selector) => event.target.closest?.(selector);
    const stepper = within("[data-pane-step]");
    if (stepper) { step(Number(stepper.dataset.paneStep)); return; }
    if (within("[data-pane-close]")) { event.preventDefault(); close(); return; }
    const shown = within("[data-pane-link]");
    if (shown && pane().contains(shown)) { event.preventDefault(); follow(shown); return; }
    if (within('a[href="#repair-patch"]')) { event.preventDefault(); showRepair(); return; }
    const row = within("table[data-rows] tbody tr, .chip-item");
    const link = row && split.contains(row) && $(".row-link, .board-chip", row);
    const other = within("a, button, input, label, select, summary, textarea");
    if (!link || !isMessage(link) || (other && other !== link) || String(getSelection())) return;
    event.preventDefault();
    if (event.detail === 0) location.assign(fullPage(link)); // Enter
    else open(link, opened() ? "replaceState" : "pushState");
  }

  // Only the pane scrolls to the repair of all messages, so that the list, the buttons and the progress stay in view.
  async function showRepair() {
    if (!$("#repair-patch") && links()[0]) await open(linkOf(opened()) ?? links()[0], "pushState");
    const field = $("#repair-patch");
    if (!field) return;
    const part = field.closest("details");
    const top = (element) => element.getBoundingClientRect().top;
    part.open = true;
    pane().classList.remove("unasked");
    field.focus({ preventScroll: true });
    pane().scrollTop += top(part) - top(pane()) - $(".pane-head", pane()).offsetHeight;
    field.scrollIntoView({ block: "nearest" });
  }

  function fullPage(link) {
    if (isGroup) return link.dataset.full;
    const found = withMessage(null);
    return found.size ? `${link.pathname}?${found}` : link.pathname;
  }

  const messagePath = () => isGroup ? location.pathname : linkOf(opened())?.pathname ?? $("[data-pane-full]", pane()).pathname;

  function follow(link) { // another form of the body, or the message beside this one
    const found = new URLSearchParams(link.search);
    go("replaceState", address(found));
    fetchPane(messagePath(), found);
  }

  function onSubmit(event) {
    const form = event.target;
    const action = form.getAttribute("action") ?? ""; // not form.action: that is a button of this name
    if (!pane().contains(form) || !MESSAGE.test(action)) return;
    event.preventDefault();
    fetchPane(action, query(), { method: "POST", body: new FormData(form, event.submitter) });
  }

  let walking = 0;

  function onKey(event) {
    if (event.key === "Escape" && opened() && !event.defaultPrevented && !$("dialog[open]") && !isTyping(event.target)) {
      event.preventDefault();
      close();
      return;
    }
    if (keysAreOff(event) || isTyping(event.target)) return;
    const row = document.activeElement?.closest?.("tr, .chip-item");
    const link = row ? $(".row-link, .board-chip", row) : event.key === "o" && links()[0];
    if (event.key === "o" && link && isMessage(link)) open(link, opened() ? "replaceState" : "pushState");
    if (!["j", "k"].includes(event.key) || !opened() || !link || keyOf(link) === opened()) return;
    go("replaceState", address(withMessage(keyOf(link))));
    mark();
    clearTimeout(walking);
    walking = setTimeout(() => open(link, "replaceState"), WALK_MS);
  }

  // The keys j and k start from the open row, wherever the focus is; app.js moves the focus.
  function onKeyFirst(event) {
    if (!["j", "k"].includes(event.key) || !opened() || keysAreOff(event) || isTyping(event.target)) return;
    if (!document.activeElement?.closest("table[data-rows] tbody tr")) linkOf(opened())?.focus({ preventScroll: true });
  }

  function onBack() {
    if (location.search === at) return; // a link to a part of the page
    at = location.search;
    const m = opened();
    if (m === marked) return; // a link within the page
    const link = m && linkOf(m);
    if (m && !link) location.reload();
    else if (link) fetchPane(isGroup ? location.pathname : link.pathname, query());
    else empty();
    mark();
  }

  addEventListener("popstate", onBack);
  document.addEventListener("click", onClick);
  document.addEventListener("submit", onSubmit);
  document.addEventListener("keydown", onKeyFirst, true);
  document.addEventListener("keydown", onKey);
  document.addEventListener("htmx:after:swap", mark);
  mark();
})();
