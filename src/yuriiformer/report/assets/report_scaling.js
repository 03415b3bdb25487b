/* Loss against size: every run, and the laws in compute with their intervals. */
"use strict";

const reportScaling = ({ payload, charts, titled }) => {
  const { $, el, lineStyle, choice } = Dom;
  const { number, short } = Numbers;
  const found = payload.groups.filter((group) => group.scaling);
  if (!found.length) return $("scaling").remove();

  const AXES = [["flops", "FLOPs"], ["tokens", "tokens"], ["all", "parameters"],
    ["without_tables", "… without start tables"], ["blocks", "… without any table"]];
  const NAMES = { flops: "training FLOPs", tokens: "training tokens", all: "all parameters",
    without_tables: "parameters without positions and start tables",
    blocks: "parameters without any table" };
  let chosen = 0, axis = "flops", beyond = false;
  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

  function lines({ rules }) {
    const last = Math.max(...rules.flatMap((rule) => rule.points.map((point) => point.flops)));
    return rules.flatMap((rule) => {
      const look = { group: rule.label, name: rule.label, ...lineStyle(rule.style) };
      const points = [...rule.points].sort((a, b) => a[axis] - b[axis]);
      const x = points.map((point) => Math.log10(point[axis]));
      const seeds = Math.max(...points.map((point) => point.losses.length));
      const dots = [...Array(seeds).keys()].map((i) => ({ ...look, x, width: 2.4, points: true,
        y: points.map((point) => point.losses[i] ?? null) }));
      const law = axis === "flops" ? rule.law : null;
      if (!law) return [...dots, { ...look, x, y: points.map((p) => mean(p.losses)), width: 1.4,
        label: rule.label }];
      const kept = law.flops.flatMap((flops, i) => (beyond || flops <= last * 1.3 ? [i] : []));
      const pick = (values) => kept.map((i) => values[i]);
      return [...dots, { ...look, x: pick(law.flops).map(Math.log10), y: pick(law.loss),
        low: pick(law.low), high: pick(law.high), label: rule.label, smooth: true }];
    });
  }

  function draw() {
    const { scaling } = found[chosen], all = lines(scaling);
    const ends = all.flatMap((line) => [line.x[0], line.x[line.x.length - 1]]);
    const pad = 0.03 * (Math.max(...ends) - Math.min(...ends)) || 0.1;
    const laws = axis === "flops" && scaling.rules.some((rule) => rule.law);
    const marks = laws && beyond ? scaling.targets.map((target) => Math.log10(target.flops)) : [];
    $("scaling-title").textContent = `${scaling.metric} validation loss against ${NAMES[axis]}`;
    charts.scaling.show({ lines: all, window: [Math.min(...ends) - pad, Math.max(...ends) + pad],
      xLog: true, marks, xLabel: NAMES[axis], yText: (value) => number(value, 4),
      xText: (x) => `${short(+(10 ** x).toPrecision(3))} ${NAMES[axis]}` });
    $("scaling-beyond").hidden = !(axis === "flops" && scaling.targets.length);
    const names = scaling.targets.map((target) => target.name).join(" and ");
    $("scaling-notes").replaceChildren(...[
      laws ? "Dots: runs. Lines: the fitted laws, with 95 % bands." : "Dots: runs. Lines: means.",
      marks.length ? `Dashed: the paper’s ${names} sizes in this setting.` : null,
      ...(marks.length ? scaling.notes : [])].filter(Boolean).map((text) => el("p", { class: "note" }, text)));
  }

  charts.scaling = new Charts.LineChart($("scaling-chart"),
    { height: 380, about: "Validation loss of each rule against its size" });
  const extend = Dom.check("as far as the paper’s sizes", beyond,
    (value) => { beyond = value; draw(); });
  extend.id = "scaling-beyond";
  $("scaling-controls").append(...[
    found.length > 1 && choice("group", found.map((g, i) => [i, titled(g)]), chosen,
      (i) => { chosen = i; draw(); }),
    choice("loss against", AXES, axis, (value) => { axis = value; draw(); }),
    el("div", { class: "checks" }, extend)].filter(Boolean));
  draw();
};
