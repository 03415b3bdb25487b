/* Quantities over depth as the lines of a chart: means over the selected tokens, or each token. */
"use strict";

const depthLines = ({ data }) => {
  const { runs, text, selection, colours, spelled, title, mean } = data;
  const MOST_TOKENS = 20;
  const DASHED = [3.7, 1.6]; // the second run's, where the colour says something else

  /** The steps of a run, those of one place in the block together: a list by layer each. What
   * is assigned goes by its label (Xₜ₊½ of two rules is the same), an oracle by its name, since
   * rules ask it at different points; repeated ones in a block are counted. */
  function seriesOf(run) {
    const found = new Map(), seen = new Map();
    run.steps.forEach(({ layer, name, kind, label }, index) => {
      const short = kind === "assign" && label ? label : name, place = `${layer} ${short}`;
      const times = seen.get(place) || 0, key = `${short}#${times}`;
      seen.set(place, times + 1);
      if (!found.has(key)) found.set(key, { key, short, label: label || name, times, steps: [] });
      found.get(key).steps.push({ layer, index });
    });
    const often = (one) => [...found.values()].some((other) =>
      other !== one && other.label === one.label);
    for (const one of found.values()) {
      const which = ["first", "second", "third"][one.times] || `${one.times + 1}th`;
      one.which = often(one) ? ` (${which})` : "";
      one.title = `${one.label}${one.which}`;
    }
    return [...found.values()];
  }

  /** The series of a quantity, keyed alike in both runs; where they write a step differently, it
   * has its name only. The run with the longer block gives the order. */
  function seriesWith(name) {
    const found = new Map(), all = runs.map((run) => {
      const rows = text(run).by_step?.[name] || [];
      return seriesOf(run).filter((one) => one.steps.some(({ index }) => rows[index]));
    });
    for (const one of all.sort((a, b) => b.length - a.length).flat()) {
      const before = found.get(one.key);
      if (!before) found.set(one.key, one);
      else if (before.title !== one.title) before.title = `${one.short}${before.which}`;
    }
    return [...found.values()];
  }

  /** One x and one row a depth; a row has a number for each token, or one for the whole text. */
  function tracks(run, { source, name, hidden }) {
    const t = text(run), rows = t[source]?.[name];
    if (!rows) return [];
    if (source !== "by_step") return [{ key: "", x: rows.map((_, i) => i), rows }];
    return seriesOf(run).filter((one) => !hidden.has(one.key)).map((one) => {
      const steps = one.steps.filter(({ index }) => rows[index]);
      return { key: one.key, title: one.title, x: steps.map(({ layer }) => layer),
        rows: steps.map(({ index }) => rows[index]) };
    });
  }

  const of = (row, token) => row?.[token] ?? null;

  function meanLine(i, track, keys, options) {
    const run = runs[i], chosen = selection(i), several = keys.length > 1;
    const y = track.rows.map((row) => (options.source === "whole" ? row
      : mean(chosen.map((token) => of(row, token)))));
    const look = several ? { colour: data.apart(keys.indexOf(track.key), keys.length),
      dash: i ? DASHED : [], width: 2 } : Dom.lineStyle(run.style);
    const parts = [several && track.title, runs.length > 1 && run.label].filter(Boolean);
    const label = parts.join(" · ");
    return { ...look, group: `${i} ${track.key}`, run: i, series: track.key, x: track.x, y,
      name: label || title(options.name), label: label || null };
  }

  function tokenLines(i, track, keys) {
    const pieces = text(runs[i]).pieces, colour = colours(i);
    const more = [keys.length > 1 && track.title, runs.length > 1 && runs[i].label].filter(Boolean);
    return selection(i).slice(0, MOST_TOKENS).map((token) => {
      const name = [`${token + 1} ${spelled(pieces[token])}`, ...more].join(" · ");
      return { group: `${i} ${track.key} ${token}`, run: i, series: track.key, token, x: track.x,
        y: track.rows.map((row) => of(row, token)), colour: colour.get(token), width: 1.5,
        dash: i ? DASHED : [], name, label: name };
    });
  }

  /** Lines of options {source, name, hidden, mode: "mean" | "tokens", fraction}. */
  function lines(options) {
    const all = runs.map((run) => tracks(run, options));
    const whole = options.source === "whole";
    // Of all steps, hidden ones too: a line keeps its colour when others go.
    const keys = options.source === "by_step"
      ? seriesWith(options.name).map((one) => one.key) : [""];
    const made = all.flatMap((list, i) => list.flatMap((track) =>
      (options.mode === "tokens" && !whole ? tokenLines(i, track, keys)
        : [meanLine(i, track, keys, options)])));
    const ends = options.source === "by_step" ? 1 : 0; // a step's layer ends one block further on
    const scaled = made.map((line) => (options.fraction ? { ...line,
      x: line.x.map((x) => (x + ends) / Math.max(1, runs[line.run].n_layer)) } : line));
    return scaled.filter((line) => line.y.some((y) => y !== null));
  }

  /** All that a chart needs, and in words what its lines are. */
  function chart(options) {
    const made = lines(options), { fraction, log } = options;
    const xs = made.flatMap((line) => line.x), yText = (y) => Numbers.short(y);
    const steps = options.source === "by_step", here = data.mark(fraction);
    const place = (x) => (steps ? `layer ${x}` : data.rowName(x));
    return { lines: made, log, yText, window: [Math.min(...xs), Math.max(...xs)],
      mark: steps && !fraction && here !== null ? here - 1 : here, whole: !fraction,
      xLabel: fraction ? "share of the depth" : steps ? "layer" : "blocks",
      xText: fraction ? (x) => `${Numbers.short(100 * x, 3)} % of the depth` : place,
      empty: "Nothing to draw: select a token, or another quantity." };
  }

  function words({ mode, source }, made) {
    const said = [];
    const tokens = mode === "tokens" && source !== "whole";
    const most = Math.max(...runs.map((_, i) => data.selection(i).length));
    if (source === "whole") said.push("Of the whole text, whatever is selected.");
    else if (tokens && most > MOST_TOKENS)
      said.push(`The first ${MOST_TOKENS} of ${most} selected tokens are drawn.`);
    else if (!tokens) said.push("Mean over the selected tokens that have a number.");
    const several = new Set(made.map((line) => line.series)).size > 1;
    if (runs.length > 1 && (tokens || several))
      said.push(`Solid: ${runs[0].label}. Dashed: ${runs[1].label}.`);
    return said.join(" ");
  }

  return { seriesWith, lines, chart, words };
};
