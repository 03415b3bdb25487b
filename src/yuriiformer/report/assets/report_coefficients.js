/* The learned coefficients of an arm, over depth or over training. */
"use strict";

const reportCoefficients = ({ payload, charts, titled }) => {
  const { $, el, empty, lineStyle, choice, pickFrom } = Dom;
  const { number } = Numbers;

  const value4 = (value) => String(+value.toPrecision(4)).replace("-", "−");

  function overDepth(steps, rows, arm) {
    const last = rows.length - 1, x = rows[last].map((_, layer) => layer);
    const at = (i, more) =>
      ({ group: i, name: `step ${number(steps[i], 0)}`, x, y: rows[i], ...more });
    const start = { colour: Dom.palette.colours[6], dash: [3, 2], width: 1.2, label: "start" };
    const end = { ...lineStyle(arm.style), width: 2.2, label: last ? "end" : null };
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

  const learned = ({ coefficients: c }) => c?.steps.length && Object.keys(c.values).length;
  const found = payload.groups.map((g, i) => [titled(g), g.arms.flatMap((arm, j) =>
    (learned(arm) ? [[`${i},${j}`, arm.label]] : []))]).filter(([, arms]) => arms.length);
  if (!found.length) {
    $("coefficient-charts").replaceWith(empty("No arm has learned coefficients recorded."));
    return;
  }
  let chosen = found[0][1][0][0], view = "depth", shown = [];
  const draw = () => {
    const [i, j] = chosen.split(","), arm = payload.groups[i].arms[j];
    const { steps, values } = arm.coefficients;
    shown.forEach((chart) => chart.destroy());
    $("coefficient-charts").replaceChildren();
    shown = charts.coefficients = Object.entries(values).map(([name, rows]) => {
      const host = el("div"), about = `${name} of ${arm.label}`;
      $("coefficient-charts").append(el("figure", {}, el("figcaption", {}, name), host));
      const chart = new Charts.LineChart(host, { height: 210, about });
      chart.show(view === "depth" ? overDepth(steps, rows, arm) : overTraining(steps, rows));
      return chart;
    });
  };
  $("coefficient-controls").append(pickFrom("arm", found, (value) => { chosen = value; draw(); }),
    choice("coefficient against", [["depth", "depth"], ["training", "training"]], view,
      (value) => { view = value; draw(); }));
  draw();
};
