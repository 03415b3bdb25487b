/* The curves: each arm's loss over training, its difference to the baseline's, and their controls.
Gives the function that changes a choice. */
"use strict";

const reportCurves = (page) => {
  const { $, el, empty, sample, lineStyle, choice, check } = Dom;
  const { number, valueAt } = Numbers;
  const { payload, state, charts, titled } = page;
  const loss = (value) => number(value, 4);
  const group = () => payload.groups[state.group];

  const AXES = {
    step: { title: "step", known: () => true, scale: () => 1 },
    tokens: { title: "tokens", known: (arm) => arm.tokens_a_step,
      scale: (arm) => arm.tokens_a_step },
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
      return valueAt(clock, step) ?? (x ? (y * step) / x : y);
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
      const n = Math.min(4, thousands);
      const word = ["", "thousand ", "million ", "billion ", "trillion "][n];
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
    return x && { group: arm.id, arm, name: arm.label, label: arm.label, ...lineStyle(arm.style),
      x, ...more };
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
    $("difference-title").textContent =
      `Validation loss minus that of ${base ? base.label : "the baseline"}`;
    charts.difference.show({ ...common, ...prepared(differences, most, unit), zero: true,
      yText: (value) => Numbers.signed(value, 4),
      empty: none(differences, "No paired difference to draw against this axis yet.") });
    const drawn = new Set(all.map((one) => one.group));
    const absent = group().arms.filter((arm) => !drawn.has(arm.id)).map((arm) => arm.label);
    $("curve-note").hidden = !all.length;
    $("difference-note").hidden = !differences.length;
    $("curve-note").textContent = "Drag across the chart to zoom, double-click to see all again."
      + (absent.length ? ` Nothing to draw here for: ${absent.join(", ")}.` : "");
    const banded = differences.some((one) => one.low.some((low) => low !== null));
    $("difference-note").textContent = `Below zero is better than the baseline. ${banded
      ? "Bands: the 95 % interval over paired seeds; point at a line for its own."
      : "There are too few seeds for a 95 % interval."}`;
    $("reset").disabled = !state.zoom;
    page.unit = unit;
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
    const smoothing = choice("smoothing", sigmas.map((s) => [s, s === "0" ? "none" : `σ ${s}`]),
      state.sigma, (sigma) => set({ sigma }));
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

  if (!payload.groups.length) {
    $("curves").replaceChildren(el("h2", {}, "Curves"), empty("No arm has begun."));
    return set;
  }
  charts.curves = new Charts.LineChart($("curve-chart"),
    { height: 400, about: "Loss of each arm over training" });
  charts.difference = new Charts.LineChart($("difference-chart"),
    { height: 300, about: "Difference of each arm's loss to the baseline's over training" });
  curveControls();
  drawCurves();
  return set;
};
