/* The results of each group: its tables, and its arms from best to worst. */
"use strict";

const reportResults = ({ payload }) => {
  const { $, el, empty, sample } = Dom;
  const loss = (value) => Numbers.number(value, 4);

  /** Nulls last in both directions; numbers before words; equals keep their order. */
  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  }

  function tableRow(row, columns, arms) {
    const arm = arms.get(row.arm);
    const cells = columns.map((column, i) => {
      const cell = row.cells[column.key] || { text: "", value: null };
      const attributes = { class: column.numeric ? "number" : "words", title: cell.help || null };
      const text = cell.bold ? el("strong", {}, cell.text) : cell.text;
      return i ? el("td", attributes, text) : el("th", { ...attributes, scope: "row" },
        el("div", { class: "arm-name" }, arm ? sample(arm.style) : null, el("span", {}, text,
          arm?.baseline ? el("span", { class: "tag" }, "baseline") : null)));
    });
    return el("tr", { class: arm?.baseline ? "baseline" : null, "data-arm": row.arm }, cells);
  }

  /** Out from under the column that stays, for the keyboard only: a click would miss its aim. */
  function uncover({ target }) {
    if (target.matches(":focus-visible"))
      target.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  function table({ columns, rows }, arms, caption) {
    const body = el("tbody");
    const nodes = new Map(rows.map((row) => [row, tableRow(row, columns, arms)]));
    const sortBy = (column, th) => {
      const before = th.getAttribute("aria-sort");
      const first = column.lower_is_better === false ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      const order = before === first ? other : first, sign = order === "ascending" ? 1 : -1;
      const value = (row) => row.cells[column.key]?.value ?? null;
      th.parentNode.querySelectorAll("th").forEach((cell) => cell.removeAttribute("aria-sort"));
      th.setAttribute("aria-sort", order);
      const sorted = [...rows].sort((a, b) => compare(value(a), value(b), sign));
      body.append(...sorted.map((row) => nodes.get(row)));
    };
    const head = columns.map((column) => {
      const th = el("th", { scope: "col", class: column.numeric ? "number" : null });
      th.append(el("button", { type: "button", title: column.help || null,
        onclick: () => sortBy(column, th), onfocus: uncover }, column.title));
      return th;
    });
    body.append(...nodes.values());
    const box = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      el("table", {}, el("thead", {}, el("tr", {}, head)), body));
    return fitted(box, columns, head, caption);
  }

  /** The table shows the columns that its width has room for, the most important ones first; a
   * chooser has the others. Where it scrolls, it says so. */
  function fitted(box, columns, head, caption) {
    let chosen = null, width = 0; // the columns that were asked for; null: those that fit
    const optional = columns.filter((column) => column.drop);
    const hint = el("p", { class: "note hint" }, "Scroll the table sideways for more →");
    const frame = el("div", { class: "table" }, box);
    const shown = (column) => !head[columns.indexOf(column)].hidden;
    const show = (wanted) => columns.forEach((column, i) => {
      for (const row of box.querySelectorAll("tr")) row.children[i].hidden = !wanted.has(column);
    });
    const fit = () => {
      show(new Set(columns));
      const widths = new Map(columns.map((column, i) =>
        [column, head[i].getBoundingClientRect().width]));
      const wanted = new Set(columns.filter((column) => !column.drop));
      let room = box.clientWidth - 2; // the browser rounds widths
      for (const column of wanted) room -= widths.get(column);
      for (const column of [...optional].sort((a, b) => a.drop - b.drop)) {
        if (widths.get(column) > room) continue;
        room -= widths.get(column);
        wanted.add(column);
      }
      show(wanted);
    };
    const edges = () => {
      const wide = box.scrollWidth > box.clientWidth;
      box.classList.toggle("wide", wide);
      box.style.scrollPaddingLeft = `${head[0].offsetWidth}px`;
      const more = box.scrollLeft + box.clientWidth < box.scrollWidth - 1;
      frame.classList.toggle("more", more);
      hint.hidden = !wide;
    };
    const [picker, mark] = chooser(optional, shown, caption, (wanted) => {
      chosen = wanted && new Set(columns.filter((each) => !each.drop || wanted.has(each)));
      update();
    });
    const update = () => {
      if (chosen) show(chosen); else fit();
      mark();
      edges();
    };
    box.addEventListener("scroll", edges, { passive: true });
    new ResizeObserver(() => {
      if (box.clientWidth === width) return edges();
      width = box.clientWidth;
      return update();
    }).observe(box);
    return el("div", {}, picker, hint, frame);
  }

  /** Check boxes for the columns that may be hidden, and a function that marks what is shown. */
  function chooser(optional, shown, caption, choose) {
    if (!optional.length) return [null, () => {}];
    const picked = () => new Set(optional.filter((column, i) => inputs[i].checked));
    const boxes = optional.map((column) =>
      Dom.check(column.title, false, () => choose(picked())));
    const inputs = boxes.map((label) => label.querySelector("input"));
    optional.forEach((column, i) => { boxes[i].title = column.help; });
    const count = el("summary", {}), button = (text, columns) =>
      el("button", { type: "button", class: "quiet", onclick: () => choose(columns()) }, text);
    const mark = () => {
      optional.forEach((column, i) => { inputs[i].checked = shown(column); });
      const hidden = optional.filter((column) => !shown(column)).length;
      count.textContent = hidden ? `Columns (${hidden} more)` : "Columns";
    };
    return [el("details", { class: "columns", "aria-label": `Columns of ${caption}` }, count,
      el("div", { class: "checks" }, boxes, button("All", () => new Set(optional)),
        button("Those that fit", () => null))), mark];
  }

  function ranking(g, arms) {
    const host = el("div", { class: "ranking" });
    const rows = g.ranking.filter((row) => row.mean !== null && arms.has(row.arm)).map((row) => {
      const { label, style } = arms.get(row.arm);
      const whole = row.low !== null && row.high !== null;
      const interval = whole ? `, 95 % interval ${loss(row.low)} to ${loss(row.high)}` : "";
      const seeds = `${row.n} ${row.n === 1 ? "seed" : "seeds"}`;
      return { ...row, points: (row.points || []).filter((p) => p !== null), name: label, style,
        about: `${label}: ${loss(row.mean)}${interval}, ${seeds}` };
    });
    if (!rows.length) return empty("No run has finished yet.");
    const reference = rows.find((row) => row.arm === g.baseline)?.mean ?? null;
    let drawn = 0;
    // Drawn for the width it has, so that its text keeps its size.
    new ResizeObserver(() => {
      if (!host.clientWidth || host.clientWidth === drawn) return;
      drawn = host.clientWidth;
      Intervals.intervalChart(host, rows, { reference, text: loss,
        about: `${g.metric} validation loss of each arm, best first` });
    }).observe(host);
    return host;
  }

  payload.groups.forEach((g, i) => {
    const arms = new Map(g.arms.map((arm) => [arm.id, arm]));
    const title = g.name ? `Results · ${g.name}` : "Results";
    $("results").append(el("section", { id: `results-${i}`, "data-nav": title },
      el("h2", {}, title),
      g.table.rows.length ? table(g.table, arms, title) : empty("No arm has results yet."),
      g.tables_extra.map((extra) => [el("h3", {}, extra.title),
        el("p", { class: "note" }, extra.note), table(extra, arms, extra.title)]),
      el("h3", {}, `${g.metric} validation loss`),
      el("p", { class: "note" }, "Filled: the mean over seeds, with its 95 % interval where there "
        + "is one. Open: each seed. Dashed: the baseline’s mean."),
      ranking(g, arms)));
  });
};
