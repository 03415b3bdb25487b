/* What is to be read: blocks, samples, and how to repeat it all. */
"use strict";

const reportText = ({ payload, titled }) => {
  const { $, el, empty, sample, pickFrom, facts, command } = Dom;
  const { number } = Numbers;
  const BROAD = 520; // pixels: a wider diagram gets the whole width of the page

  /** The picture cannot run scripts or load anything as the source of an image. Its size is that
   * of its drawing, in which letters are 9 to 12 pixels high; it may shrink by a third. */
  function picture(source, text) {
    const bytes = new TextEncoder().encode(source);
    let binary = "";
    for (const byte of bytes) binary += String.fromCharCode(byte);
    const image = el("img", { src: `data:image/svg+xml;base64,${btoa(binary)}`, alt: text,
      decoding: "async" });
    const frame = /viewBox="([^"]+)"/.exec(source)?.[1] || "";
    const [, , width, height] = frame.split(" ").map(Number);
    if (width && height) {
      [image.width, image.height] = [Math.round(width), Math.round(height)];
      image.style.minWidth = `${Math.round(width * 2 / 3)}px`;
    }
    return image;
  }

  function block(rule, arm) {
    const image = arm.diagram ? picture(arm.diagram, `Diagram of a block of ${rule}`) : null;
    return el("article", { class: image?.width > BROAD ? "block broad" : "block" },
      el("h3", {}, rule), arm.note ? el("p", { class: "note" }, arm.note) : null,
      arm.equations.length
        ? el("pre", { class: "equations", tabindex: 0 }, arm.equations.join("\n"))
        : empty("There are no equations."),
      image ? el("div", { class: "diagram", tabindex: 0 }, image)
        : empty("There is no diagram."));
  }

  function blocks() {
    const rules = new Map();
    for (const arm of payload.groups.flatMap((g) => g.arms))
      if (!rules.has(arm.rule)) rules.set(arm.rule, arm);
    for (const [rule, arm] of rules) $("block-list").append(block(rule, arm));
  }

  function samples() {
    const asked = (g) => new Set(g.arms.flatMap((arm) => arm.samples.map((one) => one.prompt)));
    const prompts = payload.groups.map((g, i) =>
      [titled(g), [...asked(g)].map((prompt) => [i, prompt])]).filter(([, list]) => list.length);
    if (!prompts.length) return $("sample-list").replaceWith(empty("No texts were sampled."));
    const flat = prompts.flatMap(([, list]) => list);
    const draw = (index) => {
      const [i, prompt] = flat[index], noted = new Set();
      $("sample-list").replaceChildren(...payload.groups[i].arms.map((arm) => {
        const texts = arm.samples.filter((one) => one.prompt === prompt);
        const note = texts.length && !noted.has(arm.samples_note) ? arm.samples_note : "";
        noted.add(arm.samples_note);
        return el("article", {}, el("h3", {}, sample(arm.style), arm.label),
          texts.length ? texts.map((one) =>
            el("p", { class: "text" }, el("span", { class: "prompt" }, prompt), one.text))
            : empty("No sample for this prompt."),
          note ? el("p", { class: "note" }, note) : null);
      }));
    };
    const brief = (prompt) =>
      (prompt.length > 60 ? `${prompt.slice(0, 59)}…` : prompt || "(empty)");
    if (flat.length > 1)
      $("sample-controls").append(pickFrom("prompt", prompts.map(([name, list]) =>
        [name, list.map((one) => [flat.indexOf(one), brief(one[1])])]), draw));
    draw(0);
  }

  function armDetails(arm) {
    const runs = arm.runs.map((run) => el("tr", {}, el("th", { scope: "row" }, `seed ${run.seed}`),
      el("td", {}, run.status),
      el("td", { class: "number" }, `${number(run.step, 0)} of ${number(run.steps, 0)}`),
      el("td", {}, run.status_text)));
    return el("details", { class: "arm" }, el("summary", {}, sample(arm.style), arm.label,
      arm.baseline ? el("span", { class: "tag" }, "baseline") : null), facts(arm.facts),
    runs.length
      ? el("div", { class: "scroll" }, el("table", { class: "runs" }, el("tbody", {}, runs)))
      : empty("No run has begun."),
    arm.command ? command(arm.command) : null,
    el("details", {}, el("summary", {}, "Configuration"),
      el("pre", { tabindex: 0 }, JSON.stringify(arm.config, null, 2))));
  }

  function repeat() {
    $("commands").append(...payload.commands.map((one) =>
      el("div", { class: "step" }, el("p", {}, one.what), command(one.command))));
    $("data-facts").append(facts(payload.data));
    for (const g of payload.groups)
      $("arm-details").append(...(g.name ? [el("h4", {}, g.name)] : []),
        ...g.arms.map(armDetails));
  }

  blocks();
  samples();
  repeat();
};
