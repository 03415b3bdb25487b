/* The prediction forming: the likeliest next token seen from each layer, and how good it is. */
"use strict";

const depthLens = (page) => {
  const { $, el, choice, check, sample } = Dom;
  const { data, state, charts, lines } = page;
  const { runs, text, shown, spelled, selection, rowName, title, help } = data;
  const { short, number } = Numbers;
  const MOST_COLUMNS = 32;
  const tables = runs.map(() => null);
  const percent = (p) => (p === null || p === undefined ? "–" : `${short(100 * p, 3)} %`);

  // ---- what a cell has to say

  function trueWords(t, row, token) {
    if ((t.target_pieces[token] ?? null) === null) return "The true next token is not known.";
    const at = (name) => t.by_layer[name]?.[row]?.[token] ?? null;
    const parts = [["lens_rank", "rank", (v) => number(v, 0)], ["lens_loss", "loss", short],
      ["lens_probability", "probability", percent]]
      .filter(([name]) => at(name) !== null)
      .map(([name, word, form]) => `${word} ${form(at(name))}`);
    return `True: ${spelled(t.target_pieces[token])}${parts.length ? `: ${parts.join(", ")}` : ""}`;
  }

  /** Whether the likeliest but `at` is the true token: by rank, as pieces may look alike. */
  function isTrue(t, row, token, at) {
    const rank = t.by_layer.lens_rank?.[row]?.[token] ?? null, target = t.target_pieces[token];
    if ((target ?? null) === null) return false;
    return rank === null ? t.top[row][token][at][0] === target : rank === at + 1;
  }

  function cellWords(run, row, token) {
    const t = text(run), top = t.top?.[row]?.[token] || [];
    const most = Math.max(1e-9, ...top.map(([, p]) => p));
    return [el("div", { class: "tip-x" },
      `after “${spelled(t.pieces[token])}”, seen ${rowName(row)}`),
    ...top.map(([piece, p], at) => el("div", { class: isTrue(t, row, token, at)
      ? "likely true" : "likely" },
      el("span", { class: "likely-piece" }, shown(piece)),
      el("span", { class: "likely-bar", style: `--share: ${((100 * p) / most).toFixed(1)}%` }),
      el("span", { class: "tip-value" }, percent(p)))),
    el("div", { class: "tip-true" }, trueWords(t, row, token))];
  }

  // ---- the table

  function cell(t, row, token) {
    const [best] = t.top?.[row]?.[token] || [], settled = t.effective_depth?.[token];
    const names = [best && isTrue(t, row, token, 0) && "true",
      row === settled && "settles", row >= settled && "settled"].filter(Boolean);
    return el("td", { class: names.join(" ") || null, tabindex: -1, "data-row": row,
      "data-token": token, style: best ? `--share: ${(100 * best[1]).toFixed(1)}%` : null },
    best ? shown(best[0], 12) : "–");
  }

  function tableOf(run, i) {
    const t = text(run), tokens = selection(i).slice(0, MOST_COLUMNS);
    const head = el("tr", {}, el("th", { scope: "col" }, "seen from"), tokens.map((token) =>
      el("th", { scope: "col", title: `token ${token + 1}` }, shown(t.pieces[token], 12))));
    const rows = Array.from({ length: run.n_layer + 1 }, (_, row) => el("tr", { "data-row": row },
      el("th", { scope: "row" }, el("button", { type: "button", tabindex: -1,
        "aria-label": `choose: ${rowName(row)}`, onclick: () => page.goTo(row / run.n_layer) },
      row ? `after ${row}` : "start")), tokens.map((token) => cell(t, row, token))));
    const foot = el("tr", {}, el("th", { scope: "row" }, "true"),
      tokens.map((token) => el("td", {}, shown(t.target_pieces[token], 12))));
    rows[0].querySelector("td")?.setAttribute("tabindex", 0);
    return el("table", { class: "lens", role: "grid", onkeydown: walk,
      "aria-label": `Likeliest next tokens by layer, ${run.label}` },
    el("thead", {}, head), el("tbody", {}, rows), el("tfoot", {}, foot));
  }

  /** The arrows walk from cell to cell, as in a spreadsheet; one stop for the tabulator. */
  function walk(event) {
    const from = event.target.closest("td[data-row]");
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1],
      ArrowRight: [0, 1] }[event.key] || [0, 0];
    if (!from || (!down && !right)) return;
    event.preventDefault();
    const line = from.parentNode.parentNode.children[from.parentNode.rowIndex - 1 + down];
    const to = line?.children[from.cellIndex + right];
    if (to?.tagName !== "TD") return;
    to.focus();
  }

  function explain(event, run) {
    const td = event.target.closest?.("td[data-row]");
    if (!td) { page.tip.hide(); return; }
    page.tip.show(cellWords(run, +td.dataset.row, +td.dataset.token), () => {
      const { right, top, bottom } = td.getBoundingClientRect();
      return [right - 10, bottom - 10, top];
    });
  }

  function column(run, i) {
    const chosen = selection(i).length, hide = () => page.tip.hide();
    const head = el("h3", {}, sample(run.style), run.label);
    if (!chosen) return el("div", { class: "column" }, head, Dom.empty("No token is selected."));
    tables[i] = Dom.oneStop(tableOf(run, i), "td[data-row]");
    return el("div", { class: "column" }, head,
      el("div", { class: "scroll", onmouseover: (event) => explain(event, run),
        onfocusin: (event) => explain(event, run), onmouseleave: hide, onfocusout: hide },
      tables[i]),
      chosen > MOST_COLUMNS ? el("p", { class: "note" },
        `The first ${MOST_COLUMNS} of ${chosen} selected tokens are in the table.`) : null);
  }

  function markRow() {
    runs.forEach((run, i) => tables[i]?.querySelectorAll("tbody tr").forEach((tr, row) =>
      tr.classList.toggle("chosen", state.depth < 1 && row === data.row(run))));
  }

  // ---- the curve

  const named = () => data.known("by_layer").filter((name) => name.startsWith("lens_")
    && runs.some((run) => text(run).by_layer[name]?.some((row) => data.finite(row).length)));
  const options = () => ({ source: "by_layer", name: state.lens.name, hidden: new Set(),
    mode: state.lens.mode, log: state.lens.log, fraction: state.fraction });

  function drawChart() {
    if (!state.lens.name) { charts.lens.show({ lines: [], empty: "No lens was traced." }); return; }
    const shownNow = lines.chart(options());
    $("lens-title").textContent = page.capital(title(state.lens.name));
    charts.lens.show(shownNow);
    $("lens-chart-note").textContent =
      [lines.words(options(), shownNow.lines), help(state.lens.name)].filter(Boolean).join(" ");
  }

  function controls() {
    const set = (changes) => { Object.assign(state.lens, changes); drawChart(); };
    const words = { lens_loss: "loss", lens_rank: "rank", lens_probability: "probability",
      lens_kl: "divergence" };
    const names = named();
    const which = choice("seen from each layer", names.map((name) =>
      [name, words[name] || title(name)]), state.lens.name, (name) => set({ name }));
    which.querySelectorAll("label").forEach((label, i) => { label.title = help(names[i]); });
    $("lens-controls").replaceChildren(...(names.length ? [which,
      choice("lines", [["mean", "mean"], ["tokens", "each token"]], state.lens.mode,
        (mode) => set({ mode })),
      el("div", { class: "checks" }, check("log y axis", state.lens.log, (log) => set({ log })),
        page.shareCheck())]
      : []));
  }

  function tablesAnew() {
    page.tip.hide();
    tables.fill(null);
    $("lens-tables").replaceChildren(...runs.map(column));
    markRow();
    drawChart();
  }

  $("lens-note").replaceChildren("A column per selected token, a row per layer. A cell shows the "
    + "likeliest next token if the model ended there; a stronger colour is a higher probability. ",
  el("span", { class: "key-true" }, "✓"), ": it is the true next token. ",
  el("span", { class: "key-settles" }), ": from here on it stays the final one (the effective "
    + "depth). Point at a cell, or use the arrow keys, for more.");
  charts.lens = new Charts.LineChart($("lens-chart"),
    { height: 300, about: "The prediction's quality over depth" });
  page.on(["text"], () => {
    const names = named();
    if (!names.includes(state.lens.name)) state.lens.name = names[0] || null;
    controls();
    tablesAnew();
  });
  page.on(["selection"], tablesAnew);
  page.on(["axis"], drawChart);
  page.on(["depth"], () => { markRow(); page.remark(charts.lens); });
};
