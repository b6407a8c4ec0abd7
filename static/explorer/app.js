// What the pages do beyond plain HTML: keys, selection, copying. Everything here is a comfort; nothing needs it.
// Listeners are delegated, so that what htmx or the live feed puts in works without being told.
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Controls that only make sense with JavaScript are hidden until now.
  const reveal = (within) => $$("[data-copy], [data-add-row], [data-open]", within).forEach((e) => { e.hidden = false; });

  // Where there is no room for all tabs, the one that is open is among those that show.
  const showOpenTab = (within) => $$(".tabs a[aria-current]", within).forEach((tab) => {
    const tabs = tab.closest(".tabs");
    const hidden = tab.getBoundingClientRect().right - tabs.getBoundingClientRect().right;
    if (hidden > 0) tabs.scrollLeft += hidden + 16;
  });

  // --- rows: one of them has the focus, keys move it -------------------------------------------------------------
  const links = () => $$("table[data-rows] .row-link");
  const currentRow = () => document.activeElement?.closest?.("table[data-rows] tbody tr");

  function move(step) {
    const all = links();
    if (!all.length) return;
    const row = currentRow();
    const at = row ? all.findIndex((link) => row.contains(link)) : -1;
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  // --- selection ---------------------------------------------------------------------------------------------------
  const boxes = () => $$('input[name="numbers"][form="bulk"]');
  let lastTicked = null;

  function tellSelection() {
    const all = boxes();
    const ticked = all.filter((box) => box.checked);
    all.forEach((box) => box.closest("tr").classList.toggle("selected", box.checked));
    const whole = $("[data-select-all]");
    if (whole) {
      whole.checked = all.length > 0 && ticked.length === all.length;
      whole.indeterminate = ticked.length > 0 && ticked.length < all.length;
    }
    const told = $("[data-selection]");
    if (told) told.textContent = ticked.length ? `${ticked.length} selected` : "Select messages to act on them.";
    $$("[data-bulk]").forEach((button) => {
      $("[data-label]", button).textContent = `${button.dataset.bulk} ${ticked.length || "selected"}`;
      if (!button.dataset.forbidden) button.disabled = ticked.length === 0;
    });
  }

  function tick(box, checked, range) {
    const all = boxes();
    const from = range && lastTicked ? all.indexOf(lastTicked) : -1;
    const to = all.indexOf(box);
    box.checked = checked;
    if (from >= 0) all.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((other) => { other.checked = checked; });
    lastTicked = box;
    tellSelection();
  }

  document.addEventListener("click", (event) => {
    const target = event.target;
    if (target.matches?.('input[name="numbers"][form="bulk"]')) tick(target, target.checked, event.shiftKey);
    const copy = target.closest?.("[data-copy]");
    if (copy) copyText(copy);
    const open = target.closest?.("[data-open]");
    if (open) $(open.dataset.open).showModal();
    const close = target.closest?.("dialog [data-close]");
    if (close) { event.preventDefault(); close.closest("dialog").close(); }
    const add = target.closest?.("[data-add-row]");
    if (add) addRow(add.closest(".typed-rows"));
    const menu = $("details:is(.menu, .pick)[open]");
    if (menu && !menu.contains(target)) menu.open = false;
    if (target instanceof HTMLDialogElement) target.close(); // the backdrop
  });

  document.addEventListener("input", (event) => { // what is typed beside a choice makes it
    const chosen = event.target.value && event.target.closest("[data-chooses]");
    if (chosen) $(chosen.dataset.chooses).checked = true;
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      boxes().forEach((box) => { box.checked = event.target.checked; });
      tellSelection();
    }
  });

  async function copyText(button) {
    const text = $(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch { // plain HTTP has no clipboard: select the text, so that the person's own key copies it
      getSelection().selectAllChildren($(button.dataset.copy));
      return;
    }
    say(button, "Copied");
  }

  function say(button, word) {
    const text = button.lastChild;
    const before = text.textContent;
    text.textContent = word;
    setTimeout(() => { text.textContent = before; }, 1500);
  }

  function addRow(within) {
    const rows = $("[data-rows-to-add]", within);
    const row = rows.lastElementChild.cloneNode(true);
    const number = rows.children.length + 1;
    $$("input, select", row).forEach((field) => {
      field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+$/, number));
      if (field.matches("input")) field.value = "";
      else field.value = "string";
    });
    rows.append(row);
    $("input", row).focus();
  }

  // --- questions: a swap into this dialog opens it; closed, it is empty again -----------------------------------------------
  const question = document.createElement("dialog");
  question.id = "ask";
  question.setAttribute("aria-labelledby", "ask-title");
  question.addEventListener("close", () => question.replaceChildren());
  document.body.append(question);

  function ask() {
    if (question.childElementCount && !question.open) question.showModal();
  }

  // --- keys ----------------------------------------------------------------------------------------------------------
  let prefix = "";
  let prefixEnds = 0;
  const typing = (e) => e.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

  function follow(selector) {
    const found = $(selector);
    if (found) found.click();
    return Boolean(found);
  }

  const acts = {
    "?": () => { $("#keys").showModal(); return true; },
    "/": () => focusOn("/"),
    f: () => focusOn("f"),
    j: () => { move(1); return true; },
    k: () => { move(-1); return true; },
    "[": () => follow('[rel="prev"]'),
    "]": () => follow('[rel="next"]'),
    p: () => follow("#live"),
    x: () => tickRow(false),
    X: () => tickRow(true),
  };

  function focusOn(key) {
    const found = $$(`[data-focus-key="${CSS.escape(key)}"]`).find((e) => e.offsetParent !== null);
    if (found) { found.focus(); found.select?.(); }
    return Boolean(found);
  }

  function tickRow(range) {
    const row = currentRow();
    const box = row && $('input[name="numbers"]', row);
    if (box) tick(box, range ? true : !box.checked, range);
    return Boolean(box);
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      const menu = $("details:is(.menu, .pick)[open]");
      if (menu) { menu.open = false; $("summary", menu).focus(); }
      else if (typing(event.target)) event.target.blur();
      return;
    }
    const off = root.dataset.shortcuts === "off" || event.ctrlKey || event.metaKey || event.altKey;
    if (off || typing(event.target) || $("dialog[open]")) return;
    const keys = prefix && event.timeStamp < prefixEnds ? `${prefix} ${event.key}` : event.key;
    prefix = "";
    if (event.key === "g" && keys === "g") {
      [prefix, prefixEnds] = ["g", event.timeStamp + 1500];
      return;
    }
    if (acts[keys]?.() || follow(`[data-keys="${CSS.escape(keys)}"]`)) event.preventDefault();
  });

  // --- htmx: what a swap brings in, and failures without an answer -------------------------------------------------
  function notice(text) {
    const line = document.createElement("div");
    line.className = "notice problem";
    line.textContent = text;
    $("#notices")?.replaceChildren(line);
  }

  // What had the focus may be gone after a swap (a resubmitted row, a settled message): the new part takes it, not the body.
  let focusedPart = "";
  document.addEventListener("htmx:before:swap", () => {
    focusedPart = document.activeElement?.closest("#messages, #receiver, #manual-consumer, #get, #found, #audit, #try, #move")?.id ?? "";
  });
  document.addEventListener("htmx:after:swap", () => {
    reveal(document);
    showOpenTab(document);
    tellSelection();
    ask();
    const part = focusedPart && document.activeElement === document.body && document.getElementById(focusedPart);
    if (part) { part.tabIndex = -1; part.focus({ preventScroll: true }); }
    focusedPart = "";
  });
  document.addEventListener("htmx:error", () =>
    notice("No response from the server. The action may not have been performed; reload the page before you retry."));
  document.addEventListener("htmx:response:error", (event) => {
    if (event.detail.ctx?.response?.raw?.status !== 500) return;
    notice("Internal server error. You can retry; see the server log for details.");
  });

  reveal(document);
  showOpenTab(document);
  tellSelection();
  // a form that came back: to what is wrong in it
  if (document.activeElement === document.body) $('[aria-invalid="true"]')?.focus();
})();
