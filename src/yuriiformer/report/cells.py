"""A table of results: its columns, rows and cells, and what the cells of arms say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from yuriiformer.comparison.outcomes import Comparison, Outcome, Speedup
from yuriiformer.comparison.paper import FOOTNOTE, PaperFigure, paper_figure
from yuriiformer.comparison.remarks import short_text
from yuriiformer.display.columns import in_units

NONE = "–"  # a number that does not exist


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    help: str
    numeric: bool = True
    lower_is_better: bool | None = None
    drop: int = 0  # where there is little room, columns go from the highest number down; 0 stays


@dataclass(frozen=True)
class Cell:
    """``value`` is what a table is sorted by."""

    text: str
    value: float | str | None = None
    bold: bool = False
    help: str = ""

    @property
    def empty(self) -> bool:
        return self.text in ("", NONE)


@dataclass(frozen=True)
class Row:
    arm_slug: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class ResultTable:
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...] = ()

    def to_payload(self) -> dict[str, Any]:
        """As plain data for a page."""
        names = ("key", "title", "help", "numeric", "lower_is_better", "drop")
        columns = [{name: getattr(each, name) for name in names} for each in self.columns]
        rows = []
        for row in self.rows:
            cells = {key: _plain(cell) for key, cell in row.cells.items()}
            rows.append({"arm": row.arm_slug or None, "cells": cells})
        return {"columns": columns, "rows": rows}


def _plain(cell: Cell) -> dict[str, Any]:
    """Without ``bold`` and ``help`` where there is none."""
    content = vars(cell).items()
    return {name: value for name, value in content if value or name in ("text", "value")}


MakeCell = Callable[[Comparison, Outcome], Cell]


def lowest(outcomes: Sequence[Outcome], metric: str) -> set[str]:
    """The paper's rule for bold: slugs of the arms with the lowest mean of their panel (standard
    compute or not), ties at the printed precision too. An arm whose mean leaves out seeds that
    failed or diverged is not among them. With fewer than two arms none is marked."""
    found: set[str] = set()
    if len(outcomes) < 2:
        return found
    for standard in (True, False):
        sound = [each for each in outcomes if each.arm.standard == standard and not each.arm.broken]
        means = {each.arm.slug: each.of(metric).mean for each in sound}
        texts = {slug: f"{mean:.3f}" for slug, mean in means.items() if mean is not None}
        least = min(texts.values(), key=float, default="")
        found |= {slug for slug, text in texts.items() if text == least}
    return found


def loss(metric: str) -> MakeCell:
    def cell(comparison: Comparison, each: Outcome) -> Cell:
        found = each.of(metric)
        bold = each.arm.slug in lowest(comparison.outcomes, metric)
        if found.mean is None:
            return Cell(NONE, help="No seed has finished.")
        if found.half is None:
            return Cell(f"{found.mean:.3f}", found.mean, bold, "One seed: no interval.")
        said = f"Mean of {found.n} seeds, 95 % interval {found.low:.4f} to {found.high:.4f}."
        return Cell(f"{found.mean:.3f} ± {_small(found.half)}", found.mean, bold, said)

    return cell


def _small(value: float) -> str:
    """Three decimals, but a number that is not zero is not shown as zero."""
    return "<0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def signed(value: float) -> str:
    """With its sign, to three decimals."""
    text = f"{value:+.3f}".replace("-", "−")
    return "0.000" if text[1:] == "0.000" else text


def number(value: float | None, form: str, help_text: str = "") -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(NONE)
    return Cell(form.format(value), value, help=help_text)


def beside_baseline(text: str, make: Callable[[Outcome], Cell]) -> MakeCell:
    """A cell of an arm beside the baseline; ``text`` is the baseline's own."""

    def cell(comparison: Comparison, each: Outcome) -> Cell:
        if each.arm.slug != comparison.baseline.slug:
            return make(each)
        value = None if text == NONE else 0.0
        return Cell(text, value, help="The others are compared with this arm.")

    return cell


def interval_text(mean: float | None, low: float | None, high: float | None) -> str:
    """A difference and its interval, as far as there are any."""
    if mean is None:
        return NONE
    interval = "" if low is None or high is None else f" [{signed(low)}, {signed(high)}]"
    return signed(mean) + interval


def difference(each: Outcome) -> Cell:
    found = each.difference
    if found.mean is None:
        return Cell(NONE, help="No seed has finished in both arms.")
    one = found.low is None
    said = "One common seed: no interval." if one else f"Over {found.n} common seeds."
    return Cell(interval_text(found.mean, found.low, found.high), found.mean, help=said)


def p_cell(p: float | None, help_text: str = "") -> Cell:
    return number(p, "<0.001" if p is not None and p < 0.0005 else "{:.3f}", help_text)


def p_value(each: Outcome) -> Cell:
    alone = each.difference.p
    return p_cell(each.difference.p_holm, "" if alone is None else f"Uncorrected p = {alone:.2g}.")


def detectable(each: Outcome) -> Cell:
    found = each.difference.detectable
    return Cell(NONE) if found is None else Cell(_small(found), found)


def speedup(found: Speedup) -> Cell:
    if found.n == 0:
        return Cell(NONE)
    if found.ratio is None or not math.isfinite(found.ratio):
        return Cell("not reached", help="The baseline's best loss was not reached.")
    part = "" if found.reached == found.n else f" ({found.reached} of {found.n} seeds)"
    return Cell(f"{found.ratio:.2f} ×{part}", found.ratio)


def seeds(comparison: Comparison, each: Outcome) -> Cell:
    runs = each.arm.runs
    finished = sum(run.finished and not run.diverged for run in runs)
    words = {run.seed: "diverged" if run.diverged else run.status for run in runs}
    status = "; ".join(f"seed {seed}: {word}" for seed, word in words.items() if word != "finished")
    return Cell(f"{finished}/{len(runs)}", finished, help=status)


def calls(comparison: Comparison, each: Outcome) -> Cell:
    calls = " + ".join(str(count) for count in each.arm.rule.oracle_calls.values())
    return Cell(calls, calls)


def differs(comparison: Comparison, each: Outcome) -> Cell:
    items = each.arm.differs.items()
    own = ", ".join(f"{name}={short_text(value)}" for name, (_, value) in items)
    before = ", ".join(f"{name}={short_text(value)}" for name, (value, _) in items)
    return Cell(own or NONE, own or None, help=before and f"Baseline: {before}.")


def whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def flops(comparison: Comparison, each: Outcome) -> Cell:
    return number(each.flops_a_token, "{:.3g}", whole(each.flops_a_token))


def size(value: float | None) -> Cell:
    """A count of parameters."""
    if not value:
        return Cell(NONE, None if value is None else 0)
    text = in_units(value, "{:.1f}", "kMB", " ")
    return Cell(text, value, help=whole(value) if value >= 1000 else "")


def paper(metric: str) -> MakeCell:
    """The paper's figure; candidates of unclear label are sorted by the lower one."""

    def cell(comparison: Comparison, each: Outcome) -> Cell:
        figure = paper_figure_of(comparison, each)
        text = "" if figure is None else figure.text(metric)
        if figure is None or not text:
            return Cell(NONE)
        return Cell(text, min(figure.values(metric)), help=FOOTNOTE if figure.unclear else "")

    return cell


def paper_figure_of(comparison: Comparison, each: Outcome) -> PaperFigure | None:
    """The paper's figure for an arm, where it belongs."""
    return paper_figure(comparison.paper_setting(each.arm), each.arm.rule.name)
