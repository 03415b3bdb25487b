/* What the heads have learnt: their linear maps, which no text changes. */
"use strict";

const depthMaps = (page) => {
  const { $, el, pickFrom, sample } = Dom;
  const { runs, title, help, finite } = page.data;
  const { short } = Numbers;
  const names = [...new Set(runs.flatMap((run) => (run.maps || []).map(({ name }) => name)))];
  let chosen = names[0];

  const columns = (run) => {
    const found = (run.maps || []).find(({ name }) => name === chosen);
    return found ? found.layers.map((values, layer) => ({ layer, name: chosen, values })) : [];
  };

  function draw() {
    const all = runs.map(columns);
    const known = runs.flatMap((run) => run.maps || []).find(({ name }) => name === chosen);
    const values = finite(all.flat().flatMap((one) => one.values));
    const [low, high] = known.ends || [0, Math.max(...values, 0)];
    const signed = low < 0; // then 0 is no colour, and each sign has its own
    $("map-view").replaceChildren(
      el("h3", {}, page.capital(title(chosen))),
      el("p", { class: "note" }, help(chosen)),
      el("div", { class: "scale" }, el("span", {}, short(low, 3)),
        el("span", { class: signed ? "ramp signed" : "ramp" }), el("span", {}, short(high, 3))),
      el("div", { class: "pair" }, runs.map((run, i) => el("figure", { class: "column" },
        el("figcaption", {}, sample(run.style), run.label), all[i].length
          ? el("div", { class: "scroll", tabindex: 0, role: "region",
            "aria-label": `Maps of ${run.label}` }, page.headMap(run, all[i], { low, high, signed }))
          : Dom.empty("Nothing is known of its maps.")))));
  }

  if (!names.length) {
    $("map-view").replaceChildren(Dom.empty("Nothing is known of its maps."));
    return;
  }
  $("map-controls").replaceChildren(pickFrom("quantity",
    [["", names.map((name) => [name, page.capital(title(name))])]],
    (value) => { chosen = value; draw(); }, chosen));
  draw();
};
