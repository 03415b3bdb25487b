"""The arms of a study, and the verdicts on its hypotheses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from results.tables.archives import STUDY, archive, losses, markdown
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.hypotheses import Verdict
from yuriiformer.comparison.outcomes import Comparison


@cache
def comparison(name: str | Path) -> Comparison:
    [found] = collect([STUDY / name])
    return found


def seeds_table(name: str | Path, arms: Sequence[str] = ()) -> str:
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


def interval(mean: float | None, low: float | None, high: float | None) -> str:
    if mean is None:
        return ""
    if low is None or high is None:
        return signed(mean)
    return f"{signed(mean)} ({signed(low)} to {signed(high)})"


def signed(value: float) -> str:
    return f"{value:+.4f}".replace("-", "−")


def verdicts_table(name: str | Path) -> str:
    """A row for each hypothesis, under its family's question."""
    found = comparison(name)
    questions = {} if found.study is None else found.study.definition.get("families", {})
    rows = []
    for family in dict.fromkeys(each.hypothesis.family for each in found.verdicts):
        rows.append([f"**{questions.get(family, family)}**", *[""] * 4])
        rows += [_verdict(each) for each in found.verdicts if each.hypothesis.family == family]
    heads = ["claim", "at least", "difference (95 %)", "p (Holm)", "verdict"]
    return markdown(heads, rows)


def _verdict(each: Verdict) -> list[str]:
    return [
        each.hypothesis.claim + (" (late)" if each.late else ""),
        f"{each.hypothesis.difference:g}",
        interval(each.difference, *each.interval),
        "" if each.p is None else "< 0.001" if each.p < 0.001 else f"{each.p:.3f}",
        each.verdict + (f": {each.reason}" if each.reason else ""),
    ]
