/* What does not change with the selection: coefficients, blocks, how to read and how to repeat. */
"use strict";

const depthText = ({ payload, charts, data }) => {
  const { $, el, empty, facts, command, sample, lineStyle } = Dom;
  const { runs, title } = data;
  const { short } = Numbers;

  /** A small chart for each name, with the runs that have it. */
  function coefficients() {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.coefficients || {})))];
    if (!names.length) {
      $("coefficient-charts").replaceWith(empty("There are no learned coefficients."));
      return;
    }
    charts.coefficients = names.map((name) => {
      const host = el("div"), having = runs.filter((run) => Object.hasOwn(run.coefficients || {}, name));
      // One line of two runs is named in the caption: beside it a long name would be cut.
      const whose = having.length < runs.length ? ` · ${having[0].label}` : "";
      $("coefficient-charts").append(el("figure", {}, el("figcaption", {}, name, whose), host));
      const lines = having.map((run) => ({ ...lineStyle(run.style), group: runs.indexOf(run),
        name: run.label, label: having.length > 1 ? run.label : null, y: run.coefficients[name],
        x: run.coefficients[name].map((_, k) => k) }))
        .filter(({ y }) => y.some((value) => value !== null));
      const chart = new Charts.LineChart(host, { height: 210, about: `${name} over depth` });
      chart.show({ lines, window: [0, Math.max(1, ...lines.map(({ y }) => y.length - 1))], whole: true,
        xLabel: "layer", xText: (layer) => `layer ${layer}`, yText: (y) => short(y),
        empty: "It has no numbers." });
      return chart;
    });
  }

  function blocks() {
    const seen = new Set();
    for (const run of runs) {
      const same = JSON.stringify([run.rule, run.equations]);
      if (seen.has(same)) continue;
      seen.add(same);
      $("block-list").append(el("article", { class: "block" },
        el("h3", {}, sample(run.style), run.rule), run.equations.length
          ? el("pre", { class: "equations", tabindex: 0 }, run.equations.join("\n"))
          : empty("There are no equations.")));
    }
  }

  function reading() {
    const list = payload.reading || [];
    $("terms").append(list.length ? el("dl", { class: "facts reading" },
      list.map(({ term, text }) => [el("dt", { title: term }, title(term)), el("dd", {}, text)]))
      : empty("Nothing is said about the quantities."));
  }

  function repeat() {
    $("commands").append(...payload.commands.map((one) =>
      el("div", { class: "step" }, el("p", {}, one.what), command(one.command))));
    $("run-facts").append(...runs.map((run) => el("div", { class: "column" },
      el("h3", {}, sample(run.style), run.label), facts(run.facts))));
  }

  coefficients();
  blocks();
  reading();
  repeat();
};
