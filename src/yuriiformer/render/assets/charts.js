/* What every page shares: elements, the look of lines, line charts, interval charts.

uPlot gives axes, cursor and zoom. The lines are drawn here, because uPlot wants one x for all of
them, while runs measured against tokens, FLOPs or time each have their own. */
"use strict";

const Charts = (() => {
  const SVG = "http://www.w3.org/2000/svg"; // a name, never fetched
  const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';
  const MOST_LABELS = 8;
  const LABEL_GAP = 15;
  const palette = { colours: [], dashes: [] };
  const pen = document.createElement("canvas").getContext("2d"); // measures text
  const live = new Set();

  // Texts only ever become text nodes or attributes, so data cannot become markup.
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    node.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
    return node;
  }
  const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  /** The page's data. Long lists are kept once and named by their place: page.py, pooled(). */
  function readData() {
    const { pool, ...data } = JSON.parse(document.getElementById("data").textContent);
    const whole = (node) => {
      if (node === null || typeof node !== "object") return node;
      if (Array.isArray(node)) return typeof node[0] === "number" ? node : node.map(whole);
      if ("@list" in node) return pool[node["@list"]];
      return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, whole(value)]));
    };
    return whole(data);
  }

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** The look of an arm; a null colour is the text's, whatever the theme. */
  function lineStyle(style) {
    if (style === 0) return { colour: null, dash: [], width: 2.6 };
    const n = palette.colours.length;
    const dash = palette.dashes[Math.floor((style - 1) / n) % palette.dashes.length];
    return { colour: palette.colours[(style - 1) % n], dash, width: 1.8 };
  }

  /** A short piece of a line, for keys. */
  function key({ colour, dash, width }) {
    return svg("svg", { class: "sample", width: 28, height: 10, "aria-hidden": "true" },
      svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, stroke: colour || "currentColor",
        "stroke-width": width,
        "stroke-dasharray": (dash || []).map((d) => d * width).join(" ") || null }));
  }
  const sample = (style) => key(lineStyle(style));

  // English in every browser, as the rest of the page is.
  const number = (value, digits) => (value === null || value === undefined ? "–"
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));

  function tickText(value, step) {
    const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(Math.abs(step) || 1) - 1e-9)));
    // 0.25 needs one digit more than 0.1 does.
    const exact = Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
    return number(value, exact ? digits : digits + 1).replace(/^-/, "−");
  }

  function niceStep(span, count) {
    const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.7);
  }

  function niceTicks(low, high, count) {
    const step = niceStep(high - low, count), ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
    return { ticks, step };
  }

  /** 1–2–5 over decades; but losses often span less than one, and then even steps. */
  function logTicks(low, high) {
    if (high / low < 8) return niceTicks(low, high, 8).ticks;
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
      for (const m of [1, 2, 5])
        if (m * 10 ** power >= low && m * 10 ** power <= high) ticks.push(m * 10 ** power);
    return ticks;
  }

  /** First index whose x is at least the value. */
  function search(x, value) {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < value) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** A line's value at x, straight between its points; null outside them and in gaps. */
  function valueAt(line, x) {
    const i = search(line.x, x);
    if (i < line.x.length && line.x[i] === x) return line.y[i];
    if (i === 0 || i === line.x.length) return null;
    const [x0, x1, y0, y1] = [line.x[i - 1], line.x[i], line.y[i - 1], line.y[i]];
    return y0 === null || y1 === null ? null : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
  }

  /** Move positions, in order, as little as keeps them `gap` apart and inside. */
  function spread(items, gap, low, high) {
    items.sort((a, b) => a.y - b.y);
    let floor = low;
    for (const item of items) { item.y = Math.max(item.y, floor); floor = item.y + gap; }
    let ceiling = high;
    for (const item of [...items].reverse()) {
      item.y = Math.min(item.y, ceiling);
      ceiling = item.y - gap;
    }
    return items;
  }

  function shorten(text, width, font) {
    pen.font = font || FONT;
    if (pen.measureText(text).width <= width) return text;
    let end = text.length;
    while (end > 1 && pen.measureText(`${text.slice(0, end)}…`).width > width) end--;
    return `${text.slice(0, end).trimEnd()}…`;
  }

  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

  /** A line chart.
   *
   * show({lines, window, zoom, onzoom, xLabel, xText, yText, log, zero, whole, empty}); a line is
   * {group, name, label, colour, dash, width, alpha, x, y, low, high}: lines of a group (the runs of
   * an arm) share a row in the tooltip and a label, and are emphasised together. */
  class LineChart {
    constructor(host, { height, about }) {
      Object.assign(this, { host, height, about, lines: [], u: null, near: null, shown: {} });
      this.tip = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
      this.width = host.clientWidth;
      this.watch = new ResizeObserver(() => {
        if (host.clientWidth && host.clientWidth !== this.width) this.render();
      });
      this.watch.observe(host);
      live.add(this);
    }

    destroy() { this.watch.disconnect(); this.u?.destroy(); live.delete(this); }

    show(options) { this.shown = options; this.lines = options.lines; this.render(); }

    /** Anew after every change: cheaper than it sounds, and nothing can be left over. */
    render() {
      this.u?.destroy();
      this.u = this.near = null;
      this.width = this.host.clientWidth;
      this.host.classList.add("chart");
      if (!this.lines.length) {
        this.host.replaceChildren(el("p", { class: "empty" }, this.shown.empty || "Nothing to show."));
        return;
      }
      this.host.replaceChildren(this.tip);
      this.tip.hidden = true;
      this.placeLabels();
      const [low, high] = this.range();
      this.u = new uPlot(this.options(), [[low, high], [null, null]], this.host);
      this.u.root.setAttribute("role", "img");
      this.u.root.setAttribute("aria-label", this.about);
    }

    range() {
      const [low, high] = this.shown.zoom || this.shown.window;
      return high > low ? [low, high] : [low - 0.5, high + 0.5];
    }

    options() {
      const axis = { stroke: () => css("--muted"), font: FONT, labelFont: FONT,
        grid: { stroke: () => css("--grid"), width: 1, filter: (u, s) => s },
        ticks: { show: false, filter: (u, s) => s }, filter: (u, s) => s };
      const { log, whole, xLabel } = this.shown;
      const step = (s) => (s.length > 1 ? s[1] - s[0] : s[0]);
      const plain = (s) => s.map((v) => String(+v.toPrecision(3)));
      const even = (s) => s.length < 3 || Math.abs(s[2] - 2 * s[1] + s[0]) < step(s) * 1e-6;
      return {
        width: this.width, height: this.height, legend: { show: false },
        padding: [10, this.labelWidth ? this.labelWidth + 34 : 28, 0, 0],
        cursor: { y: false, points: { show: false },
          drag: { x: true, y: false, setScale: false, dist: 4 },
          bind: { dblclick: () => () => { this.shown.onzoom?.(null); return null; } } },
        scales: { x: { time: false, range: () => this.range() },
          y: { range: () => this.extent(), ...(log && { distr: 3 }) } },
        series: [{}, { show: true, points: { show: false } }],
        axes: [
          { ...axis, label: xLabel, labelSize: 22, labelGap: 0, size: 28, space: 64,
            ...(whole && { incrs: [1, 2, 5, 10, 20, 50, 100] }),
            values: (u, s) => s.map((v) => tickText(v, step(s))) },
          { ...axis, space: 38, gap: 6,
            size: (u, texts) => 16 + Math.max(20, ...(texts || []).map((t) => this.textWidth(t))),
            ...(log && { splits: (u, i, low, high) => logTicks(low, high) }),
            values: (u, s) => (even(s) ? s.map((v) => tickText(v, step(s))) : plain(s)) }],
        hooks: { drawAxes: [(u) => this.draw(u)], setCursor: [(u) => this.hover(u)],
          setSelect: [(u) => this.select(u)] },
      };
    }

    textWidth(text) { pen.font = FONT; return pen.measureText(text).width; }

    select(u) {
      const { left, width } = u.select;
      if (width < 4) return;
      const ends = [u.posToVal(left, "x"), u.posToVal(left + width, "x")];
      u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      this.shown.onzoom?.(ends);
    }

    /** Least and greatest y of what the window shows. */
    extent() {
      const [from, to] = this.range(), values = this.shown.zero ? [0] : [];
      for (const line of this.lines) {
        values.push(valueAt(line, from), valueAt(line, to));
        for (let i = search(line.x, from); i < line.x.length && line.x[i] <= to; i++) {
          values.push(line.y[i]);
          if (line.low) values.push(line.low[i], line.high[i]);
        }
      }
      let low = Infinity, high = -Infinity;
      for (const value of values)
        if (value !== null && (!this.shown.log || value > 0)) {
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      if (low > high) return [0.5, 1.5];
      if (this.shown.log) return [low / 1.02, high * 1.02];
      const pad = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.5;
      return [low - pad, high + pad];
    }

    /** Names at the ends of lines, where there are few enough to read. */
    placeLabels() {
      const labels = new Map();
      for (const line of this.lines) if (line.label) labels.set(line.group, line.label);
      const few = labels.size <= MOST_LABELS ? [...labels] : [];
      const room = Math.min(190, this.width * 0.26);
      this.labels = new Map(few.map(([group, label]) => [group, shorten(label, room)]));
      const widths = [...this.labels.values()].map((text) => this.textWidth(text));
      this.labelWidth = Math.ceil(Math.max(0, ...widths));
    }

    draw(u) {
      const { ctx } = u, ratio = u.pxRatio || devicePixelRatio, { left, top, width, height } = u.bbox;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left - ratio, top - 2 * ratio, width + 4 * ratio, height + 4 * ratio);
      ctx.clip();
      if (this.shown.zero) this.drawZero(u, ratio);
      for (const line of this.lines) if (line.low) this.drawBand(u, line);
      for (const line of this.lines) if (line.group !== this.near) this.drawLine(u, line, ratio);
      for (const line of this.lines) if (line.group === this.near) this.drawLine(u, line, ratio);
      ctx.restore();
      this.drawLabels(u, ratio);
    }

    drawZero(u, ratio) {
      const y = u.valToPos(0, "y", true), { ctx } = u;
      Object.assign(ctx, { strokeStyle: css("--ink"), lineWidth: 1.2 * ratio });
      ctx.beginPath();
      ctx.moveTo(u.bbox.left, y);
      ctx.lineTo(u.bbox.left + u.bbox.width, y);
      ctx.stroke();
    }

    drawBand(u, { x, low, high, group, colour }) {
      const at = (i, side) => [u.valToPos(x[i], "x", true), u.valToPos(side[i], "y", true)];
      u.ctx.fillStyle = colour || css("--ink");
      // Many bands at once would be mud: then each shows when its line is pointed at.
      const quiet = this.lines.length > 5 ? 0.03 : 0.14;
      u.ctx.globalAlpha = this.near === null ? quiet : this.near === group ? 0.28 : quiet / 3;
      for (let from = 0; from < x.length; from++) {
        if (low[from] === null || high[from] === null) continue;
        let end = from;
        while (end + 1 < x.length && low[end + 1] !== null && high[end + 1] !== null) end++;
        u.ctx.beginPath();
        for (let i = from; i <= end; i++) u.ctx.lineTo(...at(i, high));
        for (let i = end; i >= from; i--) u.ctx.lineTo(...at(i, low));
        u.ctx.fill();
        from = end;
      }
      u.ctx.globalAlpha = 1;
    }

    stroke(u, line, ratio) {
      const near = this.near === line.group, other = this.near !== null && !near;
      const width = (line.width + (near ? 1 : 0)) * ratio;
      Object.assign(u.ctx, { strokeStyle: line.colour || css("--ink"), lineWidth: width,
        lineJoin: "round", globalAlpha: other ? 0.28 : near ? 1 : line.alpha ?? 1 });
      u.ctx.fillStyle = u.ctx.strokeStyle;
      u.ctx.setLineDash((line.dash || []).map((d) => d * width));
    }

    drawLine(u, line, ratio) {
      const { x, y } = line, [from, to] = this.range(), { ctx } = u;
      const first = Math.max(0, search(x, from) - 1), last = Math.min(x.length - 1, search(x, to));
      const dots = last - first < Math.min(40, this.width / 16);
      this.stroke(u, line, ratio);
      const marks = new Path2D(), path = new Path2D();
      let down = false;
      for (let i = first; i <= last; i++) {
        if (y[i] === null || (this.shown.log && y[i] <= 0)) { down = false; continue; }
        const px = u.valToPos(x[i], "x", true), py = u.valToPos(y[i], "y", true);
        if (down) path.lineTo(px, py); else path.moveTo(px, py);
        down = true;
        if (dots) { marks.moveTo(px, py); marks.arc(px, py, (0.6 + line.width * 0.75) * ratio, 0, 7); }
      }
      ctx.stroke(path);
      ctx.fill(marks);
      ctx.globalAlpha = 1;
      ctx.setLineDash([]);
    }

    /** Where each group's lines leave the window. */
    ends(u) {
      const [from, to] = this.range();
      return [...this.labels].map(([group, text]) => {
        const last = this.lines.filter((line) => line.group === group).map((line) => {
          let i = line.x.length - 1;
          while (i >= 0 && line.y[i] === null) i--;
          const x = Math.min(to, line.x[i]);
          return { x, y: i < 0 || x < from ? null : valueAt(line, x), line };
        }).filter((end) => end.y !== null && (!this.shown.log || end.y > 0));
        if (!last.length) return null;
        const y = u.valToPos(mean(last.map((end) => end.y)), "y", true);
        return { group, text, y, from: y, line: last[0].line };
      }).filter(Boolean);
    }

    drawLabels(u, ratio) {
      const { ctx, bbox } = u, right = bbox.left + bbox.width;
      const items = spread(this.ends(u), LABEL_GAP * ratio, bbox.top, bbox.top + bbox.height);
      ctx.save();
      Object.assign(ctx, { font: FONT.replace("12px", `${12 * ratio}px`), textBaseline: "middle",
        textAlign: "left" });
      for (const { text, y, from, line, group } of items) {
        this.stroke(u, line, ratio);
        ctx.setLineDash([]);
        ctx.lineWidth = ratio;
        ctx.beginPath();
        ctx.moveTo(right + 3 * ratio, from);
        ctx.lineTo(right + 20 * ratio, y);
        ctx.stroke();
        ctx.fillStyle = css(this.near === null || this.near === group ? "--ink" : "--muted");
        ctx.globalAlpha = 1;
        ctx.fillText(text, right + 25 * ratio, y);
      }
      ctx.restore();
    }

    /** Values at the cursor, by group, and the group whose line is nearest to it. */
    readings(u) {
      const { left, top } = u.cursor, here = u.posToVal(left, "x");
      let near = null, distance = Infinity;
      for (const line of this.lines) {
        const y = valueAt(line, here);
        const away = y === null ? Infinity : Math.abs(u.valToPos(y, "y") - top);
        if (away < distance) [near, distance] = [line, away];
      }
      if (!near) return null;
      // The nearest line's own point: a number that was measured, not one in between.
      const i = search(near.x, here), last = near.x.length - 1;
      const a = near.x[Math.max(0, i - 1)], b = near.x[Math.min(i, last)];
      const x = here - a < b - here ? a : b, rows = new Map();
      for (const line of this.lines) {
        const y = valueAt(line, x);
        if (y === null) continue;
        if (!rows.has(line.group)) rows.set(line.group, { line, values: [] });
        rows.get(line.group).values.push(y);
      }
      const sorted = [...rows.values()].map((row) => ({ ...row, mean: mean(row.values) }));
      return { x, near: near.group, rows: sorted.sort((p, q) => p.mean - q.mean) };
    }

    hover(u) {
      const found = u.cursor.left >= 0 ? this.readings(u) : null;
      this.tip.hidden = !found;
      const near = found ? found.near : null;
      if (near !== this.near) { this.near = near; u.redraw(false, false); }
      if (!found) return;
      const { yText, xText } = this.shown, roomy = found.rows.length <= 12 && this.width > 520;
      this.tip.replaceChildren(el("div", { class: "tip-x" }, xText(found.x)),
        ...found.rows.map(({ line, values, mean: value }) =>
          el("div", { class: line.group === near ? "tip-row near" : "tip-row" },
            key(line), el("span", { class: "tip-name" }, line.name),
            el("span", { class: "tip-value" }, yText(value)),
            values.length > 1 && roomy ? el("span", { class: "tip-range" },
              `${yText(Math.min(...values))} … ${yText(Math.max(...values))}`) : null)));
      const at = u.cursor.left + u.over.offsetLeft, wide = this.tip.offsetWidth;
      const left = at + 16 + wide <= this.width ? at + 16 : Math.max(0, at - 16 - wide);
      this.tip.style.transform = `translate(${left}px, 10px)`;
    }
  }

  /** Means with whiskers and the points behind them, one row each, best first. */
  function intervalChart(host, rows, { reference, text }) {
    const width = host.clientWidth, narrow = width < 620, gap = narrow ? 50 : 34;
    // Measured in bold, as the baseline's name is.
    pen.font = FONT.replace("12px", "bold 14px");
    const names = rows.map((row) => shorten(row.name, narrow ? width - 20 : width * 0.34, pen.font));
    const side = narrow ? 6 : Math.max(...names.map((name) => pen.measureText(name).width)) + 22;
    const right = width - 82, height = rows.length * gap + 30;
    const all = rows.flatMap((r) => [r.mean, r.low, r.high, ...r.points]).filter((v) => v !== null);
    const least = Math.min(...all), most = Math.max(...all);
    const pad = (most - least) * 0.05 || Math.abs(least) * 0.02 || 1, from = least - pad;
    const scale = (right - side - 16) / (most + pad - from), at = (v) => side + 8 + (v - from) * scale;
    const { ticks, step } = niceTicks(from, most + pad, Math.max(4, (right - side) / 90));
    const upright = (name, v) => svg("line", { class: name, x1: at(v), x2: at(v), y1: 0, y2: height - 26 });
    const root = svg("svg", { class: "intervals", width, height, role: "img",
      "aria-label": "Final validation loss of each arm, best first" });
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
    const group = svg("g", { class: row.style === 0 ? "row baseline" : "row", stroke: colour, fill: colour },
      svg("title", {}, row.about));
    group.append(svg("text", { class: "name", x: 4, y: top + (narrow ? 15 : 20) }, name),
      svg("text", { class: "value", x: width - 4, y: y + 5 }, text(row.mean)));
    for (const point of row.points)
      group.append(svg("circle", { class: "seed", cx: at(point), cy: y + 9, r: 2.6 }));
    if (row.low !== null && row.high !== null)
      group.append(svg("path", { class: "whisker", "stroke-width": thick,
        d: `M${at(row.low)} ${y}H${at(row.high)}M${at(row.low)} ${y - 5}v10M${at(row.high)} ${y - 5}v10` }));
    group.append(svg("circle", { class: "mean", cx: at(row.mean), cy: y, r: 4.5 }));
    return group;
  }

  const renderAll = () => live.forEach((chart) => chart.render());
  return { el, svg, css, readData, palette, lineStyle, sample, number, tickText, search, valueAt, LineChart,
    intervalChart, renderAll };
})();
