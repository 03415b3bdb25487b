/* The depth page: one or two runs seen from the inside, on the same text, token and layer. */
"use strict";

const depth = (() => {
  const { $, el, pickFrom } = Dom;
  const { palette, payload } = Dom.readData();
  Object.assign(Dom.palette, palette);
  const { runs } = payload;
  const PACE = 500; // ms per layer while playing

  // The layer is a share of the depth, so that runs of different depth have it in common.
  const state = { text: 0, depth: 1, selected: runs.map(() => new Set()), colour: "last:lens_loss",
    lens: { name: "lens_loss", mode: "mean", log: false }, fraction: false,
    plane: { pair: [0, 1], kind: "directions" },
    curve: { quantity: null, mode: "mean", log: false, hidden: new Set() } };
  const views = [];
  const page = { payload, state, charts: {},
    on: (topics, view) => views.push([topics, view]),
    changed: (topic) => views.forEach(([topics, view]) => topics.includes(topic) && view()) };
  page.data = depthData(page);
  page.lines = depthLines(page);
  page.tip = Dom.floatingTip();
  page.capital = (words) => words.charAt(0).toUpperCase() + words.slice(1);

  /** A chart's mark follows the chosen layer without drawing its lines' numbers anew. */
  page.remark = (chart) => {
    if (!chart.u) return;
    chart.shown.mark = page.data.mark(state.fraction);
    chart.u.redraw(false, false);
  };
  /** A switch of the x axis for runs of different depth; all of them show the same. */
  page.shareCheck = () => {
    if (new Set(runs.map((run) => run.n_layer)).size < 2) return null;
    const node = Dom.check("share of the depth", state.fraction, (fraction) => {
      state.fraction = fraction;
      document.querySelectorAll(".share input").forEach((box) => { box.checked = fraction; });
      page.changed("axis");
    });
    node.classList.add("share");
    return node;
  };
  page.goTo = (share) => {
    state.depth = Math.max(0, Math.min(1, share));
    page.changed("depth");
  };
  page.show = (text) => {
    state.text = text;
    page.data.begin();
    page.changed("text");
  };

  const brief = (name) => (name.length > 48 ? `${name.slice(0, 47)}…` : name || "(no name)");

  /** The text and the layer, in reach wherever one reads. */
  function toolbar() {
    const last = page.data.deepest, said = el("output", { class: "layer-name" });
    const slider = el("input", { type: "range", min: 0, max: last, step: 1, value: last,
      "aria-label": "depth", oninput: () => { stop(); page.goTo(+slider.value / last); } });
    const play = el("button", { type: "button", class: "quiet", id: "play" }, "Play");
    let timer = null;
    const stop = () => {
      clearInterval(timer);
      timer = null;
      play.textContent = "Play";
    };
    const step = () => {
      if (state.depth >= 1) stop(); else page.goTo((Math.round(state.depth * last) + 1) / last);
    };
    play.addEventListener("click", () => {
      if (timer) { stop(); return; }
      if (state.depth >= 1) page.goTo(0);
      play.textContent = "Pause";
      timer = setInterval(step, PACE);
    });
    const tell = () => {
      slider.value = Math.round(state.depth * last);
      const names = new Set(runs.map((run) => `${page.data.row(run)} of ${run.n_layer}`));
      said.textContent = `after ${[...names].join(" · ")} blocks`;
      slider.setAttribute("aria-valuetext", said.textContent);
    };
    page.on(["depth"], tell);
    $("toolbar").append(...(runs[0].texts.length > 1 ? [pickFrom("text", [["", runs[0].texts
      .map((text, i) => [i, brief(text.name)])]], (i) => page.show(+i), 0)] : []),
    el("div", { class: "layers" }, slider, said, play));
    tell();
  }

  Dom.heading(payload);
  depthText(page);
  if (runs.length && runs[0].texts.length) {
    toolbar();
    depthTokens(page);
    depthLens(page);
    depthPlane(page);
    depthCurves(page);
    depthHeads(page);
    depthMaps(page);
    page.show(0);
  } else {
    $("toolbar").hidden = true;
    for (const id of ["text", "prediction", "trajectory", "curves", "maps"])
      $(id).replaceChildren($(id).querySelector("h2"), Dom.empty("No text was traced."));
  }
  Dom.theme($("theme"), () => { Charts.renderAll(); page.changed("theme"); });
  return page;
})();

window.depth = depth;
document.documentElement.dataset.ready = "true";
