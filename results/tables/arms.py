"""The arms of a study, and the verdicts on its hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from results.tables.archives import STUDY, archive, losses, markdown
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.outcomes import Comparison, Outcome


@cache
def comparison(name: str) -> Comparison:
    [found] = collect([STUDY / name])
    return found


def seeds_table(name: str, arms: Sequence[str] = ()) -> str:
    """A row for each arm with a finished run, or for these arms; the lowest mean first, with every
    seed. The difference to the baseline is over the seeds that both have."""
    record, own_losses = archive(name), losses(name)
    base = own_losses[record.definition["study"]["definition"]["baseline"]]
    runs = {each.label: each.run for each in record.entries if each.run is not None}
    found = {label: own for label, own in own_losses.items() if own and label in (arms or runs)}
    rows = []
    for label, own in sorted(found.items(), key=lambda item: np.mean(list(item[1].values()))):
        run, both = runs[label], sorted(own.keys() & base.keys())
        each = ", ".join(f"{own[seed]:.4f}" for seed in sorted(own))
        difference = np.mean([own[seed] - base[seed] for seed in both]) if both else None
        rows.append(
            [
                label,
                " + ".join(map(str, run.rule.oracle_calls.values())),
                f"{(run.plan('all_parameters') or 0) / 1e6:.2f} M",
                each,
                f"{np.mean(list(own.values())):.4f}",
                "" if difference is None else signed(difference),
            ]
        )
    heads = ["arm", "calls", "parameters", "exact loss, per seed", "mean", "difference"]
    return markdown(heads, rows)


def means_table(name: str) -> str:
    """A row for each arm, the lowest first: mean and standard deviation over seeds, the difference
    to the baseline with its interval, and the mean on each other text."""
    found = comparison(name)
    rows = []
    for each in found.ranked():
        own = found.primary(each)
        spread = "" if own.std is None else f" ± {own.std:.4f}"
        rows.append(
            [
                each.arm.label,
                " + ".join(map(str, each.arm.rule.oracle_calls.values())),
                f"{(each.arm.first.plan('all_parameters') or 0) / 1e6:.2f} M",
                str(own.n),
                f"{own.mean:.4f}{spread}",
                "" if each.arm.slug == found.baseline.slug else _beside(each),
                *(f"{each.of(f'exact:{text}').mean:.4f}" for text in found.texts),
            ]
        )
    heads = ["arm", "calls", "parameters", "seeds", "exact loss", "difference (95 %)"]
    return markdown([*heads, *(f"on {text}" for text in found.texts)], rows)


def _beside(each: Outcome) -> str:
    return _interval(each.difference.mean, each.difference.low, each.difference.high)


def _interval(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None:
        return ""
    if low is None or high is None:
        return signed(mean)
    return f"{signed(mean)} ({signed(low)} to {signed(high)})"


def signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def verdicts_table(name: str) -> str:
    """A row for each hypothesis, by families."""
    rows = []
    found = comparison(name).verdicts
    families = [each.hypothesis.family for each in found]
    for each in sorted(found, key=lambda each: families.index(each.hypothesis.family)):
        asked = each.hypothesis
        rows.append(
            [
                asked.family,
                asked.claim + (" (late)" if each.late else ""),
                f"{asked.difference:g}",
                _interval(each.difference, *each.interval),
                "" if each.p is None else "< 0.001" if each.p < 0.001 else f"{each.p:.3f}",
                each.verdict,
            ]
        )
    heads = ["family", "claim", "at least", "difference (95 %)", "p (Holm)", "verdict"]
    return markdown(heads, rows)
