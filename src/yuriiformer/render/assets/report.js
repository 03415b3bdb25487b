/* The report page: fills the sections of report.html from the payload. */
"use strict";

const report = (() => {
  const { el, sample, number, lineStyle, LineChart, intervalChart } = Charts;
  const { palette, payload } = Charts.readData();
  Object.assign(Charts.palette, palette);
  const $ = (id) => document.getElementById(id);
  const loss = (value) => number(value, 4);
  const signed = (value) => (value > 0 ? "+" : value < 0 ? "−" : "±") + number(Math.abs(value), 4);
  const charts = {};
  const state = { group: 0, loss: "val", x: "step", sigma: null, lines: "mean", log: false, cut: true,
    hidden: new Set(), zoom: null };
  const group = () => payload.groups[state.group];
  const titled = (g) => g.name || "All arms";

  // ---- pieces of page

  /** One of several, as radio buttons that look like one bar: the keyboard works by itself. */
  function choice(title, options, current, pick) {
    const name = `choice-${title.replace(/\W/g, "-")}-${choice.count = (choice.count || 0) + 1}`;
    return el("fieldset", { class: "choice", "data-name": title }, el("legend", {}, title),
      el("div", { class: "segments" }, options.map(([value, text]) => el("label", {},
        el("input", { type: "radio", name, value, checked: value === current,
          onchange: () => pick(value) }), el("span", {}, text)))));
  }

  function pickFrom(title, groups, pick) {
    const options = (list) => list.map(([value, text]) => el("option", { value }, text));
    return el("label", { class: "picker" }, el("span", {}, title),
      el("select", { onchange: (event) => pick(event.target.value) },
        groups.length === 1 ? options(groups[0][1])
          : groups.map(([label, list]) => el("optgroup", { label }, options(list)))));
  }

  const check = (title, on, pick) => el("label", { class: "check" },
    el("input", { type: "checkbox", checked: on, onchange: (event) => pick(event.target.checked) }), title);
  const facts = (pairs) => (pairs.length
    ? el("dl", { class: "facts" }, pairs.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))
    : el("p", { class: "empty" }, "Nothing is recorded."));
  const empty = (text) => el("p", { class: "empty" }, text);

  /** A command to copy; where the clipboard is refused, it is at least selected. */
  function command(text) {
    const code = el("code", {}, text), button = el("button", { type: "button", class: "quiet copy" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
    return el("div", { class: "command" }, el("pre", { tabindex: 0 }, code), button);
  }

  // ---- tables

  /** Nulls last in both directions; numbers before words; equals keep their order. */
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function tableRow(row, columns, arms) {
    const arm = arms.get(row.arm);
    const cells = columns.map((column, i) => {
      const cell = row.cells[column.key] || { text: "", value: null };
      const attributes = { class: column.numeric ? "number" : null, title: cell.help || null };
      const text = cell.bold ? el("strong", {}, cell.text) : cell.text;
      return i ? el("td", attributes, text) : el("th", { ...attributes, scope: "row" },
        el("div", { class: "arm-name" }, arm ? sample(arm.style) : null, el("span", {}, text,
          arm?.baseline ? el("span", { class: "tag" }, "baseline") : null)));
    });
    return el("tr", { class: arm?.baseline ? "baseline" : null, "data-arm": row.arm }, cells);
  }

  function table({ columns, rows }, arms, caption) {
    const body = el("tbody"), nodes = new Map(rows.map((row) => [row, tableRow(row, columns, arms)]));
    const sortBy = (column, th) => {
      const before = th.getAttribute("aria-sort");
      const first = column.lower_is_better === false ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = before === first ? other : first, sign = order === "ascending" ? 1 : -1;
      const value = (row) => row.cells[column.key]?.value ?? null;
      th.parentNode.querySelectorAll("th").forEach((cell) => cell.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", order);
      body.append(...[...rows].sort((a, b) => compare(value(a), value(b), sign)).map((row) => nodes.get(row)));
    };
    const head = columns.map((column) => {
      const th = el("th", { scope: "col", class: column.numeric ? "number" : null });
      th.append(el("button", { type: "button", title: column.help || null, onclick: () => sortBy(column, th) },
        column.title));
      return th;
    });
    body.append(...nodes.values());
    return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      el("table", {}, el("thead", {}, el("tr", {}, head)), body));
  }

  // ---- results: table and ranking of each group

  function ranking(g, arms) {
    const host = el("div", { class: "ranking" });
    const rows = g.ranking.filter((row) => row.mean !== null && arms.has(row.arm)).map((row) => {
      const { label, style } = arms.get(row.arm);
      const whole = row.low !== null && row.high !== null;
      const interval = whole ? `, interval ${loss(row.low)} to ${loss(row.high)}` : "";
      const seeds = `${row.n} ${row.n === 1 ? "seed" : "seeds"}`;
      return { ...row, points: (row.points || []).filter((p) => p !== null), name: label, style,
        about: `${label}: ${loss(row.mean)}${interval}, ${seeds}` };
    });
    if (!rows.length) return empty("No run has a final validation loss yet.");
    const reference = rows.find((row) => row.arm === g.baseline)?.mean ?? null;
    let drawn = 0;
    // Drawn for the width it has, so that its text keeps its size.
    new ResizeObserver(() => {
      if (!host.clientWidth || host.clientWidth === drawn) return;
      drawn = host.clientWidth;
      intervalChart(host, rows, { reference, text: loss });
    }).observe(host);
    return host;
  }

  function results() {
    payload.groups.forEach((g, i) => {
      const arms = new Map(g.arms.map((arm) => [arm.id, arm])), name = g.name ? ` · ${g.name}` : "";
      $("results").append(el("section", { id: `results-${i}`, "data-nav": `Results${name}` },
        el("h2", {}, `Results${name}`),
        g.table.rows.length ? table(g.table, arms, `Results${name}`) : empty("No arm has results yet."),
        g.tables_extra.map((extra) => [el("h3", {}, extra.title), el("p", { class: "note" }, extra.note),
          table(extra, arms, extra.title)]),
        el("h3", {}, "Final validation loss"),
        el("p", { class: "note" }, "Filled: the mean over seeds, with its interval where there is one. "
          + "Open: each seed. Dashed: the baseline’s mean."),
        ranking(g, arms)));
    });
  }

  // ---- curves

  const AXES = {
    step: { title: "step", known: () => true, scale: () => 1 },
    tokens: { title: "tokens", known: (arm) => arm.tokens_a_step, scale: (arm) => arm.tokens_a_step },
    flops: { title: "FLOPs", known: (arm) => arm.tokens_a_step && arm.flops_a_token,
      scale: (arm) => arm.tokens_a_step * arm.flops_a_token },
    time: { title: "time", known: (arm) => arm.curves?.time?.step.length
      || arm.runs.some((run) => run.curves?.time?.step.length) },
  };

  /** Seconds at each step: straight between the measured ones, at the mean pace outside them. */
  function seconds(steps, time) {
    const known = (time?.step || []).flatMap((step, i) => (time.seconds[i] === null ? [] : [i]));
    if (!known.length) return null;
    const clock = { x: known.map((i) => time.step[i]), y: known.map((i) => time.seconds[i]) };
    return steps.map((step) => {
      const end = step <= clock.x[0] ? 0 : known.length - 1, [x, y] = [clock.x[end], clock.y[end]];
      return Charts.valueAt(clock, step) ?? (x ? (y * step) / x : y);
    });
  }

  function xOf(arm, curves, steps) {
    if (state.x === "time") return seconds(steps, curves?.time);
    return AXES[state.x].known(arm) ? steps.map((step) => step * AXES[state.x].scale(arm)) : null;
  }

  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const power = (n) => `10${[...String(n)].map((digit) => SUPERSCRIPTS[digit]).join("")}`;

  /** A unit in which the axis has short numbers. */
  function unitFor(most) {
    const thousands = Math.max(0, Math.floor(Math.log10(most || 1) / 3));
    if (state.x === "tokens") {
      const n = Math.min(4, thousands), word = ["", "thousand ", "million ", "billion ", "trillion "][n];
      return { factor: 1000 ** n, label: `${word}tokens`,
        text: (x) => `${number(x, n ? 2 : 0)} ${word}tokens` };
    }
    if (state.x === "flops") {
      const by = power(3 * thousands);
      return { factor: 1000 ** thousands, label: `training FLOPs / ${by}`,
        text: (x) => `${number(x, 2)} × ${by} FLOPs` };
    }
    if (state.x === "time") {
      const [factor, word] = [[86400, "days"], [3600, "hours"], [60, "minutes"], [1, "seconds"]]
        .find(([size]) => most >= 3 * size || size === 1);
      return { factor, label: `${word} of training`, text: (x) => `${number(x, 2)} ${word}` };
    }
    return { factor: 1, label: "training step", text: (x) => `step ${number(x, 0)}` };
  }

  function line(arm, curves, points, more) {
    const x = points?.step.length ? xOf(arm, curves, points.step) : null;
    const { colour, dash, width } = lineStyle(arm.style);
    return x && { group: arm.id, arm, name: arm.label, label: arm.label, colour, dash, width, x, ...more };
  }

  function curveLines() {
    const pick = (curves) => (state.loss === "val" ? curves?.val : curves?.train?.[state.sigma]);
    const made = (arm, curves, more) =>
      line(arm, curves, pick(curves), { y: pick(curves)?.loss, ...more });
    const thin = (run) => ({ width: 1.1, alpha: 0.8, seed: run.seed });
    return group().arms.flatMap((arm) => (state.lines === "mean" ? [made(arm, arm.curves)]
      : arm.runs.map((run) => made(arm, run.curves, thin(run))))).filter(Boolean);
  }

  const differenceLines = () => group().arms.filter((arm) => arm.difference).map((arm) => {
    const { mean, low, high } = arm.difference;
    return line(arm, arm.curves, arm.difference, { y: mean, low, high });
  }).filter(Boolean);

  /** Baseline last: on top. x in units that suit the longest run. */
  function prepared(lines, most, unit) {
    const inUnits = lines.map((one) => ({ ...one, x: one.x.map((x) => x / unit.factor) }));
    const first = Math.min(...inUnits.map((one) => one.x[0])), last = most / unit.factor;
    return { window: [state.cut ? last * 0.1 : first, last],
      lines: inUnits.filter((one) => !state.hidden.has(one.group))
        .sort((a, b) => a.arm.baseline - b.arm.baseline) };
  }

  function drawCurves() {
    const all = curveLines(), differences = differenceLines();
    const most = Math.max(0, ...[...all, ...differences].map((one) => one.x[one.x.length - 1]));
    const unit = unitFor(most), name = state.loss === "val" ? "Validation loss" : "Training loss";
    const common = { zoom: state.zoom, xLabel: unit.label, xText: unit.text,
      onzoom: (zoom) => { state.zoom = zoom; drawCurves(); } };
    const none = (lines, what) => (lines.length ? "Every line is switched off." : what);
    $("curve-title").textContent = state.log ? `${name}, logarithmic` : name;
    charts.curves.show({ ...common, ...prepared(all, most, unit), log: state.log, yText: loss,
      empty: none(all, `No ${name.toLowerCase()} to draw against this axis yet.`) });
    const base = group().arms.find((arm) => arm.id === group().baseline);
    $("difference-title").textContent = `Validation loss minus that of ${base ? base.label : "the baseline"}`;
    charts.difference.show({ ...common, ...prepared(differences, most, unit), zero: true, yText: signed,
      empty: none(differences, "No paired difference to draw against this axis yet.") });
    const drawn = new Set(all.map((one) => one.group));
    const absent = group().arms.filter((arm) => !drawn.has(arm.id)).map((arm) => arm.label);
    $("curve-note").hidden = !all.length;
    $("difference-note").hidden = !differences.length;
    $("curve-note").textContent = "Drag across the chart to zoom, double-click to see all again."
      + (absent.length ? ` Nothing to draw here for: ${absent.join(", ")}.` : "");
    const banded = differences.some((one) => one.low.some((low) => low !== null));
    $("difference-note").textContent = `Below zero is better than the baseline. ${banded
      ? "Bands: the interval over paired seeds; point at a line for its own."
      : "There are too few seeds for an interval."}`;
    $("reset").disabled = !state.zoom;
    report.unit = unit;
  }

  /** Change a choice; the window of a zoom has no meaning on another axis. */
  function set(changes) {
    if ("x" in changes || "group" in changes) state.zoom = null;
    Object.assign(state, changes);
    if ("group" in changes) curveControls();
    $("smoothing").hidden = state.loss === "val" || !state.sigma;
    drawCurves();
  }

  function curveControls() {
    const { arms } = group();
    const every = arms.flatMap((arm) => [arm.curves, ...arm.runs.map((run) => run.curves)]);
    const named = new Set(every.flatMap((curves) => Object.keys(curves?.train || {})));
    const sigmas = [...named].sort((a, b) => a - b);
    if (!named.has(state.sigma))
      state.sigma = named.has("50") ? "50" : sigmas[sigmas.length - 1] || null;
    const axes = Object.keys(AXES).filter((axis) => arms.some((arm) => AXES[axis].known(arm)));
    if (!axes.includes(state.x)) state.x = "step";
    if (!every.some((curves) => curves?.val?.step.length) && sigmas.length) state.loss = "train";
    const smoothing = choice("smoothing", sigmas.map((s) => [s, s === "0" ? "none" : `σ ${s}`]), state.sigma,
      (sigma) => set({ sigma }));
    smoothing.id = "smoothing";
    smoothing.title = "Gaussian, σ in training steps";
    $("controls").replaceChildren(...[
      payload.groups.length > 1 && choice("group", payload.groups.map((g, i) => [i, titled(g)]),
        state.group, (i) => { state.hidden.clear(); set({ group: i }); }),
      choice("loss", [["val", "validation"], ["train", "training"]], state.loss,
        (value) => set({ loss: value })),
      smoothing,
      choice("x axis", axes.map((axis) => [axis, AXES[axis].title]), state.x, (x) => set({ x })),
      choice("lines", [["mean", "mean over seeds"], ["runs", "every run"]], state.lines,
        (lines) => set({ lines })),
      el("div", { class: "checks" }, check("log y axis", state.log, (log) => set({ log })),
        check("cut the warm-up", state.cut, (cut) => set({ cut, zoom: null })),
        el("button", { type: "button", id: "reset", class: "quiet",
          onclick: () => set({ zoom: null }) }, "Reset zoom")),
    ].filter(Boolean));
    smoothing.hidden = state.loss === "val" || !state.sigma;
    legend();
  }

  function legend() {
    const buttons = new Map();
    const show = () => {
      buttons.forEach((button, id) => button.setAttribute("aria-pressed", !state.hidden.has(id)));
      drawCurves();
    };
    const toggle = (id) => { if (!state.hidden.delete(id)) state.hidden.add(id); show(); };
    const bulk = (text, hidden) => el("button", { type: "button", class: "quiet",
      onclick: () => { state.hidden = new Set(hidden); show(); } }, text);
    for (const arm of group().arms)
      buttons.set(arm.id, el("button", { type: "button", class: "entry", "data-arm": arm.id,
        "aria-pressed": !state.hidden.has(arm.id), onclick: () => toggle(arm.id) },
      sample(arm.style), arm.label));
    $("legend").replaceChildren(...buttons.values(), el("span", { class: "bulk" },
      bulk("all", []), bulk("none", buttons.keys())));
  }

  // ---- coefficients

  function coefficients() {
    const learned = ({ coefficients: c }) => c?.steps.length && Object.keys(c.values).length;
    const found = payload.groups.map((g, i) => [titled(g), g.arms.flatMap((arm, j) =>
      (learned(arm) ? [[`${i},${j}`, arm.label]] : []))]).filter(([, arms]) => arms.length);
    if (!found.length)
      return $("coefficient-charts").replaceWith(empty("No arm has learned coefficients recorded."));
    let chosen = found[0][1][0][0], view = "depth", shown = [];
    const draw = () => {
      const [i, j] = chosen.split(","), arm = payload.groups[i].arms[j], { steps, values } = arm.coefficients;
      shown.forEach((chart) => chart.destroy());
      $("coefficient-charts").replaceChildren();
      shown = charts.coefficients = Object.entries(values).map(([name, rows]) => {
        const host = el("div"), about = `${name} of ${arm.label}`;
        $("coefficient-charts").append(el("figure", {}, el("figcaption", {}, name), host));
        const chart = new LineChart(host, { height: 210, about });
        chart.show(view === "depth" ? overDepth(steps, rows, arm) : overTraining(steps, rows));
        return chart;
      });
    };
    $("coefficient-controls").append(pickFrom("arm", found, (value) => { chosen = value; draw(); }),
      choice("coefficient against", [["depth", "depth"], ["training", "training"]], view,
        (value) => { view = value; draw(); }));
    draw();
  }

  const value4 = (value) => String(+value.toPrecision(4)).replace("-", "−");

  function overDepth(steps, rows, arm) {
    const last = rows.length - 1, x = rows[last].map((_, layer) => layer), look = lineStyle(arm.style);
    const at = (i, more) => ({ group: i, name: `step ${number(steps[i], 0)}`, x, y: rows[i], ...more });
    const start = { colour: Charts.palette.colours[6], dash: [3, 2], width: 1.2, label: "start" };
    const end = { ...look, width: 2.2, label: last ? "end" : null };
    return { lines: [...(last ? [at(0, start)] : []), at(last, end)], window: [0, x.length - 1],
      whole: true, xLabel: "layer", xText: (layer) => `layer ${layer}`, yText: value4 };
  }

  /** From light to dark blue with depth: a layer's place shows without a key. */
  function overTraining(steps, rows) {
    const layers = rows[0].length, marked = new Set([0, layers >> 1, layers - 1]);
    const lines = rows[0].map((_, layer) => ({ group: layer, name: `layer ${layer}`, width: 1.4,
      label: layers <= 6 || marked.has(layer) ? `layer ${layer}` : null,
      x: steps, y: rows.map((row) => row[layer]),
      colour: `hsl(${190 + (90 * layer) / Math.max(1, layers - 1)} 62% 52%)` }));
    return { lines, window: [steps[0], steps[steps.length - 1]], xLabel: "training step",
      xText: (step) => `step ${number(step, 0)}`, yText: value4 };
  }

  // ---- blocks, samples, repeating

  /** The picture cannot run scripts or load anything as the source of an image. */
  function picture(source, text) {
    const bytes = new TextEncoder().encode(source);
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    return el("img", { src: `data:image/svg+xml;base64,${btoa(binary)}`, alt: text, decoding: "async" });
  }

  function blocks() {
    const rules = new Map();
    for (const arm of payload.groups.flatMap((g) => g.arms)) if (!rules.has(arm.rule)) rules.set(arm.rule, arm);
    for (const [rule, arm] of rules)
      $("block-list").append(el("article", { class: "block" }, el("h3", {}, rule),
        arm.note ? el("p", { class: "note" }, arm.note) : null,
        arm.equations.length ? el("pre", { class: "equations", tabindex: 0 }, arm.equations.join("\n"))
          : empty("There are no equations."),
        arm.diagram ? el("div", { class: "diagram" }, picture(arm.diagram, `Diagram of a block of ${rule}`))
          : empty("There is no diagram.")));
  }

  function samples() {
    const prompts = payload.groups.map((g, i) => [titled(g), [...new Set(g.arms.flatMap((arm) =>
      arm.samples.map((one) => one.prompt)))].map((prompt) => [i, prompt])]).filter(([, list]) => list.length);
    if (!prompts.length) return $("sample-list").replaceWith(empty("No texts were sampled."));
    const flat = prompts.flatMap(([, list]) => list);
    const draw = (index) => {
      const [i, prompt] = flat[index], noted = new Set();
      $("sample-list").replaceChildren(...payload.groups[i].arms.map((arm) => {
        const texts = arm.samples.filter((one) => one.prompt === prompt);
        const note = texts.length && !noted.has(arm.samples_note) ? arm.samples_note : "";
        noted.add(arm.samples_note);
        return el("article", {}, el("h3", {}, sample(arm.style), arm.label),
          texts.length ? texts.map((one) =>
            el("p", { class: "text" }, el("span", { class: "prompt" }, prompt), one.text))
            : empty("No sample for this prompt."),
          note ? el("p", { class: "note" }, note) : null);
      }));
    };
    const brief = (prompt) => (prompt.length > 60 ? `${prompt.slice(0, 59)}…` : prompt || "(empty)");
    if (flat.length > 1)
      $("sample-controls").append(pickFrom("prompt", prompts.map(([name, list]) =>
        [name, list.map((one) => [flat.indexOf(one), brief(one[1])])]), draw));
    draw(0);
  }

  function armDetails(arm) {
    const runs = arm.runs.map((run) => el("tr", {}, el("th", { scope: "row" }, `seed ${run.seed}`),
      el("td", {}, run.status),
      el("td", { class: "number" }, `${number(run.step, 0)} of ${number(run.steps, 0)}`),
      el("td", {}, run.status_text)));
    return el("details", { class: "arm" }, el("summary", {}, sample(arm.style), arm.label,
      arm.baseline ? el("span", { class: "tag" }, "baseline") : null), facts(arm.facts),
    runs.length ? el("div", { class: "scroll" }, el("table", { class: "runs" }, el("tbody", {}, runs)))
      : empty("No run has begun."),
    arm.command ? command(arm.command) : null,
    el("details", {}, el("summary", {}, "Configuration"),
      el("pre", { tabindex: 0 }, JSON.stringify(arm.config, null, 2))));
  }

  function repeat() {
    $("commands").append(...payload.commands.map((one) =>
      el("div", { class: "step" }, el("p", {}, one.what), command(one.command))));
    $("data-facts").append(facts(payload.data));
    for (const g of payload.groups)
      $("arm-details").append(...[g.name && el("h4", {}, g.name), ...g.arms.map(armDetails)].filter(Boolean));
  }

  // ---- the page

  function header() {
    $("title").textContent = payload.title;
    $("subtitle").textContent = payload.subtitle;
    $("made").textContent = payload.made;
    $("headline").append(...payload.headline.map((sentence) => el("p", {}, sentence)));
    $("remarks").hidden = !payload.remarks.length;
    $("remarks").append(el("ul", {}, payload.remarks.map((remark) => el("li", {}, remark))));
    $("nav").append(...[...document.querySelectorAll("main section")].map((section) =>
      el("a", { href: `#${section.id}` }, section.dataset.nav || section.querySelector("h2").textContent)));
  }

  /** Canvases take their colours when drawn, so they are drawn again with the theme. */
  function theme() {
    const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const redraw = () => { $("theme").textContent = dark() ? "Light" : "Dark"; Charts.renderAll(); };
    $("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; redraw(); });
    system.addEventListener("change", redraw);
    let before;
    addEventListener("beforeprint", () => {
      before = root.dataset.theme;
      root.dataset.theme = "light";
      redraw();
    });
    addEventListener("afterprint", () => {
      if (before) root.dataset.theme = before; else delete root.dataset.theme;
      redraw();
    });
    redraw();
  }

  function start() {
    results();
    header();
    charts.curves = new LineChart($("curve-chart"), { height: 400, about: "Loss of each arm over training" });
    charts.difference = new LineChart($("difference-chart"),
      { height: 300, about: "Difference of each arm's loss to the baseline's over training" });
    if (payload.groups.length) { curveControls(); drawCurves(); }
    else $("curves").replaceChildren(el("h2", {}, "Curves"), empty("No arm has begun."));
    coefficients();
    blocks();
    samples();
    repeat();
    theme();
    document.documentElement.dataset.ready = "true";
  }

  return { payload, state, charts, start, set };
})();

window.report = report;
report.start();
