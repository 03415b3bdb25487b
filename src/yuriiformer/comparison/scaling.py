"""How the loss falls with size: the laws of ladders, and what an arm is worth in the baseline's
compute.

A ladder whose tokens grow with its parameters does not tell the two apart. Then only a law in
compute is fitted, L = E + A C^-a with a shared E, and it holds along that line. Where parameters
and tokens vary apart, it is L = E + A N^-α + B D^-β for each rule, and the law in compute is its
lowest loss per compute. Intervals are of a bootstrap of residuals: the errors of one size and seed
are drawn together for all rules, because these runs share their batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from yuriiformer.comparison.ladders import COUNTS, Family, families, grow_together, refusal
from yuriiformer.comparison.scaling_laws import ComputeLaws, Floats, fit_compute, fit_sizes
from yuriiformer.comparison.scaling_results import Estimate, Fit, Gain, Scaling
from yuriiformer.comparison.scaling_targets import paper_targets, trust

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Comparison

DRAWS = 500


def scaling(comparison: Comparison, draws: int = DRAWS) -> Scaling | None:
    """None where no rule was run at several sizes."""
    found, left_out = families(comparison)
    if not found:
        return None
    said = [f"Left out, because another arm has the same size: {', '.join(left_out)}."]
    said = said if left_out else []
    fitted, refused = [], []
    for family in found:
        why = refusal(family)
        if why:
            refused.append(f"{family.label}: no law is fitted. {why}")
        else:
            fitted.append(family)
    if not fitted:
        return Scaling(found, refused=refused, said=said)
    together = grow_together(fitted)
    fits = fit(fitted, apart=not together, draws=draws)
    gains = _gains(fits)
    targets = paper_targets(comparison, fits)
    return Scaling(found, fits, gains, targets, refused, [*said, together, *trust(fits, targets)])


def fit(fitted: Sequence[Family], *, apart: bool, draws: int, seed: int = 0) -> list[Fit]:
    """The laws of all rules: of the losses (the first draw) and of a bootstrap."""
    lines = [each.losses[None] for each in fitted]
    first = _laws(fitted, lines, apart=apart)
    expected = [
        each.sizes["all"].loss(each.family.column("all"), each.family.column("tokens"))[0]
        if apart
        else each.laws.loss(each.family.column("flops"))[0]
        for each in first
    ]
    used = 5 if apart else 3  # numbers of a law
    residuals = [
        (each.losses - line - (each.losses - line).mean()) * _widened(len(line), used)
        for each, line in zip(fitted, expected, strict=True)
    ]
    rows = []
    for line, drawn, own in zip(
        expected, _drawn(fitted, residuals, draws, seed), lines, strict=True
    ):
        rows.append(np.concatenate([own, line + drawn]))
    return _laws(fitted, rows, apart=apart)


def _widened(runs: int, used: int) -> float:
    """A law goes nearer to its runs than the true one does, and few runs say little of their own
    spread: by this factor residuals are too small for 95 % intervals (as with Student's t). The
    runs of the other rules do not help: they share most of their noise."""
    from scipy import stats  # noqa: PLC0415

    free = max(runs - used, 1)
    return float(np.sqrt(runs / free) * stats.t.ppf(0.975, free) / stats.norm.ppf(0.975))


def _laws(fitted: Sequence[Family], rows: Sequence[Floats], *, apart: bool) -> list[Fit]:
    if not apart:
        laws = fit_compute([each.column("flops") for each in fitted], rows)
        return [Fit(family, law) for family, law in zip(fitted, laws, strict=True)]
    found = []
    for family, losses in zip(fitted, rows, strict=True):
        tokens = family.column("tokens")
        sizes = {name: fit_sizes(family.column(name), tokens, losses) for name in COUNTS}
        per_parameter = family.column("flops") / tokens / family.column("all")
        found.append(Fit(family, sizes["all"].frontier(float(per_parameter.mean())), sizes))
    return found


def _drawn(
    fitted: Sequence[Family], residuals: Sequence[Floats], draws: int, seed: int
) -> list[Floats]:
    """Residuals drawn with replacement; those of one size and seed together for all rules, where
    all rules have the same sizes and seeds."""
    random = np.random.default_rng(seed)
    same = all(each.cells == fitted[0].cells for each in fitted)
    shared = random.integers(len(residuals[0]), size=(draws, len(residuals[0])))
    found = []
    for own in residuals:
        chosen = shared if same else random.integers(len(own), size=(draws, len(own)))
        found.append(own[chosen])
    return found


def _gains(fits: Sequence[Fit]) -> list[Gain]:
    """Of each rule over the baseline's, at losses that both ladders reach."""
    base = next((each for each in fits if each.family.baseline), None)
    if base is None:
        return []
    found = []
    for each in fits:
        if each is base:
            continue
        ends = [
            [float(one.laws[:1].loss(one.family.rungs[end].flops)[0]) for one in (base, each)]
            for end in (0, -1)
        ]
        high, low = min(ends[0]), max(ends[1])
        if not low < high:
            continue
        small, large = (gain_at(base.laws, each.laws, loss) for loss in (high, low))
        found.append(
            Gain(
                each.family.label,
                Estimate.of(small),
                Estimate.of(large),
                Estimate.of(large / small),
                Estimate.of(each.laws.exponent - base.laws.exponent),
                (high, low),
            )
        )
    return found


def gain_at(base: ComputeLaws, arm: ComputeLaws, loss: float) -> Floats:
    """The baseline's compute over the arm's where both reach a loss, per draw."""
    level = np.full(len(base.floor), loss)
    with np.errstate(invalid="ignore", divide="ignore"):
        return base.compute(level) / arm.compute(level)
