"""The table of results: the one definition of what it says, for page, terminal and files alike.

A column is one entry of `COLUMNS`: its title, what it means, how its cell is made, when it is left
out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.comparison.paper import FOOTNOTE
from yuriiformer.errors import RunError
from yuriiformer.report import cells
from yuriiformer.report.cells import NONE, Cell, Column, ResultTable, Row
from yuriiformer.report.headline import headline
from yuriiformer.report.tables import markdown, terminal_table


@dataclass(frozen=True, kw_only=True)
class ResultColumn(Column):
    """``optional`` ones are left out where every cell is empty."""

    cell: cells.MakeCell
    optional: bool = False


def result_table(comparison: Comparison) -> ResultTable:
    """A row for each arm, in their order."""
    columns = _columns(comparison)
    rows = [
        Row(each.arm.slug, {column.key: column.cell(comparison, each) for column in columns})
        for each in comparison.outcomes
    ]
    shown = [
        replace(column, help=column.help.replace("{metric}", comparison.metric.capitalize()))
        for column in columns
        if not column.optional or not all(row.cells[column.key].empty for row in rows)
    ]
    kept = tuple(Row(r.arm_slug, {each.key: r.cells[each.key] for each in shown}) for r in rows)
    unclear = any(cell.help == FOOTNOTE for row in kept for cell in row.cells.values())
    return ResultTable(tuple(shown), kept, (FOOTNOTE,) if unclear else ())


def _columns(comparison: Comparison) -> list[ResultColumn]:
    """Those of every comparison, and after Exact one for each other text. Where Exact is what arms
    are judged by, it stays and Final may go."""
    place = 1 + next(n for n, column in enumerate(COLUMNS) if column.key == "exact")
    texts = [
        _loss(f"exact:{name}", f"The same over the validation split of {name}.", drop=1)
        for name in comparison.texts
    ]
    found = [*COLUMNS[:place], *texts, *COLUMNS[place:]]
    if comparison.metric == "exact":
        drops = {"final": 1, "exact": 0}
        found = [replace(each, drop=drops.get(each.key, each.drop)) for each in found]
    return found


def _loss(metric: str, help: str, **more: Any) -> ResultColumn:
    cell, title = cells.loss(metric), metric.capitalize().replace(":", ", ")
    return ResultColumn(metric, title, help, lower_is_better=True, cell=cell, **more)


def _paper(metric: str, drop: int) -> ResultColumn:
    more: Any = {"lower_is_better": True, "optional": True, "drop": drop}
    title = f"{metric.capitalize()} (paper)"
    return ResultColumn(f"paper_{metric}", title, "The paper's.", cell=cells.paper(metric), **more)


COLUMNS = (
    ResultColumn(
        "arm",
        "Arm",
        "What is compared: a rule, perhaps with other settings.",
        numeric=False,
        cell=lambda _, each: Cell(each.arm.label, each.arm.label, help=each.arm.rule.note),
    ),
    _loss(
        "final",
        "Validation loss after the last step, in nats per token: mean over the finished seeds ± "
        "half its 95 % interval.",
    ),
    _loss(
        "exact",
        "The same over the whole validation split, every token but the first once.",
        optional=True,
        drop=1,
    ),
    _paper("final", drop=6),
    ResultColumn(
        "difference",
        "Difference",
        "{metric} minus the baseline's, seed by seed: mean and its 95 % interval.",
        lower_is_better=True,
        cell=cells.beside_baseline("baseline", cells.difference),
    ),
    ResultColumn(
        "p",
        "p (Holm)",
        "Of the paired two-sided t test that the difference is zero, corrected for the number of "
        "arms (Holm).",
        cell=cells.beside_baseline(NONE, cells.p_value),
        drop=2,
    ),
    ResultColumn(
        "detectable",
        "Detectable",
        "The true difference that this many seeds with this spread would have shown with "
        "probability 0.8.",
        cell=cells.beside_baseline(NONE, cells.detectable),
        drop=12,
    ),
    _loss("best", "Lowest validation loss of a run: the lowest of many, so it flatters."),
    _paper("best", drop=7),
    ResultColumn(
        "best_step",
        "Step of Best",
        "When it was reached: mean over seeds.",
        cell=lambda _, each: cells.number(each.best_step.mean, "{:,.0f}"),
        drop=9,
    ),
    _loss("train", "Mean training loss of the last step's batch."),
    _paper("train", drop=8),
    ResultColumn("seeds", "Seeds", "Runs that finished, of all.", cell=cells.seeds, drop=3),
    ResultColumn(
        "speedup_steps",
        "Speed-up, steps",
        "The baseline's steps to its own best loss, divided by this arm's steps to the same loss.",
        lower_is_better=False,
        cell=cells.beside_baseline(NONE, lambda each: cells.speedup(each.speedup_steps)),
        drop=4,
    ),
    ResultColumn(
        "speedup_time",
        "Speed-up, time",
        "The same in seconds of training.",
        lower_is_better=False,
        cell=cells.beside_baseline(NONE, lambda each: cells.speedup(each.speedup_time)),
        drop=11,
    ),
    ResultColumn(
        "tokens_per_second",
        "Tokens/s",
        "Median over a run's steps.",
        lower_is_better=False,
        cell=lambda _, each: cells.number(each.tokens_per_second, "{:,.0f}"),
        drop=10,
    ),
    ResultColumn(
        "parameters",
        "Parameters",
        "Without positions and without the v0 tables, as the paper counts.",
        cell=lambda _, each: cells.size(each.parameters),
        drop=13,
    ),
    ResultColumn(
        "start_tables",
        "v0 tables",
        "Parameters of the token tables that further streams start from.",
        cell=lambda _, each: cells.size(each.start_tables),
        drop=15,
    ),
    ResultColumn(
        "flops_a_token",
        "FLOPs/token",
        "Of training: forward and backward pass, products of matrices.",
        cell=cells.flops,
        drop=16,
    ),
    ResultColumn(
        "calls",
        "Attn + MLP",
        "How often a block calls each oracle.",
        numeric=False,
        cell=cells.calls,
        drop=14,
    ),
    ResultColumn(
        "differs",
        "Differs in",
        "Settings other than the baseline's, beyond the rule.",
        numeric=False,
        cell=cells.differs,
        optional=True,
        drop=5,
    ),
)


@dataclass(frozen=True)
class Compared:
    """Arms over their seeds, beside a baseline. ``print`` shows the table; ``comparison.outcomes``
    has the numbers."""

    comparison: Comparison

    @cached_property
    def table(self) -> ResultTable:
        return result_table(self.comparison)

    def __str__(self) -> str:
        return "\n".join([terminal_table(self.table), *headline(self.comparison)])

    def _repr_markdown_(self) -> str:  # as a notebook shows it
        return markdown(self.table)


def compare(paths: str | Path | Sequence[str | Path], *, baseline: str | None = None) -> Compared:
    """Compare runs: suites, archives, single runs, or folders that hold some.

    Args:
        paths: one or several folders.
        baseline: the arm that others are compared with, by its label or rule; gradient descent if
            not given, or the first.
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    found = collect([Path(path) for path in given], baseline)
    if len(found) > 1:
        names = ", ".join(each.name or "single runs" for each in found)
        raise RunError(f"these are several comparisons ({names}): give their folders one at a time")
    return Compared(found[0])
