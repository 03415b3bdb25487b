"""The table of results: the one definition of what it says, for page, terminal and files alike.

A column is one entry of `COLUMNS`: its title, what it means, how its cell is made, when it is left
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from yuriiformer.comparison.outcomes import Comparison, Outcome, Speedup
from yuriiformer.comparison.paper import FOOTNOTE, PaperFigure, figure_of_rule
from yuriiformer.comparison.statistics import Summary
from yuriiformer.config import Machine
from yuriiformer.report.table import NONE, Cell, Column, ResultTable, Row

MINUS = "−"
TITLES = {"final": "Final", "exact": "Exact", "best": "Best"}
MakeCell = Callable[[Comparison, Outcome], Cell]


@dataclass(frozen=True, kw_only=True)
class ResultColumn(Column):
    """``optional`` ones are left out where every cell is empty."""

    cell: MakeCell
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


def _loss(metric: str) -> MakeCell:
    def cell(comparison: Comparison, each: Outcome) -> Cell:
        found: Summary = getattr(each, metric)
        bold = each.arm.slug in lowest(comparison.outcomes, metric)
        if found.mean is None:
            return Cell(NONE, help="No seed has finished.")
        if found.low is None or found.high is None:
            return Cell(f"{found.mean:.3f}", found.mean, bold, "One seed: no interval.")
        half = (found.high - found.low) / 2
        said = f"Mean of {found.n} seeds, 95 % interval {found.low:.4f} to {found.high:.4f}."
        return Cell(f"{found.mean:.3f} ± {_small(half)}", found.mean, bold, said)

    return cell


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


def _beside_baseline(text: str, make: Callable[[Outcome], Cell]) -> MakeCell:
    """Of an arm beside the baseline; ``text`` is the baseline's own."""

    def cell(comparison: Comparison, each: Outcome) -> Cell:
        if each.arm.slug != comparison.baseline.slug:
            return make(each)
        value = None if text == NONE else 0.0
        return Cell(text, value, help="The others are compared with this arm.")

    return cell


def _difference(each: Outcome) -> Cell:
    found = each.difference
    if found.mean is None:
        return Cell(NONE, help="No seed has finished in both arms.")
    text, said = signed(found.mean), "One common seed: no interval."
    if found.low is not None and found.high is not None:
        text += f" [{signed(found.low)}, {signed(found.high)}]"
        said = f"Over {found.n} common seeds."
    return Cell(text, found.mean, help=said)


def _p(each: Outcome) -> Cell:
    p, alone = each.difference.p_holm, each.difference.p
    said = "" if alone is None else f"Uncorrected p = {alone:.2g}."
    return _number(p, "<0.001" if p is not None and p < 0.0005 else "{:.3f}", said)


def _detectable(each: Outcome) -> Cell:
    found = each.difference.detectable
    return Cell(NONE) if found is None else Cell(_small(found), found)


def _speedup(found: Speedup) -> Cell:
    if found.n == 0:
        return Cell(NONE)
    if found.ratio is None or not math.isfinite(found.ratio):
        return Cell("not reached", help="The baseline's best loss was not reached.")
    part = "" if found.reached == found.n else f" ({found.reached} of {found.n} seeds)"
    return Cell(f"{found.ratio:.2f} ×{part}", found.ratio)


def _seeds(comparison: Comparison, each: Outcome) -> Cell:
    runs = each.arm.runs
    finished = sum(run.finished and not run.diverged for run in runs)
    words = {run.seed: "diverged" if run.diverged else run.status for run in runs}
    status = "; ".join(f"seed {seed}: {word}" for seed, word in words.items() if word != "finished")
    return Cell(f"{finished}/{len(runs)}", finished, help=status)


def _calls(comparison: Comparison, each: Outcome) -> Cell:
    calls = " + ".join(str(count) for count in each.arm.rule.oracle_calls.values())
    return Cell(calls, calls)


def _differs(comparison: Comparison, each: Outcome) -> Cell:
    items = each.arm.differs.items()
    own = ", ".join(f"{name}={_show(value)}" for name, (_, value) in items)
    before = ", ".join(f"{name}={_show(value)}" for name, (value, _) in items)
    return Cell(own or NONE, own or None, help=before and f"Baseline: {before}.")


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


def _paper(metric: str) -> MakeCell:
    """The paper's figure; candidates of unclear label are sorted by the lower one."""

    def cell(comparison: Comparison, each: Outcome) -> Cell:
        figure = paper_figure_of(comparison.preset, each)
        text = "" if figure is None else figure.text(metric)
        if figure is None or not text:
            return Cell(NONE)
        return Cell(text, min(figure.values(metric)), help=FOOTNOTE if figure.unclear else "")

    return cell


