/* Numbers: as text, as ticks of axes, and those that lie between the points of a line. */
"use strict";

const Numbers = (() => {
  // English in every browser, as the rest of the page is.
  const number = (value, digits) => (value === null || value === undefined ? "–"
    : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));

  const signed = (value, digits) =>
    (value > 0 ? "+" : value < 0 ? "−" : "±") + number(Math.abs(value), digits);

  /** Of any size, to so many digits that count. */
  function short(value, digits = 4) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = size !== 0 && (size >= 1e6 || size < 1e-4)
      ? value.toExponential(digits - 2) : String(+value.toPrecision(digits));
    return text.replaceAll("-", "−");
  }

  function tickText(value, step) {
    const digits = Math.max(0, Math.min(8, Math.ceil(-Math.log10(Math.abs(step) || 1) - 1e-9)));
    // 0.25 needs one digit more than 0.1 does.
    const exact = Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
    return number(value, exact ? digits : digits + 1).replace(/^-/, "−");
  }

  function niceStep(span, count) {
    const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
    return power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.7);
  }

  function niceTicks(low, high, count) {
    const step = niceStep(high - low, count), ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++)
      ticks.push(i * step);
    return { ticks, step };
  }

  /** 1–2–5 over decades; but losses often span less than one, and then even steps. */
  function logTicks(low, high) {
    if (high / low < 8) return niceTicks(low, high, 8).ticks;
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
      for (const m of [1, 2, 5])
        if (m * 10 ** power >= low && m * 10 ** power <= high) ticks.push(m * 10 ** power);
    return ticks;
  }

  /** Exponents of ten for about so many ticks: 1–2–5, or whole decades where there are many. */
  function decadeTicks(low, high, count) {
    const fine = logTicks(10 ** low, 10 ** high).map(Math.log10);
    if (fine.length <= count) return fine;
    const step = Math.max(1, Math.ceil((high - low) / count)), ticks = [];
    for (let n = Math.ceil(low / step) * step; n <= high; n += step) ticks.push(n);
    return ticks;
  }

  /** 500k, 2M, 5B; from there on as powers of ten. */
  function powerText(value) {
    const [size, unit] = [[1e9, "B"], [1e6, "M"], [1e3, "k"], [1, ""]].find(([s]) => value >= s)
      || [1, ""];
    if (value < 1e12) return `${+(value / size).toPrecision(2)}${unit}`;
    const power = Math.floor(Math.log10(value) + 1e-9), digit = Math.round(value / 10 ** power);
    const raised = [...String(power)].map((d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]).join("");
    return digit === 1 ? `10${raised}` : `${digit}·10${raised}`;
  }

  /** First index whose x is at least the value. */
  function search(x, value) {
    let low = 0, high = x.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x[middle] < value) low = middle + 1; else high = middle;
    }
    return low;
  }

  /** A line's value at x, straight between its points; null outside them and in gaps. */
  function valueAt(line, x) {
    const i = search(line.x, x);
    if (i < line.x.length && line.x[i] === x) return line.y[i];
    if (i === 0 || i === line.x.length) return null;
    const [x0, x1, y0, y1] = [line.x[i - 1], line.x[i], line.y[i - 1], line.y[i]];
    return y0 === null || y1 === null ? null : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
  }

  /** Move positions, in order, as little as keeps them `gap` apart and inside. */
  function spread(items, gap, low, high) {
    items.sort((a, b) => a.y - b.y);
    let floor = low;
    for (const item of items) { item.y = Math.max(item.y, floor); floor = item.y + gap; }
    let ceiling = high;
    for (const item of [...items].reverse()) {
      item.y = Math.min(item.y, ceiling);
      ceiling = item.y - gap;
    }
    return items;
  }

  const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;

  return { number, signed, short, tickText, niceTicks, logTicks, decadeTicks, powerText,
    search, valueAt, spread, mean };
})();
