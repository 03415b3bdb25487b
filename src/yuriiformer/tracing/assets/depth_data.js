/* What the views share: quantities by name, the selection of tokens and layer, tokens as text. */
"use strict";

const depthData = ({ payload, state, changed }) => {
  const { el } = Dom;
  const { runs } = payload;
  const MARKS = { " ": "·", "\n": "↵", "\r": "␍", "\t": "⇥" };
  const TITLES = {
    lens_loss: "loss of the true token (nats)", lens_rank: "rank of the true token",
    lens_probability: "probability of the true token",
    lens_kl: "divergence from the last prediction (nats)", step_length: "length of the step",
    turning: "turning angle (degrees)", interaction: "interaction",
    norm: "norm of what the step made", argument_norm: "norm of what the oracle was asked at",
    cosine_before: "cosine with the stream before", cosine_velocity: "cosine of the answer with V",
    cosine_state: "cosine of the answer with X", entropy: "entropy of attention (nats)",
    log_partition: "log partition of attention", potential: "potential of the MLP",
    log_energy: "log energy of the text", potential_energy: "potential energy of the text",
    length: "length of the move", effective_depth: "effective depth",
    path_length: "length of the trajectory", path_net: "distance from start to end",
    path_straightness: "straightness of the trajectory",
    straightness: "straightness of the trajectory",
    pca: "principal components",
    value_output_attraction: "value–output maps: attraction",
    query_key_attraction: "query–key maps: attraction",
    value_output_symmetric: "value–output maps: share of the symmetric part",
    query_key_symmetric: "query–key maps: share of the symmetric part",
    value_output_norm: "value–output maps: norm", query_key_norm: "query–key maps: norm",
    alignment: "cosine of the value–output and query–key maps",
    mlp_alignment: "MLP: cosine of W and Aᵀ",
  };

  const title = (name) => TITLES[name] || name.replace(/^norm_/, "norm of ").replaceAll("_", " ");
  const plain = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, " ").trim();
  const terms = new Map((payload.reading || []).map(({ term, text }) => [plain(term), text]));

  const text = (run) => run.texts[state.text];
  const known = (source) => {
    const names = runs.flatMap((run) => Object.keys(text(run)[source] || {}));
    return [...new Set(names)];
  };

  /** What the payload says of a quantity, under its own name, its title or its family's name. */
  function help(name) {
    const ofWhole = name.replace(/^path_/, ""); // steps may have a quantity of that name: not it
    const names = [name, title(name), title(name).replace(/ \(.*/, ""), name.split("_")[0],
      ...(known("by_step").includes(ofWhole) ? [] : [ofWhole])];
    return names.map((key) => terms.get(plain(key))).find((found) => found !== undefined) || "";
  }

  // ---- tokens as text

  /** Signs for what would not be seen: spaces, line ends, control characters, nothing at all. */
  function signs(piece) {
    if (!piece) return [["∅", true]];
    return [...piece].map((one) => {
      if (one in MARKS) return [MARKS[one], true];
      const code = one.codePointAt(0);
      if (code < 32) return [String.fromCodePoint(0x2400 + code), true];
      // A joiner between the parts of an emoji does its work unseen.
      if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(one) && (code !== 0x200d || piece === one))
        return [`U+${code.toString(16).toUpperCase().padStart(4, "0")}`, true];
      return [one, false];
    });
  }
  const spelled = (piece) => (piece === null || piece === undefined ? "–"
    : signs(piece).map(([sign]) => sign).join(""));

  /** The same as nodes, with the signs set apart; long pieces are cut. */
  function shown(piece, most = 18) {
    if (piece === null || piece === undefined) return [el("span", { class: "sign" }, "–")];
    const all = signs(piece), nodes = [];
    for (const [sign, special] of all.length > most ? all.slice(0, most - 1) : all) {
      const last = nodes[nodes.length - 1];
      if (special) nodes.push(el("span", { class: "sign" }, sign));
      else if (typeof last === "string") nodes[nodes.length - 1] += sign;
      else nodes.push(sign);
    }
    return all.length > most ? [...nodes, "…"] : nodes;
  }

  // ---- the selection

  /** Whether all runs cut the text into the same tokens. */
  function same() {
    const [first, ...others] = runs.map(text);
    return others.every(({ tokens, pieces }) => tokens.length === first.tokens.length
      && tokens.every((token, i) => token === first.tokens[i] && pieces[i] === first.pieces[i]));
  }

  /** The selected tokens of a run, in the order of the text. */
  const selection = (i) => [...state.selected[i]].sort((a, b) => a - b);

  function select(i, tokens) {
    const chosen = new Set(tokens);
    state.selected = runs.map((_, j) => (same() || i === j ? chosen : state.selected[j]));
    changed("selection");
  }

  /** At first the end of the text, where a model has read the most. */
  function begin() {
    const last = (run) => {
      const { length } = text(run).tokens, from = Math.max(0, length - 10);
      return new Set(Array.from({ length: length - from }, (_, k) => from + k));
    };
    state.selected = runs.map(last);
    if (same()) state.selected.fill(state.selected[0]);
  }

  /** One of several colours: few are far apart; many go around the circle in their order. */
  const apart = (at, count) => (count < Dom.palette.colours.length ? Dom.palette.colours[at]
    : `hsl(${(225 + (300 * at) / (count - 1)) % 360} 62% 52%)`);

  /** The colour of each selected token. */
  function colours(i) {
    const chosen = selection(i);
    return new Map(chosen.map((token, at) => [token, apart(at, chosen.length)]));
  }

  // ---- the depth: how many blocks are done

  const deepest = Math.max(1, ...runs.map((run) => run.n_layer));
  const row = (run) => Math.round(state.depth * run.n_layer);
  const rowName = (at) => (at === 0 ? "before the first block" : `after ${at} block${at > 1 ? "s" : ""}`);

  /** Where charts mark the chosen depth; the last needs no mark, and with two depths there is
   * only one of shares. */
  function mark(fraction) {
    const depths = new Set(runs.map((run) => run.n_layer));
    if (state.depth === 1 || (!fraction && depths.size > 1)) return null;
    return fraction ? state.depth : row(runs[0]);
  }

  /** A quantity of one token: after the last or the chosen layer, or of its whole trajectory. */
  function ofToken(run, key, token) {
    const t = text(run), [where, name] = key.split(":");
    if (where === "depth") return t.effective_depth?.[token] ?? null;
    if (where === "path") return t.path?.[name.replace(/^path_/, "")]?.[token] ?? null;
    return t.by_layer[name]?.[where === "last" ? run.n_layer : row(run)]?.[token] ?? null;
  }
  const finite = (values) => values.filter((value) => value !== null && value !== undefined);
  const mean = (values) => (finite(values).length ? Numbers.mean(finite(values)) : null);

  return { runs, title, help, text, known, spelled, shown, same, selection, select, begin, apart,
    colours, deepest, row, rowName, mark, ofToken, finite, mean };
};
