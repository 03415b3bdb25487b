/* The text: its tokens as buttons, coloured by a quantity; their selection drives the rest. */
"use strict";

const depthTokens = (page) => {
  const { $, el, pickFrom, sample } = Dom;
  const { data, state } = page;
  const { runs, text, shown, spelled, selection, select, ofToken, title, help } = data;
  const { short } = Numbers;
  const lists = runs.map(() => ({ chips: [] }));
  const anchors = runs.map(() => 0); // where a range begins
  let most = 8;

  const has = (key) => runs.some((run) =>
    text(run).tokens.some((_, token) => ofToken(run, key, token) !== null));

  /** What the tokens may be coloured by, as groups of a picker. */
  function colourings() {
    const layer = data.known("by_layer");
    const of = (where, names) => names.map((name) => [`${where}:${name}`, title(name), help(name)]);
    const whole = [["depth:effective_depth", title("effective_depth"), help("effective_depth")],
      ...of("path", data.known("path").map((name) => `path_${name}`))];
    return [["after the last layer", of("last", layer).filter(([key]) => has(key))],
      ["of the whole trajectory", whole.filter(([key]) => has(key))],
      ["at the chosen layer", of("here", layer)]].filter(([, list]) => list.length);
  }

  // ---- colour

  /** One scale for both runs, or colours could not be compared. Ranks differ by factors. */
  function scale() {
    const key = state.colour, log = key?.endsWith("_rank");
    const all = key ? data.finite(runs.flatMap((run) =>
      text(run).tokens.map((_, token) => ofToken(run, key, token)))) : [];
    const size = (value) => (log ? Math.log(Math.max(1, value)) : value);
    const low = Math.min(...all), high = Math.max(...all), span = size(high) - size(low);
    return { low, high, known: all.length > 0,
      share: (value) => (span > 0 ? (size(value) - size(low)) / span : 0.5) };
  }

  const layers = () => [...new Set(runs.map((run) => data.rowName(data.row(run))))].join(" and ");

  function paint() {
    const { low, high, known, share } = scale();
    $("scale").hidden = !known;
    $("scale").replaceChildren(el("span", {}, short(low, 3)), el("span", { class: "ramp" }),
      el("span", {}, short(high, 3)));
    runs.forEach((run, i) => lists[i].chips.forEach((chip, token) => {
      const value = state.colour ? ofToken(run, state.colour, token) : null;
      const part = value === null ? 0 : share(value);
      chip.style.setProperty("--share", `${(100 * part).toFixed(1)}%`);
      chip.classList.toggle("unknown", value === null);
      chip.title = about(run, token, value);
    }));
    const [where, name] = (state.colour || ":").split(":");
    const at = { last: ", after the last layer", here: `, ${layers()}` }[where] || "";
    $("colour-help").textContent = known ? `Colour: ${title(name)}${at}. ${help(name)}` : "";
  }

  function about(run, token, value) {
    const t = text(run), target = t.target_pieces[token];
    const next = target === null || target === undefined ? "no known next token"
      : `next: ${spelled(target)}`;
    const said = value === null ? [] : [`${title(state.colour.split(":")[1])}: ${short(value)}`];
    return [`${spelled(t.pieces[token])} · token ${token + 1}, number ${t.tokens[token]}`, next,
      ...said].join("\n");
  }

  function mark() {
    runs.forEach((run, i) => {
      const colours = data.colours(i), { chips, note } = lists[i];
      chips.forEach((chip, token) => {
        chip.setAttribute("aria-pressed", colours.has(token));
        chip.style.setProperty("--token", colours.get(token) || "transparent");
      });
      const loss = (tokens) =>
        data.mean(tokens.map((token) => ofToken(run, "last:lens_loss", token)));
      const whole = loss(chips.map((_, token) => token)), part = loss([...colours.keys()]);
      note.textContent = `${colours.size} of ${chips.length} tokens selected.${whole === null ? ""
        : ` Mean loss ${short(whole)} over the text`}${part === null ? "" : `, ${short(part)} over `
        + "the selection"}${whole === null ? "" : "."}`;
    });
  }

  // ---- choosing

  const begin = (i, token) => {
    if (data.same()) anchors.fill(token); else anchors[i] = token;
  };

  function pick(i, token, range) {
    const chosen = new Set(state.selected[i]), from = anchors[i];
    if (range)
      for (let k = Math.min(from, token); k <= Math.max(from, token); k++) chosen.add(k);
    else if (!chosen.delete(token)) chosen.add(token);
    begin(i, token);
    select(i, chosen);
  }

  /** One stop of the keyboard for all tokens of a text: arrows walk, shift takes along. */
  function walk(event, i) {
    const { chips } = lists[i], token = chips.indexOf(document.activeElement);
    const to = { ArrowLeft: token - 1, ArrowRight: token + 1, ArrowUp: token - 1,
      ArrowDown: token + 1, Home: 0, End: chips.length - 1 }[event.key];
    if (to === undefined || token < 0) return;
    event.preventDefault();
    if (!chips[to]) return;
    chips[to].focus();
    if (event.shiftKey) pick(i, to, true); else begin(i, to);
  }

  /** The tokens with the highest loss after the last layer; of both runs, by the mean. */
  function hardest() {
    const found = (of) => {
      const losses = text(of[0]).tokens.map((_, token) =>
        [token, data.mean(of.map((run) => ofToken(run, "last:lens_loss", token)))]);
      return losses.filter(([, loss]) => loss !== null).sort((a, b) => b[1] - a[1])
        .slice(0, most).map(([token]) => token);
    };
    if (data.same()) select(0, found(runs));
    else runs.forEach((run, i) => select(i, found([run])));
  }

  function list(run, i) {
    const t = text(run), one = lists[i];
    anchors[i] = selection(i)[0] || 0;
    one.chips = t.pieces.map((piece, token) => el("button", { type: "button", class: "chip",
      tabindex: token === anchors[i] ? 0 : -1, "data-token": token,
      onclick: (event) => pick(i, token, event.shiftKey) }, shown(piece)));
    one.note = el("p", { class: "note" });
    const parts = one.chips.flatMap((chip, token) => (/\n/.test(t.pieces[token])
      ? [chip, el("span", { class: "break", "aria-hidden": "true" })] : [chip]));
    return el("div", { class: "column" }, el("h3", {}, sample(run.style), run.label),
      parts.length ? Dom.oneStop(el("div", { class: "chips", role: "group",
        onkeydown: (event) => walk(event, i),
        "aria-label": `Tokens of ${run.label}: arrows move, space selects, shift adds a range` },
      parts), ".chip") : Dom.empty("This text has no tokens."), one.note);
  }

  function controls() {
    const groups = colourings();
    const keys = groups.flatMap(([, options]) => options.map(([key]) => key));
    if (!keys.includes(state.colour)) state.colour = keys[0] || null;
    const all = (i) => text(runs[i]).tokens.keys();
    const each = (tokens) => () => (data.same() ? select(0, tokens(0))
      : runs.forEach((_, i) => select(i, tokens(i))));
    const button = (words, onclick, more) =>
      el("button", { type: "button", class: "quiet", onclick, ...more }, words);
    $("token-controls").replaceChildren(
      pickFrom("colour", groups, (key) => { state.colour = key; paint(); }, state.colour),
      el("div", { class: "scale", id: "scale" }),
      el("div", { class: "checks" }, button("all", each(all)), button("none", each(() => [])),
        el("span", { class: "hardest" }, "the", el("input", { type: "number", min: 1, max: 999,
          value: most, "aria-label": "how many tokens",
          onchange: (event) => { most = Math.max(1, Math.floor(+event.target.value) || 1); } }),
        button("with the highest loss", hardest, { disabled: !has("last:lens_loss") }))));
  }

  function build() {
    controls();
    $("token-note").replaceChildren("Click a token to select it, shift-click for a range. ",
      data.same() ? "" : el("strong", {}, "The runs cut this text into different tokens: "
        + "each has a selection of its own."), el("span", { id: "colour-help" }));
    $("token-lists").replaceChildren(...runs.map(list));
    paint();
    mark();
  }

  page.on(["text"], build);
  page.on(["selection"], mark);
  page.on(["depth"], () => { if (state.colour?.startsWith("here:")) paint(); });
};
