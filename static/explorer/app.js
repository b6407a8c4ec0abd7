// Progressive enhancement of the pages: keyboard shortcuts, selection, copying. All pages work without it.
// Event listeners are delegated, so that they also apply to elements that htmx or the live feed inserts.
"use strict";
(() => {
  const root = document.documentElement;
  const $ = (selector, within = document) => within.querySelector(selector);
  const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Show controls that work only with JavaScript.
  const REVEALED = "[data-copy], [data-add-row], [data-dismiss]";
  const reveal = (within) => $$(REVEALED, within).forEach((e) => { e.hidden = false; });

  // A group of controls is one Tab stop: the arrow keys, Home and End move within it. What opens in it has stops of its own.
  const STOP = "a[href], button:not(:disabled), summary, input";
  const layer = (e) => e.closest("[popover], .pick-sheet");
  const stopsOf = (group) => $$(STOP, group).filter((e) => layer(e) === layer(group) && e.checkVisibility());

  function rove(group, chosen) {
    const stops = stopsOf(group);
    const focused = stops.find((e) => e === document.activeElement);
    const stop = chosen ?? focused ?? stops.find((e) => e.ariaCurrent) ?? stops[0];
    for (const e of stops) {
      if (e === stop) e.removeAttribute("tabindex");
      else e.tabIndex = -1;
    }
  }

  const roveAll = () => $$("[data-rove]").forEach((group) => rove(group));

  document.addEventListener("focusin", ({ target }) => { // also by a click
    const group = target.closest("[data-rove]");
    if (group && stopsOf(group).includes(target)) rove(group, target);
  });

  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };

  document.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    const group = event.target.closest?.(".pick-sheet, [data-rove]");
    if (!step || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || typing(event.target)) return;
    const menu = event.key === "ArrowDown" && event.target.matches?.(".pick > summary") && event.target.parentElement;
    if (menu) { // into the menu, which opens
      menu.open = true;
      event.preventDefault();
      $(`.pick-sheet :is(${STOP})`, menu)?.focus();
      return;
    }
    if (!group) return;
    const stops = group.matches("[data-rove]") ? stopsOf(group) : $$(STOP, group).filter((e) => e.checkVisibility());
    const at = stops.indexOf(event.target);
    if (at < 0) return;
    event.preventDefault();
    stops[Math.min(stops.length - 1, Math.max(0, at + step))].focus();
  });

  // --- rows: keys move the focus between them -------------------------------------------------------------------
  const LINK = ".row-link, [data-row-link]";
  const links = () => $$("[data-rows]").flatMap((list) => $$(LINK, list));
  const currentRow = () => document.activeElement?.closest?.("table[data-rows] tbody tr, ul[data-rows] > li");

  function move(step) {
    const all = links();
    if (!all.length) return;
    const row = currentRow();
    const at = row ? all.findIndex((link) => row.contains(link)) : -1;
    const next = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  const PARTS = "#messages, #receiver, #manual-consumer, #get, #found, #try, #move, #pane, #lesson, #entities, #held-locks, "
    + "#dead-letter-list, #operation-list, #tail-list, #ask";

  function focusPart(part) {
    if (!part) return;
    part.tabIndex = -1;
    part.focus({ preventScroll: true });
  }

  // --- selection ---------------------------------------------------------------------------------------------------
  const boxes = () => $$('input[name="numbers"][form="bulk"]');
  let lastSelected = null;

  function showSelection() {
    const all = boxes();
    const selected = all.filter((box) => box.checked);
    all.forEach((box) => box.closest("tr").classList.toggle("selected", box.checked));
    const whole = $("[data-select-all]");
    if (whole) {
      whole.checked = all.length > 0 && selected.length === all.length;
      whole.indeterminate = selected.length > 0 && selected.length < all.length;
    }
    const summary = $("[data-selection]");
    if (summary) summary.textContent = selected.length ? `${selected.length} selected` : "Select messages to act on them.";
    $$("[data-bulk-bar]").forEach((bar) => { bar.hidden = selected.length === 0; });
    $$("[data-bulk]").forEach((button) => {
      $("[data-label]", button).textContent = `${button.dataset.bulk} ${selected.length || "selected"}`;
      if (button.dataset.forbidden) return;
      const wanted = Number(button.dataset.exactly) || 0; // how many the action takes; 0: any number
      const disabled = wanted ? selected.length !== wanted : selected.length === 0;
      const loses = disabled && button === document.activeElement; // a disabled button cannot have the focus
      button.disabled = disabled;
      if (loses) focusPart(button.closest(PARTS));
    });
  }

  function select(box, checked, range) {
    const all = boxes();
    const from = range && lastSelected ? all.indexOf(lastSelected) : -1;
    const to = all.indexOf(box);
    box.checked = checked;
    if (from >= 0) all.slice(Math.min(from, to), Math.max(from, to) + 1).forEach((other) => { other.checked = checked; });
    lastSelected = box;
    showSelection();
  }

  document.addEventListener("click", (event) => {
    const target = event.target;
    if (target.matches?.('input[name="numbers"][form="bulk"]')) select(target, target.checked, event.shiftKey);
    const copy = target.closest?.("[data-copy], [data-copy-all], [data-copy-value]");
    if (copy) copyText(copy);
    const open = target.closest?.("[data-open]");
    if (open) { event.preventDefault(); show($(open.dataset.open)); }
    const close = target.closest?.("dialog [data-close]");
    if (close) { event.preventDefault(); close.closest("dialog").close(); }
    const add = target.closest?.("[data-add-row]");
    if (add) addRow(add.closest(".typed-rows"));
    const dismiss = target.closest?.("[data-dismiss]");
    if (dismiss) dismiss.closest(".notice").remove();
    for (const menu of $$("details.pick[open]")) if (!menu.contains(target)) menu.open = false;
    if (target instanceof HTMLDialogElement) target.close(); // the backdrop
    const stop = target.closest?.("[data-stop-search]");
    if (stop) { event.preventDefault(); stopSearch(stop); }
    const row = target.closest?.("table[data-rows] tbody tr");
    if (row && !event.defaultPrevented) openWholeRow(row, target);
  });

  // A click anywhere in a row follows its link; split.js opens those of a split view beside the list.
  function openWholeRow(row, target) {
    const isControl = target.closest("[data-split], a, button, input, label, select, textarea, details");
    if (!isControl && !String(getSelection())) $(LINK, row)?.click();
  }

  document.addEventListener("input", (event) => { // typing beside a radio button selects it
    const chosen = event.target.value && event.target.closest("[data-chooses]");
    if (chosen) $(chosen.dataset.chooses).checked = true;
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      boxes().forEach((box) => { box.checked = event.target.checked; });
      showSelection();
    }
  });

  document.addEventListener("vitrine:rows-left", () => showSelection());

  // Signing in again in another tab changes the CSRF token; the forms of this one are sent with the present token.
  document.addEventListener("submit", (event) => {
    const token = document.cookie.match(/(?:^|; )vitrine_csrf=([^;]+)/)?.[1];
    const field = $('[name="csrfmiddlewaretoken"]', event.target);
    if (token && field) field.value = token;
  }, true);

  // Filters and choices leave empty fields out of the address, and put all conditions into one parameter.
  document.addEventListener("formdata", ({ target: form, formData }) => {
    if (form.getAttribute("role") !== "search" && form.dataset.autoSubmit === undefined) return;
    const conditions = formData.getAll("q").map((text) => text.trim()).filter(Boolean).join(" ");
    if (conditions) formData.set("q", conditions);
    for (const name of new Set(formData.keys())) if (!formData.getAll(name).some((text) => text.trim())) formData.delete(name);
  });

  // The address follows a filter at once; of what is typed it has one entry in the history. A condition that is being typed is
  // not applied before Enter, only words are.
  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    const { typing } = ctx.sourceElement.dataset;
    if (ctx.sourceEvent?.type !== "input" || !typing) return;
    if (/[:=<>\x22]/.test($("#f-q").value)) event.preventDefault();
    ctx.target = $(`#${typing}`);
    ctx.request.headers["HX-Target"] = `div#${typing}`;
  });
  document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
    if (ctx.sourceElement.getAttribute("role") !== "search" || ctx.request.method !== "GET") return;
    const url = ctx.request.action;
    const typed = ctx.sourceEvent?.type === "input";
    if (!history.state?.htmx) history.replaceState({ htmx: true }, "", location.href);
    if (url === location.pathname + location.search) return;
    history[typed && history.state.typed ? "replaceState" : "pushState"]({ htmx: true, typed }, "", url);
  });

  // --- preferences: stored by the server, shown at once ---------------------------------------------------------------
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-preferences]");
    const { name, value } = event.submitter ?? {};
    if (!form || !name) return;
    event.preventDefault();
    fetch(form.action, { method: "POST", body: new FormData(form, event.submitter), redirect: "manual" });
    if (["system", "comfortable", "full"].includes(value) || (name === "shortcuts" && value === "on")) delete root.dataset[name];
    else root.dataset[name] = value;
    for (const one of $$(`[name="${name}"][aria-pressed]`, form)) one.ariaPressed = String(one.value === value);
  });

  const textOf = (button) => {
    if (button.dataset.copy) return $(button.dataset.copy).textContent;
    if (button.dataset.copyAll) return $$("div", $(button.dataset.copyAll)).map(pairText).filter(Boolean).join("\n");
    return sentText($(".value", button.parentElement));
  };

  function sentText(node) { // data-text: as sent, where the page shows invisible characters
    return node.dataset.text ?? node.textContent.trim();
  }

  function pairText(pair) {
    const [name, value] = [$("dt", pair), $(".value", pair)];
    return name && value ? `${sentText(name.firstElementChild)}: ${sentText(value)}` : "";
  }

  async function copyText(button) {
    const text = textOf(button);
    const copied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copyByCommand(text);
    if (!copied) return;
    if ("copyValue" in button.dataset) {
      button.classList.add("copied");
      setTimeout(() => button.classList.remove("copied"), 1500);
    } else flash(button, "Copied");
    announceCopy(`Copied ${text.length.toLocaleString("en")} characters`);
  }

  function copyByCommand(text) { // over plain HTTP there is no clipboard
    const area = document.createElement("textarea");
    const focused = document.activeElement;
    area.value = text;
    area.className = "visually-hidden";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focused?.focus({ preventScroll: true });
    return done;
  }

  function announceCopy(words) {
    const said = $("#live-said");
    if (said) said.textContent = words;
  }

  function flash(button, word) {
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

  // --- confirmations: a swap into this dialog opens it; closing empties it --------------------------------------------------
  const confirmation = document.createElement("dialog");
  confirmation.id = "ask";
  confirmation.setAttribute("aria-labelledby", "ask-title");
  confirmation.addEventListener("close", () => confirmation.replaceChildren());
  document.body.append(confirmation);

  function openConfirmation() {
    if (!confirmation.childElementCount || confirmation.open) return;
    closeMenu(); // to whose button the focus returns
    confirmation.showModal();
  }

  // --- search: Stop keeps the rows -------------------------------------------------------------------------------------------
  function stopSearch(stop) {
    const more = stop.closest("#more");
    const link = stop.cloneNode();
    link.removeAttribute("data-stop-search");
    link.textContent = "Continue";
    Object.entries({ get: link.getAttribute("href"), target: "#more", swap: "outerHTML", "push-url": "false" })
      .forEach(([name, value]) => link.setAttribute(`hx-${name}`, value));
    const row = more.cloneNode(true); // without its request: an answer under way finds no target
    $$("[hx-get]", row).forEach((loader) => loader.remove());
    $("[data-stop-search]", row).replaceWith(link);
    more.replaceWith(row);
    htmx.process(row);
    link.focus();
  }

  // --- the field of conditions: suggestions; Backspace in the empty field removes the last condition --------------------------
  const suggestions = () => $$("#f-suggestions > li");
  let marked; // the text of the marked suggestion: an answer to an earlier key can bring it again

  function mark(option) {
    const input = $("#f-q");
    marked = option?.dataset.text;
    if (!input) return;
    input.ariaExpanded = String(suggestions().length > 0);
    for (const one of suggestions()) one.ariaSelected = String(one === option);
    if (option) input.setAttribute("aria-activedescendant", option.id);
    else input.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  }

  function closeSuggestions() {
    const open = suggestions().length > 0;
    if (open) $("#f-suggestions").replaceChildren();
    mark(null);
    return open;
  }

  // The suggestion takes the place of the last word. A complete condition is applied; of another one, the value is asked for.
  function choose(option) {
    const input = $("#f-q");
    const { text, applies } = option.dataset;
    input.value = input.value.replace(/(?:[^\s"]|"[^"]*"?)*$/, () => text);
    closeSuggestions();
    input.focus();
    if (applies !== undefined) input.form.requestSubmit();
    else if (/[:.]$/.test(text)) input.dispatchEvent(new Event("suggest"));
  }

  function walkSuggestions(by) {
    const all = suggestions();
    if (!all.length) return $("#f-q").dispatchEvent(new Event("suggest"));
    const at = all.findIndex((one) => one.ariaSelected === "true");
    mark(all[at < 0 ? (by > 0 ? 0 : all.length - 1) : (at + by + all.length) % all.length]);
  }

  document.addEventListener("keydown", (event) => {
    if (event.target.id !== "f-q") return;
    const chosen = suggestions().find((one) => one.ariaSelected === "true");
    const chips = $$("[data-remove-chip]", event.target.closest(".filter-box"));
    if (event.key === "ArrowDown" || event.key === "ArrowUp") walkSuggestions(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" && chosen) choose(chosen);
    else if (event.key === "Enter" || event.key === "Tab") return closeSuggestions();
    else if (event.key === "Escape" && closeSuggestions()) event.stopImmediatePropagation();
    else if (event.key === "Backspace" && !event.target.value && chips.length) chips.at(-1).click();
    else return;
    event.preventDefault();
  });
  document.addEventListener("pointerdown", (event) => { // the field keeps the focus, and with it the suggestions
    const option = event.target.closest?.("#f-suggestions > li");
    if (option) { event.preventDefault(); choose(option); }
  });
  document.addEventListener("mousedown", (event) => event.target.closest?.("#f-suggestions") && event.preventDefault());
  document.addEventListener("htmx:before:morph:attr", (event) => { // a live update knows of no suggestions
    const { attrName } = event.detail;
    if (event.target.id === "f-q" && ["aria-expanded", "aria-activedescendant"].includes(attrName)) event.preventDefault();
  });

  // --- board: the arrow keys lead from chip to chip, within a lane and to the next one that has any ---------------------------
  document.addEventListener("keydown", (event) => {
    const item = event.target.closest?.(".chip-item");
    if (!item || !event.key.startsWith("Arrow") || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const by = ["ArrowRight", "ArrowDown"].includes(event.key) ? 1 : -1;
    event.preventDefault();
    const next = ["ArrowLeft", "ArrowRight"].includes(event.key) ? chipBeside(item, by) : chipInLane(item, by);
    if (next) $(".board-chip", next).focus();
  });

  function chipInLane(item, by) {
    const all = $$(".chip-item", item.closest(".lane"));
    return all[all.indexOf(item) + by];
  }

  function chipBeside(item, by) {
    const lanes = $$(".lane", item.closest("[data-board]")).filter((lane) => $(".chip-item", lane));
    const lane = lanes[lanes.indexOf(item.closest(".lane")) + by];
    const top = item.getBoundingClientRect().top;
    const distance = (one) => Math.abs(one.getBoundingClientRect().top - top);
    return lane && $$(".chip-item", lane).reduce((best, one) => (distance(one) < distance(best) ? one : best));
  }

  // --- time bar: a slider says which instant it stands for, and goes there when it is let go of -------------------------------
  document.addEventListener("input", (event) => {
    const { timeSlider: way, near, reach } = event.target.dataset ?? {};
    if (!way) return;
    const share = event.target.value / event.target.max;
    const seconds = near * Math.expm1(Math.log1p(reach / near) * share); // as in explorer/time_bar/time_scale.py
    const [minutes, rest] = [Math.floor(seconds / 60), seconds < 10 ? seconds.toFixed(1) : Math.floor(seconds % 60)];
    const text = `${minutes ? `${minutes} min ` : ""}${rest} s`;
    $("output", event.target.form).textContent = way === "ago" ? `${text} ago` : `in ${text}`;
  });
  document.addEventListener("pointerup", (event) => {
    const slider = event.target.closest?.("[data-time-slider]");
    if (slider && Number(slider.value)) setTimeout(() => slider.form.requestSubmit()); // after its last input event
  });

  // --- keys ----------------------------------------------------------------------------------------------------------
  let prefix = "";
  let prefixEnds = 0;
  const typing = (e) => e.matches?.("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

  // Of several controls with one key, the one nearest to the focus: in its row, its form, its section, or the first of the page.
  function nearest(selector) {
    for (let within = document.activeElement; within; within = within.parentElement) {
      const found = $$(selector, within).find((e) => !e.disabled);
      if (found) return found;
    }
    return null;
  }

  function follow(selector) {
    const found = nearest(selector);
    if (!found) return false;
    found.click();
    if (found.matches("summary")) $("button, a", found.parentElement)?.focus(); // a menu that opened
    return true;
  }

  function openRow() { // a list with a split view opens its rows beside it: split.js
    if ($("[data-split]")) return false;
    const row = currentRow();
    const link = row ? $(LINK, row) : links()[0];
    link?.click();
    return Boolean(link);
  }

  function compare() { // two selected rows, or the selected one and the current one
    const row = currentRow();
    const box = row && $('input[name="numbers"]', row);
    if (box && !box.checked && boxes().filter((one) => one.checked).length === 1) select(box, true, false);
    return follow('[data-bulk="Compare"]');
  }

  // A dialog; what is in one with data-from is fetched when it opens first.
  async function show(dialog) {
    const { from } = dialog.dataset;
    if (from && !dialog.childElementCount) await htmx.ajax("GET", from, { target: dialog, swap: "innerHTML" });
    dialog.showModal();
  }

  const shortcuts = {
    "?": () => { show($("#keys")); return true; },
    j: () => { move(1); return true; },
    k: () => { move(-1); return true; },
    o: openRow,
    "[": () => follow('#pane [rel="prev"]') || follow('[rel="prev"]'),
    "]": () => follow('#pane [rel="next"]') || follow('[rel="next"]'),
    p: () => follow("#live"),
    x: () => selectRow(false),
    X: () => selectRow(true),
    c: compare,
  };

  function focusOn(key) {
    const found = $$(`[data-focus-key~="${CSS.escape(key)}"]`).find((e) => e.offsetParent !== null);
    if (found) { found.focus(); found.select?.(); }
    return Boolean(found);
  }

  function selectRow(range) {
    const row = currentRow();
    const box = row && $('input[name="numbers"]', row);
    if (box) select(box, range ? true : !box.checked, range);
    return Boolean(box);
  }

  function closeMenu() {
    const menu = $("details.pick[open]");
    if (menu) { menu.open = false; $("summary", menu).focus(); }
    return Boolean(menu);
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "k" && (event.ctrlKey || event.metaKey) && focusOn("/")) {
      event.preventDefault();
      return;
    }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && follow('[data-keys="Ctrl+Enter"]')) {
      event.preventDefault();
      return;
    }
    if (event.key === "Escape") {
      if (!closeMenu() && typing(event.target)) event.target.blur();
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
    if (shortcuts[keys]?.() || focusOn(keys) || follow(`[data-keys="${CSS.escape(keys)}"]`)) event.preventDefault();
  });

  // --- htmx: after a swap, and failed requests ---------------------------------------------------------------------
  function notice(text) {
    const line = document.createElement("div");
    line.className = "notice problem";
    line.textContent = text;
    $("#notices")?.replaceChildren(line);
  }

  // Notices of success leave when their animation ends.
  document.addEventListener("animationend", (event) => {
    if (event.animationName === "notice-leaves") event.target.remove();
  });

  // Live regions announce what is added to them. So what a page brings with it is said once more.
  function announceNotices() {
    const text = $$("#notices .notice").map((one) => one.textContent.trim().replace(/\s+/g, " ")).join(" ");
    if (text) setTimeout(() => { $("#notices-said").textContent = text; }, 200);
  }

  // The focused element may be gone after a swap (a resubmitted row, a settled message): focus the new part instead of the body.
  // An answer swaps several parts: the first one says where the focus was.
  let focusedPart = "";
  document.addEventListener("htmx:before:swap", () => {
    focusedPart = document.activeElement?.closest(PARTS)?.id ?? focusedPart;
  });
  document.addEventListener("htmx:after:swap", () => {
    reveal(document);
    roveAll();
    showSelection();
    openConfirmation();
    mark(suggestions().find((one) => one.dataset.text === marked));
    if (focusedPart && document.activeElement === document.body) focusPart(document.getElementById(focusedPart));
    focusedPart = "";
  });
  document.addEventListener("htmx:error", () =>
    notice("No response from the server. The action may not have been performed; reload the page before you retry."));
  document.addEventListener("htmx:response:error", (event) => {
    if (event.detail.ctx?.response?.raw?.status !== 500) return;
    notice("Internal server error. You can retry; see the server log for details.");
  });

  reveal(document);
  roveAll();
  showSelection();
  announceNotices();
  // after a rejected form: focus the first invalid field
  if (document.activeElement === document.body) $('[aria-invalid="true"]')?.focus();
})();
