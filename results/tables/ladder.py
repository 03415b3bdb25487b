"""The ladder: the loss by size for each rule, the laws of its fall, and the check of the rates.

Before all runs have ended, only the losses that there are: no law, no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from results.tables.archives import markdown, progress, study
from results.tables.arms import comparison, signed
from yuriiformer.comparison.ladders import Estimate, Rung, Scaling
from yuriiformer.comparison.outcomes import Arm

CHECKS = {"half the rates": "half", "": "as carried over", "twice the rates": "twice"}


def _scaling(name: str | Path) -> Scaling | None:
    return comparison(name).scaling if progress(name).begun else None


def results(name: str | Path) -> str:
    """How far it is, and the losses that there are."""
    return f"{progress(name)}\n\n{sizes_table(name)}".strip()


def sizes_table(name: str | Path) -> str:
    """A row for each size, a column for each rule: the mean loss, and the difference to the
    baseline's over the seeds that both have."""
    found = _scaling(name)
    if found is None:
        return ""
    arms = {arm.label: arm for arm in comparison(name).arms}
    places: dict[str, dict[str, Rung]] = {}
    for family in found.families:
        for rung in family.rungs:
            places.setdefault(_place(arms[rung.arm]), {})[family.label] = rung
    base = found.families[0].label
    rows = []
    for place, rungs in places.items():
        first = next(iter(rungs.values()))
        losses = [_loss(rungs, each.label, base) for each in found.families]
        flops = f"{first.flops:.1e}".replace("e+", "e")
        rows.append(
            [place, f"{first.parameters['all'] / 1e6:.2f} M", _tokens(first), flops, *losses]
        )
    heads = ["size", "parameters", "tokens", "FLOPs", *(each.label for each in found.families)]
    return markdown(heads, rows)


def _place(arm: Arm) -> str:
    model = arm.first.config.model
    return f"{model.n_layer} layers, d {model.d_model}"


def _tokens(rung: Rung) -> str:
    return f"{rung.tokens / 1e6:.1f} M"


def _loss(rungs: Mapping[str, Rung], label: str, base: str) -> str:
    if label not in rungs:
        return ""
    own = rungs[label]
    both = sorted(own.losses.keys() & rungs[base].losses.keys()) if base in rungs else []
    if label == base or not both:
        return f"{own.mean:.4f}"
    apart = np.mean([own.losses[seed] - rungs[base].losses[seed] for seed in both])
    return f"{own.mean:.4f} ({signed(float(apart))})"


def laws(name: str | Path) -> str:
    """The laws, or why there are none, and what each rule is worth in the baseline's compute."""
    found = _scaling(name)
    if found is None or not progress(name).complete:
        return "No law is fitted before the last run."
    parts = [f"- {line}\n" for line in found.refused]
    if found.fits:
        parts.append(_laws_table(found) + "\n")
    if found.gains:
        parts.append(_gains_table(found) + "\n")
    checks = [
        arm.label for arm in study(name).arms if arm.label.endswith(tuple(filter(None, CHECKS)))
    ]
    said = [line for line in found.said if line and not any(label in line for label in checks)]
    return "\n".join([*parts, *(f"- {line}" for line in said)]).strip()


def _laws_table(found: Scaling) -> str:
    """What of the law L = E + A C^-a the runs determine."""
    rows = []
    for fit in found.fits:
        numbers, label = fit.numbers(), fit.family.label
        told = [_estimate(numbers[key], ".3f") for key in ("E", "a")]
        told += [_estimate(target.losses[label], ".2f") for target in found.targets]
        rows.append([label, *told])
    heads = ["rule", "E (95 %)", "a (95 %)"]
    return markdown([*heads, *(f"at the paper's {each.name} size" for each in found.targets)], rows)


def _gains_table(found: Scaling) -> str:
    rows = []
    for each in found.gains:
        ends = [_estimate(one, ".2f") for one in (each.small, each.large, each.growth)]
        rows.append(
            [each.label, f"{each.losses[0]:.3f}", ends[0], f"{each.losses[1]:.3f}", *ends[1:]]
        )
    heads = ["rule", "at loss", "gain (95 %)", "at loss", "gain (95 %)", "growth (95 %)"]
    return markdown(heads, rows)


def _estimate(found: Estimate, form: str) -> str:
    if not math.isfinite(found.value):
        return ""
    low, high = ("∞" if not math.isfinite(v) else format(v, form) for v in (found.low, found.high))
    return f"{found.value:{form}} ({low} to {high})"


def rates_check(name: str | Path) -> str:
    """The mean loss of each rule with half and twice the rates that were carried over."""
    if not progress(name).begun:
        return "No runs yet."
    arms = {arm.label: arm for arm in comparison(name).arms}
    planned = [arm.label for arm in study(name).arms]
    carried = [label.removesuffix(", half the rates") for label in planned if "half the" in label]
    rows = []
    for label in carried:
        own = {
            words: arms[at].values(comparison(name).metric)
            for end, words in CHECKS.items()
            if (at := ", ".join(filter(None, (label, end)))) in arms
        }
        rows.append(
            [label, *(_mean(own.get(words, {})) for words in CHECKS.values()), _lowest(own)]
        )
    return markdown(["rule", *CHECKS.values(), "lowest, by seed"], rows)


def _mean(own: Mapping[int, float]) -> str:
    return f"{np.mean(list(own.values())):.4f}" if own else ""


def _lowest(own: Mapping[str, Mapping[int, float]]) -> str:
    """With which rates each seed ended lowest, once all have."""
    seeds = set.intersection(*(set(each) for each in own.values())) if len(own) == 3 else set()
    return ", ".join(min(own, key=lambda words: own[words][seed]) for seed in sorted(seeds))
