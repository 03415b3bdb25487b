/* The interval chart. */
"use strict";

const Intervals = (() => {
  const { svg, lineStyle, FONT, textWidth, shorten } = Dom;
  const { tickText, niceTicks } = Numbers;
  const BOLD = FONT.replace("12px", "bold 14px"); // as the baseline's name is

  /** Means with whiskers and the points behind them, one row each, in the order given. */
  function intervalChart(host, rows, { reference, text, about }) {
    const width = host.clientWidth, narrow = width < 620, gap = narrow ? 50 : 34;
    const names = rows.map((row) => shorten(row.name, narrow ? width - 20 : width * 0.34, BOLD));
    const side = narrow ? 6 : Math.max(...names.map((name) => textWidth(name, BOLD))) + 22;
    const right = width - 82, height = rows.length * gap + 30;
    const all = rows.flatMap((r) => [r.mean, r.low, r.high, ...r.points]).filter((v) => v !== null);
    const least = Math.min(...all), most = Math.max(...all);
    const pad = (most - least) * 0.05 || Math.abs(least) * 0.02 || 1, from = least - pad;
    const scale = (right - side - 16) / (most + pad - from);
    const at = (v) => side + 8 + (v - from) * scale;
    const { ticks, step } = niceTicks(from, most + pad, Math.max(4, (right - side) / 90));
    const upright = (name, v) =>
      svg("line", { class: name, x1: at(v), x2: at(v), y1: 0, y2: height - 26 });
    const root = svg("svg",
      { class: "intervals", width, height, role: "img", "aria-label": about });
    for (const tick of ticks)
      root.append(upright("grid", tick),
        svg("text", { class: "tick", x: at(tick), y: height - 8 }, tickText(tick, step)));
    if (reference !== null) root.append(upright("reference", reference));
    const frame = { at, narrow, width, text };
    rows.forEach((row, i) => root.append(intervalRow(row, names[i], i * gap, frame)));
    host.replaceChildren(root);
  }

  function intervalRow(row, name, top, { at, narrow, width, text }) {
    const y = top + (narrow ? 31 : 15), { colour, width: thick } = lineStyle(row.style);
    const kind = row.style === 0 ? "row baseline" : "row";
    const group = svg("g", { class: kind, stroke: colour, fill: colour },
      svg("title", {}, row.about));
    group.append(svg("text", { class: "name", x: 4, y: top + (narrow ? 15 : 20) }, name),
      svg("text", { class: "value", x: width - 4, y: y + 5 }, text(row.mean)));
    for (const point of row.points)
      group.append(svg("circle", { class: "seed", cx: at(point), cy: y + 9, r: 2.6 }));
    if (row.low !== null && row.high !== null) {
      const low = at(row.low), high = at(row.high);
      group.append(svg("path", { class: "whisker", "stroke-width": thick,
        d: `M${low} ${y}H${high}M${low} ${y - 5}v10M${high} ${y - 5}v10` }));
    }
    group.append(svg("circle", { class: "mean", cx: at(row.mean), cy: y, r: 4.5 }));
    return group;
  }

  return { intervalChart };
})();
