"""The table of results: the one definition of what it says, for page, terminal and files alike.

A column is one entry of `COLUMNS`: its title, what it means, how its cell is made, when it is left
out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.comparison.paper import FOOTNOTE
from yuriiformer.report import cells
from yuriiformer.report.cells import NONE, Cell, Column, ResultTable, Row

TITLES = {"final": "Final", "exact": "Exact", "best": "Best"}


@dataclass(frozen=True, kw_only=True)
class ResultColumn(Column):
    """``optional`` ones are left out where every cell is empty."""

    cell: cells.MakeCell
    optional: bool = False


def styles(comparison: Comparison) -> dict[str, int]:
    """The look of each arm's line (see `palette`): 0 is the baseline, others follow in order."""
    others = [arm.slug for arm in comparison.arms if arm.slug != comparison.baseline.slug]
    found = {slug: number for number, slug in enumerate(others, 1)}
    return {arm.slug: found.get(arm.slug, 0) for arm in comparison.arms}


def result_table(comparison: Comparison) -> ResultTable:
    """A row for each arm, in their order."""
    rows = [
        Row(each.arm.slug, {column.key: column.cell(comparison, each) for column in COLUMNS})
        for each in comparison.outcomes
    ]
    named = TITLES[comparison.metric]
    shown = [
        replace(column, help=column.help.replace("{metric}", named))
        for column in COLUMNS
        if not column.optional or not all(row.cells[column.key].empty for row in rows)
    ]
    kept = tuple(Row(r.arm_slug, {each.key: r.cells[each.key] for each in shown}) for r in rows)
    unclear = any(cell.help == FOOTNOTE for row in kept for cell in row.cells.values())
    return ResultTable(tuple(shown), kept, (FOOTNOTE,) if unclear else ())


COLUMNS = (
    ResultColumn(
        key="arm",
        title="Arm",
        help="What is compared: a rule, perhaps with other settings.",
        numeric=False,
        cell=lambda _, each: Cell(each.arm.label, each.arm.label, help=each.arm.rule.note),
    ),
    ResultColumn(
        key="final",
        title="Final",
        help="Validation loss after the last step, in nats per token: mean over the finished "
        "seeds ± half its 95 % interval.",
        lower_is_better=True,
        cell=cells.loss("final"),
    ),
    ResultColumn(
        key="exact",
        title="Exact",
        help="The same over the whole validation split, every token but the first once.",
        lower_is_better=True,
        cell=cells.loss("exact"),
        optional=True,
        drop=1,
    ),
    ResultColumn(
        key="paper_final",
        title="Final (paper)",
        help="The paper's.",
        lower_is_better=True,
        cell=cells.paper("final"),
        optional=True,
        drop=6,
    ),
    ResultColumn(
        key="difference",
        title="Difference",
        help="{metric} minus the baseline's, seed by seed: mean and its 95 % interval.",
        lower_is_better=True,
        cell=cells.beside_baseline("baseline", cells.difference),
    ),
    ResultColumn(
        key="p",
        title="p (Holm)",
        help="Of the paired two-sided t test that the difference is zero, corrected for the "
        "number of arms (Holm).",
        cell=cells.beside_baseline(NONE, cells.p_value),
        drop=2,
    ),
    ResultColumn(
        key="detectable",
        title="Detectable",
        help="The true difference that this many seeds with this spread would have shown with "
        "probability 0.8.",
        cell=cells.beside_baseline(NONE, cells.detectable),
        drop=12,
    ),
    ResultColumn(
        key="best",
        title="Best",
        help="Lowest validation loss of a run: the lowest of many, so it flatters.",
        lower_is_better=True,
        cell=cells.loss("best"),
    ),
    ResultColumn(
        key="paper_best",
        title="Best (paper)",
        help="The paper's.",
        lower_is_better=True,
        cell=cells.paper("best"),
        optional=True,
        drop=7,
    ),
    ResultColumn(
        key="best_step",
        title="Step of Best",
        help="When it was reached: mean over seeds.",
        cell=lambda _, each: cells.number(each.best_step.mean, "{:,.0f}"),
        drop=9,
    ),
    ResultColumn(
        key="train",
        title="Train",
        help="Mean training loss of the last step's batch.",
        lower_is_better=True,
        cell=cells.loss("train"),
    ),
    ResultColumn(
        key="paper_train",
        title="Train (paper)",
        help="The paper's.",
        lower_is_better=True,
        cell=cells.paper("train"),
        optional=True,
        drop=8,
    ),
    ResultColumn(
        key="seeds",
        title="Seeds",
        help="Runs that finished, of all.",
        cell=cells.seeds,
        drop=3,
    ),
    ResultColumn(
        key="speedup_steps",
        title="Speed-up, steps",
        help="The baseline's steps to its own best loss, divided by this arm's steps to the same "
        "loss.",
        lower_is_better=False,
        cell=cells.beside_baseline(NONE, lambda each: cells.speedup(each.speedup_steps)),
        drop=4,
    ),
    ResultColumn(
        key="speedup_time",
        title="Speed-up, time",
        help="The same in seconds of training.",
        lower_is_better=False,
        cell=cells.beside_baseline(NONE, lambda each: cells.speedup(each.speedup_time)),
        drop=11,
    ),
    ResultColumn(
        key="tokens_per_second",
        title="Tokens/s",
        help="Median over a run's steps.",
        lower_is_better=False,
        cell=lambda _, each: cells.number(each.tokens_per_second, "{:,.0f}"),
        drop=10,
    ),
    ResultColumn(
        key="parameters",
        title="Parameters",
        help="Without positions and without the v0 tables, as the paper counts.",
        cell=lambda _, each: cells.size(each.parameters),
        drop=13,
    ),
    ResultColumn(
        key="start_tables",
        title="v0 tables",
        help="Parameters of the token tables that further streams start from.",
        cell=lambda _, each: cells.size(each.start_tables),
        drop=15,
    ),
    ResultColumn(
        key="flops_a_token",
        title="FLOPs/token",
        help="Of training: forward and backward pass, products of matrices.",
        cell=lambda _, each: cells.number(
            each.flops_a_token, "{:.3g}", cells.whole(each.flops_a_token)
        ),
        drop=16,
    ),
    ResultColumn(
        key="calls",
        title="Attn + MLP",
        help="How often a block calls each oracle.",
        numeric=False,
        cell=cells.calls,
        drop=14,
    ),
    ResultColumn(
        key="differs",
        title="Differs in",
        help="Settings other than the baseline's, beyond the rule.",
        numeric=False,
        cell=cells.differs,
        optional=True,
        drop=5,
    ),
)