def paper_figure_of(preset: str | None, each: Outcome) -> PaperFigure | None:
    """The paper's figure for an arm: of its rule, if it differs in nothing but the machine."""
    machine = {part.name for part in fields(Machine)}
    return figure_of_rule(preset, each.arm.rule) if set(each.arm.differs) <= machine else None


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
        cell=_loss("final"),
    ),
    ResultColumn(
        key="exact",
        title="Exact",
        help="The same over the whole validation split, every token but the first once.",
        lower_is_better=True,
        cell=_loss("exact"),
        optional=True,
        drop=1,
    ),
    ResultColumn(
        key="paper_final",
        title="Final (paper)",
        help="The paper's.",
        lower_is_better=True,
        cell=_paper("final"),
        optional=True,
        drop=6,
    ),
    ResultColumn(
        key="difference",
        title="Difference",
        help="{metric} minus the baseline's, seed by seed: mean and its 95 % interval.",
        lower_is_better=True,
        cell=_beside_baseline("baseline", _difference),
    ),
    ResultColumn(
        key="p",
        title="p (Holm)",
        help="Of the paired two-sided t test that the difference is zero, corrected for the "
        "number of arms (Holm).",
        cell=_beside_baseline(NONE, _p),
        drop=2,
    ),
    ResultColumn(
        key="detectable",
        title="Detectable",
        help="The true difference that this many seeds with this spread would have shown with "
        "probability 0.8.",
        cell=_beside_baseline(NONE, _detectable),
        drop=12,
    ),
    ResultColumn(
        key="best",
        title="Best",
        help="Lowest validation loss of a run: the lowest of many, so it flatters.",
        lower_is_better=True,
        cell=_loss("best"),
    ),
    ResultColumn(
        key="paper_best",
        title="Best (paper)",
        help="The paper's.",
        lower_is_better=True,
        cell=_paper("best"),
        optional=True,
        drop=7,
    ),
    ResultColumn(
        key="best_step",
        title="Step of Best",
        help="When it was reached: mean over seeds.",
        cell=lambda _, each: _number(each.best_step.mean, "{:,.0f}"),
        drop=9,
    ),
    ResultColumn(
        key="train",
        title="Train",
        help="Mean training loss of the last step's batch.",
        lower_is_better=True,
        cell=_loss("train"),
    ),
    ResultColumn(
        key="paper_train",
        title="Train (paper)",
        help="The paper's.",
        lower_is_better=True,
        cell=_paper("train"),
        optional=True,
        drop=8,
    ),
    ResultColumn(
        key="seeds",
        title="Seeds",
        help="Runs that finished, of all.",
        cell=_seeds,
        drop=3,
    ),
    ResultColumn(
        key="speedup_steps",
        title="Speed-up, steps",
        help="The baseline's steps to its own best loss, divided by this arm's steps to the same "
        "loss.",
        lower_is_better=False,
        cell=_beside_baseline(NONE, lambda each: _speedup(each.speedup_steps)),
        drop=4,
    ),
    ResultColumn(
        key="speedup_time",
        title="Speed-up, time",
        help="The same in seconds of training.",
        lower_is_better=False,
        cell=_beside_baseline(NONE, lambda each: _speedup(each.speedup_time)),
        drop=11,
    ),
    ResultColumn(
        key="tokens_per_second",
        title="Tokens/s",
        help="Median over a run's steps.",
        lower_is_better=False,
        cell=lambda _, each: _number(each.tokens_per_second, "{:,.0f}"),
        drop=10,
    ),
    ResultColumn(
        key="parameters",
        title="Parameters",
        help="Without positions and without the v0 tables, as the paper counts.",
        cell=lambda _, each: _size(each.parameters),
        drop=13,
    ),
    ResultColumn(
        key="start_tables",
        title="v0 tables",
        help="Parameters of the token tables that further streams start from.",
        cell=lambda _, each: _size(each.start_tables),
        drop=15,
    ),
    ResultColumn(
        key="flops_a_token",
        title="FLOPs/token",
        help="Of training: forward and backward pass, products of matrices.",
        cell=lambda _, each: _number(each.flops_a_token, "{:.3g}", _exact(each.flops_a_token)),
        drop=16,
    ),
    ResultColumn(
        key="calls",
        title="Attn + MLP",
        help="How often a block calls each oracle.",
        numeric=False,
        cell=_calls,
        drop=14,
    ),
    ResultColumn(
        key="differs",
        title="Differs in",
        help="Settings other than the baseline's, beyond the rule.",
        numeric=False,
        cell=_differs,
        optional=True,
        drop=5,
    ),
)
