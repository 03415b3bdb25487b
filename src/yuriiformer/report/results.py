"""The table of results: the one definition of what it says, for page, terminal and files alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from yuriiformer.comparison.outcomes import Comparison, Outcome, Speedup
from yuriiformer.comparison.paper import FOOTNOTE, PaperFigure, figure_of_rule
from yuriiformer.comparison.statistics import Summary
from yuriiformer.config import Machine

NONE = "–"  # a number that does not exist
MINUS = "−"
LOSSES = ("final", "exact", "best", "train")  # those that are set in bold
OF_PAPER = ("final", "best", "train")
TITLES = {"final": "Final", "exact": "Exact", "best": "Best"}
OPTIONAL = ("exact", "differs", "paper_final", "paper_best", "paper_train")  # left out if empty


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    help: str
    numeric: bool = True
    lower_is_better: bool | None = None


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

    def column(self, key: str) -> Column:
        return next(each for each in self.columns if each.key == key)

    def to_payload(self) -> dict[str, Any]:
        """As plain data for a page."""
        columns = [
            {
                "key": each.key,
                "title": each.title,
                "help": each.help,
                "numeric": each.numeric,
                "lower_is_better": each.lower_is_better,
            }
            for each in self.columns
        ]
        rows = [
            {
                "arm": row.arm_slug or None,
                "cells": {key: _plain(cell) for key, cell in row.cells.items()},
            }
            for row in self.rows
        ]
        return {"columns": columns, "rows": rows}


def _plain(cell: Cell) -> dict[str, Any]:
    found: dict[str, Any] = {"text": cell.text, "value": cell.value}
    if cell.bold:
        found["bold"] = True
    if cell.help:
        found["help"] = cell.help
    return found


COLUMNS = (
    Column("arm", "Arm", "What is compared: a rule, perhaps with other settings.", numeric=False),
    Column("final", "Final", "Validation loss after the last step, in nats per token: mean over "
           "the finished seeds ± half its 95 % interval.", lower_is_better=True),
    Column("exact", "Exact", "The same over the whole validation split, every token but the first "
           "once.", lower_is_better=True),
    Column("paper_final", "Final (paper)", "The paper's.", lower_is_better=True),
    Column("difference", "Difference", "{metric} minus the baseline's, seed by seed: mean and its "
           "95 % interval.", lower_is_better=True),
    Column("p", "p (Holm)", "Of the paired two-sided t test that the difference is zero, "
           "corrected for the number of arms (Holm).", lower_is_better=None),
    Column("detectable", "Detectable", "The true difference that this many seeds with this spread "
           "would have shown with probability 0.8.", lower_is_better=None),
    Column("best", "Best", "Lowest validation loss of a run: the lowest of many, so it flatters.",
           lower_is_better=True),
    Column("paper_best", "Best (paper)", "The paper's.", lower_is_better=True),
    Column("best_step", "Step of Best", "When it was reached: mean over seeds."),
    Column("train", "Train", "Mean training loss of the last step's batch.", lower_is_better=True),
    Column("paper_train", "Train (paper)", "The paper's.", lower_is_better=True),
    Column("seeds", "Seeds", "Runs that finished, of all."),
    Column("speedup_steps", "Speed-up, steps", "The baseline's steps to its own best loss, divided "
           "by this arm's steps to the same loss.", lower_is_better=False),
    Column("speedup_time", "Speed-up, time", "The same in seconds of training.",
           lower_is_better=False),
    Column("tokens_per_second", "Tokens/s", "Median over a run's steps.", lower_is_better=False),
    Column("parameters", "Parameters", "Without positions and without the v0 tables, as the paper "
           "counts.", lower_is_better=None),
    Column("start_tables", "v0 tables", "Parameters of the token tables that further streams "
           "start from."),
    Column("flops_a_token", "FLOPs/token", "Of training: forward and backward pass, products of "
           "matrices.", lower_is_better=None),
    Column("calls", "Attn + MLP", "How often a block calls each oracle.", numeric=False),
    Column("differs", "Differs in", "Settings other than the baseline's, beyond the rule.",
           numeric=False),
)  # fmt: skip


def styles(comparison: Comparison) -> dict[str, int]:
    """The look of each arm's line (see `palette`): 0 is the baseline, others follow in order."""
    others = [arm.slug for arm in comparison.arms if arm.slug != comparison.baseline.slug]
    found = {slug: number for number, slug in enumerate(others, 1)}
    return {arm.slug: found.get(arm.slug, 0) for arm in comparison.arms}


