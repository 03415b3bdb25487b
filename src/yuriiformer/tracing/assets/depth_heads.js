/* What is known of each attention head: a small map, layers across and heads down. */
"use strict";

const depthHeads = (page) => {
  const { $, el, svg, sample } = Dom;
  const { data } = page;
  const { runs, text, title } = data;
  const { short } = Numbers;
  const LEFT = 52, BOTTOM = 22;

  /** The calls that have heads, in order of evaluation. */
  const calls = (run, name) => (text(run).heads?.[name] || []).flatMap((values, index) =>
    (values ? [{ ...run.steps[index], values }] : []));

  function map(run, found, { low, high, signed = false }) {
    const heads = Math.max(...found.map(({ values }) => values.length));
    const wide = Math.max(8, Math.min(34, Math.floor(460 / found.length)));
    const tall = Math.max(10, Math.min(22, Math.floor(240 / heads)));
    const width = LEFT + found.length * wide + 4, height = heads * tall + BOTTOM;
    const root = svg("svg", { class: "heat", width, height, viewBox: `0 0 ${width} ${height}`,
      role: "img", "aria-label": `By layer and head, ${run.label}` });
    const each = Math.ceil(24 / wide), several = new Set(found.map(({ name }) => name)).size > 1;
    found.forEach(({ layer, label, name, values }, at) => {
      values.forEach((value, head) => {
        const share = value === null ? 0 : signed ? Math.abs(value) / high
          : high > low ? (value - low) / (high - low) : 0.5;
        root.append(svg("rect", { x: LEFT + at * wide, y: head * tall, width: wide - 1,
          height: tall - 1, class: value === null ? "unknown" : signed && value < 0 ? "below" : null,
          style: `--share: ${(100 * share).toFixed(1)}%` },
        svg("title", {}, `layer ${layer}${several ? `, ${label || name}` : ""}, head ${
          head + 1}: ${short(value)}`)));
      });
      const first = at === 0 || found[at - 1].layer !== layer;
      if (first && layer % each === 0)
        root.append(svg("text", { x: LEFT + at * wide + wide / 2, y: height - 6,
          class: "middle" }, String(layer)));
    });
    for (let head = 0; head < heads; head++)
      if (tall >= 13 || head % 2 === 0)
        root.append(svg("text", { x: LEFT - 6, y: head * tall + tall / 2 + 4, class: "end" },
          head ? String(head + 1) : "head 1"));
    return root;
  }

  function draw() {
    const names = data.known("heads");
    $("heads").replaceChildren(...names.flatMap((name) => {
      const all = runs.map((run) => calls(run, name));
      const values = data.finite(all.flat().flatMap((one) => one.values));
      if (!values.length) return [];
      const ends = { low: Math.min(...values), high: Math.max(...values) };
      return [el("h3", {}, `Heads: ${title(name)}`),
        el("p", { class: "note" }, "Layers from left to right, mean over the text."),
        el("div", { class: "scale" }, el("span", {}, short(ends.low, 3)),
          el("span", { class: "ramp" }), el("span", {}, short(ends.high, 3))),
        el("div", { class: "pair" }, runs.map((run, i) => el("figure", { class: "column" },
          el("figcaption", {}, sample(run.style), run.label), all[i].length
            ? el("div", { class: "scroll", tabindex: 0, role: "region",
              "aria-label": `Heads of ${run.label}` }, map(run, all[i], ends))
            : Dom.empty("Nothing is known of its heads."))))];
    }));
  }

  page.headMap = map;
  page.on(["text"], draw);
};
