/* The report page: fills the sections of report.html from the payload. */
"use strict";

const report = (() => {
  const { $, el } = Dom;
  const { palette, payload } = Dom.readData();
  Object.assign(Dom.palette, palette);
  const state = { group: 0, loss: "val", x: "step", sigma: null, lines: "mean", log: false,
    cut: true, hidden: new Set(), zoom: null };
  const page = { payload, state, charts: {}, titled: (group) => group.name || "All arms" };

  function header() {
    Dom.heading(payload);
    $("headline").append(...payload.headline.map((sentence) => el("p", {}, sentence)));
    $("remarks").hidden = !payload.remarks.length;
    $("remarks").append(el("ul", {}, payload.remarks.map((remark) => el("li", {}, remark))));
  }

  reportResults(page);
  reportScaling(page); // before the links, which name its section if it stays
  header(); // after the results, whose sections its links name
  page.set = reportCurves(page);
  reportCoefficients(page);
  reportText(page);
  Dom.theme($("theme"), Charts.renderAll);
  return page;
})();

window.report = report;
document.documentElement.dataset.ready = "true";