def result_table(comparison: Comparison) -> ResultTable:
    """A row for each arm, in their order."""
    bold = {metric: lowest(comparison.outcomes, metric) for metric in LOSSES}
    rows = []
    for each in comparison.outcomes:
        base = each.arm.slug == comparison.baseline.slug
        cells = {
            "arm": Cell(each.arm.label, each.arm.label, help=each.arm.rule.note),
            **{m: _loss(getattr(each, m), each.arm.slug in bold[m]) for m in LOSSES},
            **(_against_itself() if base else _against(each)),
            "best_step": _number(each.best_step.mean, "{:,.0f}"),
            **_cost(each),
            **_paper(comparison.preset, each),
        }
        rows.append(Row(each.arm.slug, {column.key: cells[column.key] for column in COLUMNS}))
    empty = {key for key in OPTIONAL if all(row.cells[key].empty for row in rows)}
    named = TITLES[comparison.metric]
    kept = [replace(column, help=column.help.replace("{metric}", named))
            for column in COLUMNS if column.key not in empty]  # fmt: skip
    keys = [column.key for column in kept]
    shown = tuple(Row(r.arm_slug, {key: r.cells[key] for key in keys}) for r in rows)
    unclear = any(cell.help == FOOTNOTE for row in shown for cell in row.cells.values())
    return ResultTable(tuple(kept), shown, (FOOTNOTE,) if unclear else ())


def lowest(outcomes: Sequence[Outcome], metric: str) -> set[str]:
    """The paper's rule for bold: slugs of the arms with the lowest mean of their panel (standard
    compute or not), ties at the printed precision too. An arm whose mean leaves out seeds that
    failed or diverged is not among them, and one alone is nobody's lowest."""
    found: set[str] = set()
    if len(outcomes) < 2:
        return found
    for standard in (True, False):
        texts = {}
        for each in outcomes:
            mean = getattr(each, metric).mean
            if each.arm.standard == standard and mean is not None and not each.arm.broken:
                texts[each.arm.slug] = f"{mean:.3f}"
        least = min(texts.values(), key=float, default="")
        found |= {slug for slug, text in texts.items() if text == least}
    return found


def _loss(found: Summary, bold: bool) -> Cell:
    if found.mean is None:
        return Cell(NONE, help="No seed has finished.")
    if found.low is None or found.high is None:
        return Cell(f"{found.mean:.3f}", found.mean, bold, "One seed: no interval.")
    half = (found.high - found.low) / 2
    said = f"Mean of {found.n} seeds, 95 % interval {found.low:.4f} to {found.high:.4f}."
    return Cell(f"{found.mean:.3f} ± {_small(half)}", found.mean, bold, said)


def _small(value: float) -> str:
    """Three decimals, but a number that is not zero is not shown as zero."""
    return "<0.001" if 0 < value < 0.0005 else f"{value:.3f}"


def signed(value: float) -> str:
    """With its sign, to three decimals."""
    text = f"{value:+.3f}".replace("-", MINUS)
    return "0.000" if text[1:] == "0.000" else text


def _number(value: float | None, form: str, help_text: str = "") -> Cell:
    if value is None or not math.isfinite(value):
        return Cell(NONE)
    return Cell(form.format(value), value, help=help_text)


