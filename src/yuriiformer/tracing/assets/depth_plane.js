/* Trajectories through depth: the tokens' states in the plane of two principal components. */
"use strict";

const depthPlane = (page) => {
  const { $, el, choice, css, FONT, sample, shorten } = Dom;
  const { data, state, charts } = page;
  const { runs, text, selection, spelled } = data;
  const { niceTicks, tickText, short } = Numbers;
  const EDGE = { left: 58, right: 18, top: 14, bottom: 44 };
  const FEW = 12; // trajectories that can carry the names of their tokens

  class Plane {
    constructor(host, i) {
      Object.assign(this, { host, i, run: runs[i], near: null, trajectories: [] });
      this.canvas = el("canvas", { tabindex: 0, role: "img",
        onmousemove: (event) => this.hover(event), onmouseleave: () => this.point(null),
        onblur: () => this.point(null), onkeydown: (event) => this.walk(event) });
      host.append(this.canvas);
      this.watch = new ResizeObserver(() => {
        if (host.clientWidth && host.clientWidth !== this.width) this.draw();
      });
      this.watch.observe(host);
    }

    get pca() { return text(this.run).pca?.[state.plane.kind]; }

    /** The trajectories of the selected tokens in the chosen two components; not finite: a gap. */
    gather() {
      const [a, b] = state.plane.pair, { pca } = this, colours = data.colours(this.i);
      const at = (point) => ((point?.[a] ?? null) === null || (point[b] ?? null) === null
        ? null : [point[a], point[b]]);
      this.trajectories = pca ? selection(this.i).map((token) => ({ token,
        colour: colours.get(token),
        points: pca.points.map((place) => at(place[token])) })) : [];
      this.near = null;
    }

    /** Equal scale on both axes: lengths and angles are those of the plane. */
    fit() {
      let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
      for (const { points } of this.trajectories)
        for (const [x, y] of data.finite(points)) {
          left = Math.min(left, x); right = Math.max(right, x);
          low = Math.min(low, y); high = Math.max(high, y);
        }
      this.found = left <= right;
      if (!this.found) [left, right, low, high] = [-1, 1, -1, 1];
      const wide = this.width - EDGE.left - EDGE.right, tall = this.height - EDGE.top - EDGE.bottom;
      const room = 1.12, span = Math.max(right - left, high - low) || 1;
      const scale = Math.min(wide / ((right - left) * room || span),
        tall / ((high - low) * room || span));
      const middle = [(left + right) / 2, (low + high) / 2];
      this.view = { scale, wide, tall, middle };
    }

    toPixel([x, y]) {
      const { scale, wide, tall, middle } = this.view;
      return [EDGE.left + wide / 2 + (x - middle[0]) * scale,
        EDGE.top + tall / 2 - (y - middle[1]) * scale];
    }

    draw() {
      const ratio = devicePixelRatio || 1;
      this.width = this.host.clientWidth;
      this.height = Math.round(Math.max(300, Math.min(560, this.width * 0.72)));
      Object.assign(this.canvas, { width: this.width * ratio, height: this.height * ratio });
      Object.assign(this.canvas.style, { width: `${this.width}px`, height: `${this.height}px` });
      this.canvas.setAttribute("aria-label", this.about());
      const ctx = this.canvas.getContext("2d");
      ctx.scale(ratio, ratio);
      this.fit();
      this.drawFrame(ctx);
      const many = this.trajectories.length > FEW;
      for (const one of this.trajectories) this.drawTrajectory(ctx, one, many ? 0.6 : 1);
      this.drawNames(ctx);
    }

    about() {
      const [a, b] = state.plane.pair;
      return `Trajectories of ${this.trajectories.length} tokens, ${this.run.label}, components `
        + `${a + 1} and ${b + 1}. The arrow keys walk along them.`;
    }

    axisText(component) {
      const share = this.pca?.explained?.[component] ?? null;
      return `component ${component + 1}${share === null ? ""
        : ` · ${short(100 * share, 3)} % of the variance`}`;
    }

    drawFrame(ctx) {
      const { scale, wide, tall, middle } = this.view, [a, b] = state.plane.pair;
      const { left, top } = EDGE, right = left + wide, bottom = top + tall;
      const ends = (at, size) => [at - size / 2 / scale, at + size / 2 / scale];
      const { step } = niceTicks(...ends(0, Math.max(wide, tall)), Math.max(wide, tall) / 80);
      const along = (low, high) => Array.from({ length: Math.floor(high / step) -
        Math.ceil(low / step) + 1 }, (_, k) => (Math.ceil(low / step) + k) * step);
      Object.assign(ctx, { font: FONT, fillStyle: css("--muted"), strokeStyle: css("--grid"),
        lineWidth: 1, textAlign: "center", textBaseline: "top" });
      ctx.beginPath();
      for (const x of along(...ends(middle[0], wide))) {
        const [px] = this.toPixel([x, 0]);
        ctx.moveTo(px, top); ctx.lineTo(px, bottom);
        ctx.fillText(tickText(x, step), px, bottom + 5);
      }
      Object.assign(ctx, { textAlign: "right", textBaseline: "middle" });
      for (const y of along(...ends(middle[1], tall))) {
        const [, py] = this.toPixel([0, y]);
        ctx.moveTo(left, py); ctx.lineTo(right, py);
        ctx.fillText(tickText(y, step), left - 6, py);
      }
      ctx.stroke();
      Object.assign(ctx, { textAlign: "center", textBaseline: "bottom" });
      ctx.fillText(this.axisText(a), left + wide / 2, this.height - 4);
      ctx.save();
      ctx.translate(2, top + tall / 2);
      ctx.rotate(-Math.PI / 2);
      Object.assign(ctx, { textBaseline: "top" });
      ctx.fillText(this.axisText(b), 0, 0);
      ctx.restore();
      if (!this.found) ctx.fillText("No token is selected.", left + wide / 2, top + tall / 2);
    }

    /** Up to the chosen layer in full, the rest as a shadow of what is to come. */
    drawTrajectory(ctx, { points, colour, token }, strength) {
      const { places } = this.pca, here = state.depth * this.run.n_layer + 1e-9;
      const faint = this.near && this.near.token !== token ? 0.3 : 1;
      // Two parts, each two paths: one stroke and one fill, however many points.
      const parts = [true, false].map((passed) => ({ passed, line: new Path2D(),
        dots: new Path2D() }));
      let before = null, last = null;
      points.forEach((point, k) => {
        if (!point) { before = null; return; }
        const [x, y] = this.toPixel(point), passed = places[k].row <= here;
        const { line, dots } = parts[passed ? 0 : 1], whole = Number.isInteger(places[k].row);
        if (before) { line.moveTo(...before); line.lineTo(x, y); }
        const ring = k === 0 ? line : dots; // an open ring: the start
        const radius = k === 0 ? 4.5 : whole ? 2.7 * Math.sqrt(strength) : 1.2;
        ring.moveTo(x + radius, y);
        ring.arc(x, y, radius, 0, 7);
        before = [x, y];
        if (passed) last = [x, y];
      });
      Object.assign(ctx, { strokeStyle: colour, fillStyle: colour, lineWidth: strength * 1.6 });
      for (const { passed, line, dots } of parts) {
        ctx.globalAlpha = (passed ? strength : 0.16) * faint;
        ctx.stroke(line);
        ctx.fill(dots);
      }
      if (last) this.drawHere(ctx, last, colour, faint, 5.5 * Math.sqrt(strength));
      ctx.globalAlpha = 1;
    }

    drawHere(ctx, place, colour, alpha, radius) {
      Object.assign(ctx, { globalAlpha: alpha, fillStyle: colour, strokeStyle: css("--bg"),
        lineWidth: 1.5 });
      ctx.beginPath();
      ctx.arc(...place, radius, 0, 7);
      ctx.fill();
      ctx.stroke();
    }

    /** Tokens at their last place; layers by number, sparsely, on the few or on the one meant. */
    drawNames(ctx) {
      const { pieces } = text(this.run), here = state.depth * this.run.n_layer + 1e-9;
      const named = this.near ? this.trajectories.filter((one) => one.token === this.near.token)
        : this.trajectories.length <= FEW ? this.trajectories : [];
      const taken = [];
      Object.assign(ctx, { font: FONT, textAlign: "left", textBaseline: "middle", lineWidth: 3,
        lineJoin: "round", strokeStyle: css("--bg") });
      const write = (words, [x, y], ink) => {
        ctx.fillStyle = css(ink);
        ctx.strokeText(words, x, y);
        ctx.fillText(words, x, y);
      };
      for (const { token, points } of named) {
        const k = points.findLastIndex((point, at) => point && this.pca.places[at].row <= here);
        if (k < 0) continue;
        const words = shorten(spelled(pieces[token]), 90);
        const place = this.freePlace(points, k, Dom.textWidth(words), taken);
        if (place) write(words, place, "--ink");
        if (named.length > 3) continue;
        for (const layer of this.numbered())
          if (points[layer] && layer !== k) {
            const [x, y] = this.toPixel(points[layer]);
            write(String(this.pca.places[layer].row), [x - 3, y - 11], "--muted");
          }
      }
    }

    /** Beside the end of a trajectory, ahead of it if there is room; null where all is taken. */
    freePlace(points, k, width, taken) {
      const [x, y] = this.toPixel(points[k]), before = points[k - 1] && this.toPixel(points[k - 1]);
      const right = [x + 9, y], left = [x - 9 - width, y], middle = x - width / 2;
      const sides = before && before[0] > x ? [left, right] : [right, left];
      const free = ([px, py]) => px >= EDGE.left && px + width <= this.width
        && taken.every(([qx, qy, other]) => Math.abs(py - qy) > 13 || px > qx + other + 4
          || qx > px + width + 4);
      const found = [...sides, [middle, y - 14], [middle, y + 14]].find(free);
      if (found) taken.push([...found, width]);
      return found || null;
    }

    /** The places whose layer is written beside them: some four of a trajectory. */
    numbered() {
      const each = Math.max(1, Math.ceil(this.run.n_layer / 4));
      return this.pca.places.flatMap(({ row }, k) => (row > 0 && row % each === 0 ? [k] : []));
    }

    // ---- pointing

    hover({ offsetX, offsetY }) { // the nearest place within reach
      let found = null, least = 20 ** 2;
      for (const { token, points } of this.trajectories)
        points.forEach((point, k) => {
          if (!point) return;
          const [x, y] = this.toPixel(point), away = (x - offsetX) ** 2 + (y - offsetY) ** 2;
          if (away < least) [found, least] = [{ token, k }, away];
        });
      this.point(found);
    }

    point(near) {
      const before = this.near;
      this.near = near;
      if (!near) page.tip.hide(); else this.explain();
      if (before?.token !== near?.token || before?.k !== near?.k) this.draw();
    }

    explain() {
      const { token, k } = this.near, { row, label } = this.pca.places[k];
      const { pieces } = text(this.run);
      const point = this.trajectories.find((one) => one.token === token).points[k];
      const [a, b] = state.plane.pair;
      page.tip.show([el("div", { class: "tip-x" }, `${token + 1} ${spelled(pieces[token])}`),
        el("div", {}, this.placeName(row, label)), el("div", { class: "tip-true" },
          `(${short(point[0], 3)}, ${short(point[1], 3)}) in components ${a + 1} and ${b + 1}`)],
      () => {
        const { left, top } = this.canvas.getBoundingClientRect(), [x, y] = this.toPixel(point);
        return [left + x, top + y];
      });
    }

    placeName(row, label) {
      const where = Number.isInteger(row) ? data.rowName(row) : `in layer ${Math.floor(row)}`;
      return row && label ? `${where}: ${label}` : where;
    }

    walk(event) {
      const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
      if (!(event.key in by) || !this.found) return;
      event.preventDefault();
      const [up, place] = by[event.key], { trajectories } = this;
      const now = this.near ? trajectories.findIndex(({ token }) => token === this.near.token) : 0;
      const next = trajectories[Math.max(0, Math.min(trajectories.length - 1, now + up))];
      const from = this.near ? this.near.k + place : 0;
      const step = place || 1;
      let k = Math.max(0, Math.min(next.points.length - 1, from));
      while (next.points[k] === null) k += step;
      if (next.points[k]) this.point({ token: next.token, k });
    }
  }

  function controls() {
    const set = (changes) => { Object.assign(state.plane, changes); draw(true); };
    const kinds = [["directions", "directions"], ["raw", "as they are"]]
      .filter(([kind]) => runs.some((run) => text(run).pca?.[kind]));
    if (!kinds.some(([kind]) => kind === state.plane.kind)) state.plane.kind = kinds[0]?.[0];
    $("plane-controls").replaceChildren(
      choice("components", [["0-1", "1 and 2"], ["0-2", "1 and 3"], ["1-2", "2 and 3"]],
        state.plane.pair.join("-"), (pair) => set({ pair: pair.split("-").map(Number) })),
      kinds.length ? choice("states", kinds, state.plane.kind, (kind) => set({ kind })) : "");
  }

  function draw(anew) {
    for (const plane of charts.planes) {
      if (anew) plane.gather();
      plane.draw();
    }
    $("plane-note").textContent = [
      "Ring: the start. Large dot: the chosen layer. Small dots: steps inside a layer.",
      state.plane.kind === "directions" ? "Directions: each state as the final norm sees it."
        : "States as they are, with their lengths.",
      data.help("pca")].filter(Boolean).join(" ");
  }

  const hosts = runs.map((run) => el("div", { class: "plane" }));
  $("planes").append(...runs.map((run, i) => el("figure", { class: "column" },
    el("h3", {}, sample(run.style), run.label), hosts[i])));
  charts.planes = hosts.map((host, i) => new Plane(host, i));
  page.on(["text"], () => { controls(); draw(true); });
  page.on(["selection"], () => draw(true));
  page.on(["depth", "theme"], () => draw(false));
};
