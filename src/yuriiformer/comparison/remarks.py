"""Remarks on a comparison: what its runs and seeds do not allow to be said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from yuriiformer.comparison.study import Metric

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Outcome


def remarks_on(outcomes: Sequence[Outcome], metric: Metric) -> list[str]:
    remarks = []
    for each in outcomes:
        for run in each.arm.runs:
            where = f"{each.arm.label}, seed {run.seed}"
            if run.status == "failed":
                remarks.append(f"{where} failed after step {run.step}: {run.failure}.")
            elif run.status == "unfinished":
                remarks.append(f"{where} has {run.step:,} of {run.steps:,} steps.")
            elif run.diverged:
                remarks.append(f"{where} ended with a loss that is not finite: it is in no mean.")
        if each.arm.differs:
            words = [
                f"{name} {short_text(own)} (baseline {short_text(base)})"
                for name, (base, own) in each.arm.differs.items()
            ]
            more = "differs from the baseline in more than its rule"
            remarks.append(f"{each.arm.label} {more}: {', '.join(words)}.")
    return remarks + _about_seeds(outcomes, metric)


def _about_seeds(outcomes: Sequence[Outcome], metric: Metric) -> list[str]:
    """What the seeds do not allow."""
    seeds = {each.arm.label: sorted(each.arm.values(metric)) for each in outcomes}
    sets = {tuple(own) for own in seeds.values() if own}
    remarks = []
    if len(sets) > 1:
        finished = [(label, own) for label, own in seeds.items() if own]
        words = "; ".join(f"{label} {', '.join(map(str, own))}" for label, own in finished)
        remarks.append(
            f"Arms have other seeds ({words}): compare their differences, which are over common "
            "seeds, and not their means."
        )
    alone = [each for each in outcomes if each.difference.n == 1]
    if alone and len(alone) == sum(each.difference.n > 0 for each in outcomes):
        remarks.append(
            "One seed: differences are shown, but no interval exists, and none can be told from "
            "chance. Add seeds (--seeds 0,1,2)."
        )
    elif alone:
        names = ", ".join(each.arm.label for each in alone)
        remarks.append(f"One seed in common with the baseline, so no interval: {names}.")
    return remarks


def short_text(value: Any) -> str:
    """The value of a field."""
    return f"{value:g}" if isinstance(value, float) else str(value)