def _against_itself() -> dict[str, Cell]:
    said = "The others are compared with this arm."
    return {
        "difference": Cell("baseline", 0.0, help=said),
        "p": Cell(NONE),
        "detectable": Cell(NONE),
        "speedup_steps": Cell(NONE, help=said),
        "speedup_time": Cell(NONE, help=said),
    }


def _against(each: Outcome) -> dict[str, Cell]:
    """What is said beside the baseline."""
    found = each.difference
    cell = Cell(NONE, help="No seed has finished in both arms.")
    if found.mean is not None:
        text, said = signed(found.mean), "One common seed: no interval."
        if found.low is not None and found.high is not None:
            text += f" [{signed(found.low)}, {signed(found.high)}]"
            said = f"Over {found.n} common seeds."
        cell = Cell(text, found.mean, help=said)
    p = found.p_holm
    return {
        "difference": cell,
        "p": _number(p, "<0.001" if p is not None and p < 0.0005 else "{:.3f}",
                     "" if found.p is None else f"Uncorrected p = {found.p:.2g}."),
        "detectable": Cell(NONE) if found.detectable is None
        else Cell(_small(found.detectable), found.detectable),
        "speedup_steps": _speedup(each.speedup_steps),
        "speedup_time": _speedup(each.speedup_time),
    }  # fmt: skip


def _speedup(found: Speedup) -> Cell:
    if found.n == 0:
        return Cell(NONE)
    if found.ratio is None or not math.isfinite(found.ratio):
        return Cell("not reached", help="The baseline's best loss was not reached.")
    part = "" if found.reached == found.n else f" ({found.reached} of {found.n} seeds)"
    return Cell(f"{found.ratio:.2f} ×{part}", found.ratio)


def _cost(each: Outcome) -> dict[str, Cell]:
    arm = each.arm
    finished = sum(run.finished and not run.diverged for run in arm.runs)
    words = {run.seed: "diverged" if run.diverged else run.status for run in arm.runs}
    status = "; ".join(f"seed {seed}: {word}" for seed, word in words.items() if word != "finished")
    calls = " + ".join(str(count) for count in arm.rule.oracle_calls.values())
    differs = ", ".join(f"{name}={_show(own)}" for name, (_, own) in arm.differs.items())
    before = ", ".join(f"{name}={_show(base)}" for name, (base, _) in arm.differs.items())
    return {
        "seeds": Cell(f"{finished}/{len(arm.runs)}", finished, help=status),
        "tokens_per_second": _number(each.tokens_per_second, "{:,.0f}"),
        "parameters": _size(each.parameters),
        "start_tables": _size(each.start_tables),
        "flops_a_token": _number(each.flops_a_token, "{:.3g}", _exact(each.flops_a_token)),
        "calls": Cell(calls, calls),
        "differs": Cell(differs or NONE, differs or None, help=before and f"Baseline: {before}."),
    }


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _exact(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _size(value: float | None) -> Cell:
    """A count of parameters."""
    if not value:
        return Cell(NONE, None if value is None else 0)
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return Cell(f"{value / size:.1f} {unit}", value, help=_exact(value))
    return Cell(f"{value:.0f}", value)


def _paper(preset: str | None, each: Outcome) -> dict[str, Cell]:
    """The paper's figures; candidates of unclear label are sorted by the lower one."""
    figure = paper_figure_of(preset, each)
    cells = {}
    for metric in OF_PAPER:
        text = "" if figure is None else figure.text(metric)
        if figure is None or not text:
            cells[f"paper_{metric}"] = Cell(NONE)
            continue
        said = FOOTNOTE if figure.unclear else ""
        cells[f"paper_{metric}"] = Cell(text, min(figure.values(metric)), help=said)
    return cells


def paper_figure_of(preset: str | None, each: Outcome) -> PaperFigure | None:
    """The paper's figure for an arm: of its rule, if it differs in nothing but the machine."""
    machine = {part.name for part in fields(Machine)}
    return figure_of_rule(preset, each.arm.rule) if set(each.arm.differs) <= machine else None
