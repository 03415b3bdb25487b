/* Curves over depth of any quantity that was traced: by layer, by step, or of the whole text. */
"use strict";

const depthCurves = (page) => {
  const { $, el, choice, check, pickFrom, key } = Dom;
  const { data, state, charts, lines } = page;
  const { title, help } = data;
  const SOURCES = [["by_layer", "after each layer"], ["by_step", "at each step of a layer"],
    ["whole", "of the whole text"]];

  const options = () => {
    const [source, name] = (state.curve.quantity || ":").split(":");
    return { source, name, hidden: state.curve.hidden, mode: state.curve.mode,
      log: state.curve.log, fraction: state.fraction };
  };

  function draw() {
    const now = options();
    if (!state.curve.quantity) {
      charts.curve.show({ lines: [], empty: "No quantity was traced." });
      return;
    }
    const shown = lines.chart(now), words = help(now.name);
    charts.curve.show(shown);
    $("curve-title").textContent = page.capital(title(now.name));
    $("curve-help").textContent = words;
    $("curve-help").hidden = !words;
    $("curve-note").textContent = lines.words(now, shown.lines);
  }

  /** The steps of a block as switches, where a quantity has several. */
  function legend() {
    const { source, name } = options();
    const found = source === "by_step" ? lines.seriesWith(name) : [];
    state.curve.hidden = new Set();
    $("curve-legend").hidden = found.length < 2;
    const toggle = (one) => (event) => {
      if (!state.curve.hidden.delete(one.key)) state.curve.hidden.add(one.key);
      event.currentTarget.setAttribute("aria-pressed", !state.curve.hidden.has(one.key));
      draw();
    };
    $("curve-legend").replaceChildren(...found.map((one, j) =>
      el("button", { type: "button", class: "entry", "aria-pressed": true,
        "data-series": one.key, onclick: toggle(one) },
      key({ colour: data.apart(j, found.length), width: 2 }), one.title)));
  }

  function controls() {
    const groups = SOURCES.map(([source, words]) => [words, data.known(source)
      .map((name) => [`${source}:${name}`, title(name), help(name)])])
      .filter(([, list]) => list.length);
    const keys = groups.flatMap(([, list]) => list.map(([value]) => value));
    if (!keys.includes(state.curve.quantity))
      state.curve.quantity = keys.find((value) => value === "by_layer:norm_X") || keys[0] || null;
    const set = (changes) => { Object.assign(state.curve, changes); draw(); };
    $("curve-controls").replaceChildren(...(keys.length ? [
      pickFrom("quantity", groups, (quantity) => {
        state.curve.quantity = quantity;
        legend();
        draw();
      }, state.curve.quantity),
      choice("lines", [["mean", "mean"], ["tokens", "each token"]], state.curve.mode,
        (mode) => set({ mode })),
      el("div", { class: "checks" }, check("log y axis", state.curve.log, (log) => set({ log })),
        page.shareCheck())] : []));
    legend();
  }

  charts.curve = new Charts.LineChart($("curve-chart"),
    { height: 360, about: "A quantity over depth" });
  page.on(["text"], () => { controls(); draw(); });
  page.on(["selection", "axis"], draw);
  page.on(["depth"], () => page.remark(charts.curve));
};
