/* The line chart.

uPlot gives axes, cursor and zoom. The lines are drawn here, because uPlot wants one x for all of
them, while runs measured against tokens, FLOPs or time each have their own. */
"use strict";

const Charts = (() => {
  const { el, empty, css, key, FONT, textWidth, shorten } = Dom;
  const { tickText, logTicks, decadeTicks, powerText, search, valueAt, spread, mean } = Numbers;
  const MOST_LABELS = 8;
  const LABEL_GAP = 15;
  const HALF = 10; // rows of a tip, before and after the nearest line's
  const live = new Set();

  /** show({lines, window, zoom, onzoom, xLabel, xText, yText, log, xLog, zero, whole, mark, marks,
   * empty}), where xLog says that x are powers of ten; a line is {group, name, label, colour, dash,
   * width, alpha, x, y, low, high, points, smooth}, with dots alone or never: lines of a group
   * (the runs of an arm) share a row in the tooltip and a label, and are emphasised together. */
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
        this.host.replaceChildren(empty(this.shown.empty || "Nothing to show."));
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
      const { log, whole, xLabel, xLog } = this.shown;
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
            ...(xLog && { splits: (u, i, low, high) => decadeTicks(low, high, this.width / 90) }),
            values: (u, s) => s.map((v) => (xLog ? powerText(10 ** v) : tickText(v, step(s)))) },
          { ...axis, space: 38, gap: 6,
            size: (u, texts) => 16 + Math.max(20, ...(texts || []).map((t) => textWidth(t))),
            ...(log && { splits: (u, i, low, high) => logTicks(low, high) }),
            values: (u, s) => (even(s) ? s.map((v) => tickText(v, step(s))) : plain(s)) }],
        hooks: { drawAxes: [(u) => this.draw(u)], setCursor: [(u) => this.hover(u)],
          setSelect: [(u) => this.select(u)] },
      };
    }

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
      const widths = [...this.labels.values()].map((text) => textWidth(text));
      this.labelWidth = Math.ceil(Math.max(0, ...widths));
    }

    draw(u) {
      const { ctx } = u, ratio = u.pxRatio || devicePixelRatio;
      const { left, top, width, height } = u.bbox;
      ctx.save();
      ctx.beginPath();
      ctx.rect(left - ratio, top - 2 * ratio, width + 4 * ratio, height + 4 * ratio);
      ctx.clip();
      if (this.shown.zero) this.drawZero(u, ratio);
      for (const x of this.shown.marks || [this.shown.mark ?? null])
        if (x !== null) this.drawMark(u, ratio, x);
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

    /** An x the page speaks of elsewhere too. */
    drawMark(u, ratio, at) {
      const x = u.valToPos(at, "x", true), { ctx, bbox } = u;
      Object.assign(ctx, { strokeStyle: css("--muted"), lineWidth: ratio });
      ctx.setLineDash([4 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
    }

    drawBand(u, { x, low, high, group, colour }) {
      const at = (i, side) => [u.valToPos(x[i], "x", true), u.valToPos(side[i], "y", true)];
      u.ctx.fillStyle = colour || css("--ink");
      // Many bands at once would be mud: then each shows when its line is pointed at.
      const quiet = this.lines.filter((line) => line.low).length > 5 ? 0.03 : 0.14;
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
      const dots = !line.smooth && last - first < Math.min(40, this.width / 16);
      this.stroke(u, line, ratio);
      const marks = new Path2D(), path = new Path2D();
      let down = false;
      for (let i = first; i <= last; i++) {
        if (y[i] === null || (this.shown.log && y[i] <= 0)) { down = false; continue; }
        const px = u.valToPos(x[i], "x", true), py = u.valToPos(y[i], "y", true);
        if (down) path.lineTo(px, py); else path.moveTo(px, py);
        down = true;
        if (!dots) continue;
        marks.moveTo(px, py);
        marks.arc(px, py, (0.6 + line.width * 0.75) * ratio, 0, 7);
      }
      if (!line.points) ctx.stroke(path);
      ctx.fill(marks);
      ctx.globalAlpha = 1;
      ctx.setLineDash([]);
    }

    /** Where each group's lines leave the window. */
    ends(u) {
      const [from, to] = this.range();
      return [...this.labels].map(([group, text]) => {
        const last = this.lines.filter((line) => line.group === group).map((line) => {
          const i = line.y.findLastIndex((y) => y !== null);
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
      // Of very many lines, those around the nearest.
      const middle = found.rows.findIndex((row) => row.line.group === near);
      const first = Math.max(0, Math.min(middle, found.rows.length - HALF) - HALF);
      this.tip.replaceChildren(el("div", { class: "tip-x" }, xText(found.x)),
        ...found.rows.slice(first, first + 2 * HALF).map(({ line, values, mean: value }) =>
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

  return { LineChart, renderAll: () => live.forEach((chart) => chart.render()) };
})();
