/* What every page is made of: elements, its data, the look of lines, controls. */
"use strict";

const Dom = (() => {
  const SVG = "http://www.w3.org/2000/svg"; // a name, never fetched
  const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';
  const palette = { colours: [], dashes: [] };
  const pen = document.createElement("canvas").getContext("2d"); // measures text
  const $ = (id) => document.getElementById(id);

  // Texts only ever become text nodes or attributes, so data cannot become markup.
  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value === true) node.setAttribute(name, "");
      else if (value !== null && value !== undefined && value !== false)
        node.setAttribute(name, value);
    }
    node.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
    return node;
  }
  const el = (tag, attributes, ...children) =>
    fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

  /** The page's data. Long lists are kept once and named by their place: page.py, pooled(). */
  function readData() {
    const { pool, ...data } = JSON.parse($("data").textContent);
    const whole = (node) => {
      if (node === null || typeof node !== "object") return node;
      if (Array.isArray(node)) return typeof node[0] === "number" ? node : node.map(whole);
      if ("@list" in node) return pool[node["@list"]];
      return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, whole(value)]));
    };
    return whole(data);
  }

  // ---- looks

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** The look of an arm; a null colour is the text's, whatever the theme. */
  function lineStyle(style) {
    if (style === 0) return { colour: null, dash: [], width: 2.6 };
    const n = palette.colours.length;
    const dash = palette.dashes[Math.floor((style - 1) / n) % palette.dashes.length];
    return { colour: palette.colours[(style - 1) % n], dash, width: 1.8 };
  }

  /** A short piece of a line, for keys. */
  function key({ colour, dash, width }) {
    return svg("svg", { class: "sample", width: 28, height: 10, "aria-hidden": "true" },
      svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, stroke: colour || "currentColor",
        "stroke-width": width,
        "stroke-dasharray": (dash || []).map((d) => d * width).join(" ") || null }));
  }
  const sample = (style) => key(lineStyle(style));

  function textWidth(text, font = FONT) { pen.font = font; return pen.measureText(text).width; }

  function shorten(text, width, font = FONT) {
    if (textWidth(text, font) <= width) return text;
    let end = text.length;
    while (end > 1 && textWidth(`${text.slice(0, end)}…`, font) > width) end--;
    return `${text.slice(0, end).trimEnd()}…`;
  }

  // ---- pieces of page

  /** One of several, as radio buttons that look like one bar: the keyboard works by itself. */
  function choice(title, options, current, pick) {
    const name = `choice-${title.replace(/\W/g, "-")}-${choice.count = (choice.count || 0) + 1}`;
    return el("fieldset", { class: "choice", "data-name": title }, el("legend", {}, title),
      el("div", { class: "segments" }, options.map(([value, text]) => el("label", {},
        el("input", { type: "radio", name, value, checked: value === current,
          onchange: () => pick(value) }), el("span", {}, text)))));
  }

  function pickFrom(title, groups, pick, current) {
    const options = (list) => list.map(([value, text, help]) =>
      el("option", { value, title: help, selected: value === current }, text));
    return el("label", { class: "picker" }, el("span", {}, title),
      el("select", { onchange: (event) => pick(event.target.value) },
        groups.length === 1 ? options(groups[0][1])
          : groups.map(([label, list]) => el("optgroup", { label }, options(list)))));
  }

  const check = (title, on, pick) => el("label", { class: "check" },
    el("input", { type: "checkbox", checked: on, onchange: (event) => pick(event.target.checked) }),
    title);
  const empty = (text) => el("p", { class: "empty" }, text);
  const facts = (pairs) => (pairs.length
    ? el("dl", { class: "facts" },
      pairs.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))
    : empty("Nothing is recorded."));

  /** A tip over the whole page, at the place of the window that a function gives: what it speaks
   * of may be scrolled, also by the keyboard's own walk. */
  function floatingTip() {
    const tip = el("div", { class: "tip floating", role: "tooltip", hidden: true }), room = 14;
    let place = null;
    document.body.append(tip);
    const put = () => {
      if (tip.hidden) return;
      // Beside a point, or under a thing that ends at y and begins at top; above where it must be.
      const { offsetWidth: wide, offsetHeight: high } = tip, [x, y, top = y - room] = place();
      const below = y + room + high + 4 <= innerHeight;
      const right = x + room + wide <= document.documentElement.clientWidth;
      tip.style.left = `${Math.max(4, right ? x + room : x - room - wide)}px`;
      tip.style.top = `${Math.max(4, below ? y + room : top - high - 4)}px`;
    };
    addEventListener("scroll", put, { capture: true, passive: true });
    return { node: tip, hide: () => { tip.hidden = true; },
      show(children, where) {
        tip.replaceChildren(...children);
        tip.hidden = false;
        place = where;
        put();
      } };
  }

  /** One stop of the tabulator for many elements: the one that had the focus last. */
  function oneStop(node, selector) {
    node.addEventListener("focusin", ({ target }) => {
      const now = target.closest(selector);
      if (!now) return;
      for (const other of node.querySelectorAll(`${selector}[tabindex="0"]`)) other.tabIndex = -1;
      now.tabIndex = 0;
    });
    return node;
  }

  /** What every page begins with; its links name the sections that are there. */
  function heading({ title, subtitle, made }) {
    for (const [id, text] of Object.entries({ title, subtitle, made })) $(id).textContent = text;
    $("nav").append(...[...document.querySelectorAll("main section")].map((section) =>
      el("a", { href: `#${section.id}` },
        section.dataset.nav || section.querySelector("h2").textContent)));
  }

  /** A command to copy; where the clipboard is refused, it is at least selected. */
  function command(text) {
    const code = el("code", {}, text);
    const button = el("button", { type: "button", class: "quiet copy" }, "Copy");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
    return el("div", { class: "command" }, el("pre", { tabindex: 0 }, code), button);
  }

  /** Canvases take their colours when drawn, so they are drawn again with the theme. */
  function theme(button, draw) {
    const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const redraw = () => { button.textContent = dark() ? "Light" : "Dark"; draw(); };
    button.addEventListener("click", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      redraw();
    });
    system.addEventListener("change", redraw);
    let before;
    addEventListener("beforeprint", () => {
      before = root.dataset.theme;
      root.dataset.theme = "light";
      redraw();
    });
    addEventListener("afterprint", () => {
      if (before) root.dataset.theme = before; else delete root.dataset.theme;
      redraw();
    });
    redraw();
  }

  return { $, el, svg, css, readData, palette, lineStyle, key, sample, FONT, textWidth, shorten,
    choice, pickFrom, check, facts, empty, floatingTip, oneStop, heading, command, theme };
})();
