// Reads single values from a chart: under the pointer, or with the arrow keys. The values are those of the table of numbers.
(() => {
  "use strict";
  let at = null; // the bucket that is read, in all charts of its group; null: none
  let reading = null; // the plot that is read

  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const shownSvg = (plot) => all("svg.chart", plot).find((svg) => svg.getClientRects().length) || plot.querySelector("svg.chart");
  const group = (plot) => plot.closest(".answer") || document;

  // The values of a bucket: those that the plot names, or of the table of numbers.
  function values(plot, bucket) {
    if (plot.dataset.readings !== undefined) {
      const [titles, ...lines] = plot.dataset.readings.split("\n").map((line) => line.split("\t"));
      const line = lines[bucket];
      return line ? line.map((text, i) => (i ? `${titles[i]} ${text}` : text)).join(" · ") : "";
    }
    const table = document.getElementById("numbers");
    const rows = table.tBodies[0].rows;
    const row = rows[rows.length - 1 - bucket];
    if (!row) return "";
    const heads = all("th[data-column]", table);
    const parts = plot.dataset.columns.split(" ").map((name) => {
      const place = heads.findIndex((head) => head.dataset.column === name);
      return `${heads[place].textContent.trim()} ${row.cells[place + 1].textContent.trim()}`;
    });
    return `${row.cells[0].textContent.trim().replace(/\s+/g, " ")} · ${parts.join(" · ")}`;
  }

  function draw() {
    for (const plot of all(".plot")) {
      const bucket = reading && group(plot) === group(reading) ? at : null;
      for (const svg of all("svg.chart", plot)) {
        const { left, slot, top, bottom } = svg.dataset;
        const x = Number(left) + (bucket + 0.5) * Number(slot);
        const line = bucket === null ? "" : `M${x.toFixed(1)} ${top}V${bottom}`;
        const cross = svg.querySelector(".cross");
        if (cross.getAttribute("d") !== line) cross.setAttribute("d", line);
      }
      const readout = plot.querySelector(".readout");
      if (!("rest" in readout.dataset)) readout.dataset.rest = readout.textContent;
      const text = bucket === null ? readout.dataset.rest : values(plot, bucket);
      if (readout.textContent !== text) readout.textContent = text;
      const live = bucket !== null && plot === reading ? "polite" : "off";
      if (readout.getAttribute("aria-live") !== live) readout.setAttribute("aria-live", live);
    }
  }

  function read(bucket, plot = null, isSpoken = true) {
    at = bucket;
    reading = plot;
    draw();
    if (!isSpoken && plot) plot.querySelector(".readout").setAttribute("aria-live", "off");
  }

  document.addEventListener("pointermove", (event) => {
    const plot = event.target.closest?.(".plot");
    if (!plot) {
      if (at !== null && !document.activeElement?.matches(".plot")) read(null);
      return;
    }
    const svg = shownSvg(plot);
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width - Number(svg.dataset.left);
    const bucket = Math.floor(x / Number(svg.dataset.slot));
    const isInside = bucket >= 0 && bucket < Number(svg.dataset.buckets);
    read(isInside ? bucket : null, isInside ? plot : null, false);
  });

  document.addEventListener("keydown", (event) => {
    const plot = document.activeElement?.closest(".plot");
    if (!plot || event.altKey || event.ctrlKey || event.metaKey) return;
    const last = Number(shownSvg(plot).dataset.buckets) - 1;
    const from = at ?? last + 1;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape" && at !== null) read(null);
    else if (to === undefined) return;
    else read(Math.min(last, Math.max(0, to)), plot);
    event.preventDefault();
  });

  document.addEventListener("focusout", (event) => {
    if (event.target.matches?.(".plot")) read(null);
  });

  // A choice takes effect at once; a custom range, when both of its ends are known.
  function submitChoice(input) {
    const form = input.closest("[data-auto-submit]");
    if (!form) return;
    const { namespace, path, start, end } = form.elements;
    if (input === namespace && path) path.value = ""; // a queue of the namespace before
    if ((input === start || input === end) && !(start.value && end.value)) return;
    form.requestSubmit();
  }

  document.addEventListener("change", ({ target }) => submitChoice(target));

  // A choice made before this script ran takes effect now. Browsers restore none, as the forms have no autocompletion. A reset
  // copy has the values that the page was sent with, as the browser understands them.
  function earlyChoice(form) {
    const inputs = (of) => all("select, input", of);
    const copy = form.cloneNode(true);
    copy.reset();
    const sent = inputs(copy);
    const typing = (input) => !input.options && input === document.activeElement; // its change event is to come
    return inputs(form).find(
      (input, i) => (input.value !== sent[i].value || input.checked !== sent[i].checked) && !typing(input)
    );
  }
  const early = all("[data-auto-submit]").map(earlyChoice).find(Boolean);
  if (early) submitChoice(early);

  // The details of a card are loaded when they are opened, and again if the card is replaced meanwhile.
  const load = (details) => {
    const lazy = details.querySelector(":scope > [data-lazy]");
    if (lazy) htmx.trigger(lazy, "details");
  };
  document.addEventListener("toggle", (event) => event.target.matches?.("details.more[open]") && load(event.target), true);
  document.addEventListener("htmx:after:swap", () => all("details.more[open]").forEach(load));

  // A live update replaces the charts: the texts at rest are the new ones, and the line is drawn again.
  const changing = document.getElementById("insights") || document.getElementById("report");
  if (changing) {
    new MutationObserver((changes) => {
      for (const { target } of changes) {
        const readout = (target.closest ? target : target.parentElement)?.closest?.(".readout");
        if (readout && at === null) readout.dataset.rest = readout.textContent;
      }
      if (at !== null) draw();
    }).observe(changing, { childList: true, subtree: true, characterData: true });
  }
})();
