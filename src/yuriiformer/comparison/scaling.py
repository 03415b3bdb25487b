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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from yuriiformer.comparison.ladders import COUNTS, Family, families, grow_together, refusal
from yuriiformer.comparison.scaling_laws import (
    ComputeLaws,
    Floats,
    SizeLaws,
    fit_compute,
    fit_sizes,
)

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Comparison

DRAWS = 500
LEVEL = (2.5, 97.5)  # of an interval, in percent


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, draws: Floats) -> Estimate:
        """The first draw is of the losses themselves."""
        finite = np.where(np.isfinite(draws), draws, np.inf)
        low, high = np.percentile(finite[1:], LEVEL, method="nearest")
        return cls(float(draws[0]), float(low), float(high))


@dataclass(frozen=True)
class Fit:
    """The laws of one rule: in compute, and where it could be fitted in parameters and tokens."""

    family: Family
    laws: ComputeLaws = field(repr=False)
    sizes: dict[str, SizeLaws] = field(default_factory=dict, repr=False)  # by the count of N

    def numbers(self) -> dict[str, Estimate]:
        found = {"E": Estimate.of(self.laws.floor), "a": Estimate.of(self.laws.exponent)}
        for count, law in self.sizes.items():
            found[f"alpha_{count}"] = Estimate.of(law.alpha)
            found[f"beta_{count}"] = Estimate.of(law.beta)
        return found


@dataclass(frozen=True)
class Gain:
    """The baseline's compute over the arm's at equal loss: at the highest loss that both have in
    their ladders, at the lowest, and by what factor it grows from the one to the other."""

    label: str
    small: Estimate
    large: Estimate
    growth: Estimate
    exponent: Estimate  # the arm's a minus the baseline's
    losses: tuple[float, float]


@dataclass(frozen=True)
class Target:
    """A size of the paper in this setting, and what the laws say there."""

    name: str
    parameters: float
    tokens: float
    flops: dict[str, float]  # by rule
    losses: dict[str, Estimate]


@dataclass(frozen=True)
class Scaling:
    """``refused`` has a line for each rule that carries no law, ``said`` what holds of the laws."""

    families: list[Family]
    fits: list[Fit] = field(default_factory=list)
    gains: list[Gain] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


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
    from yuriiformer.comparison.scaling_targets import paper_targets, trust  # noqa: PLC0415  torch

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


def scaling_data(found: Scaling) -> dict[str, Any]:
    """As plain data."""

    def told(estimate: Estimate) -> dict[str, float]:
        return {"value": estimate.value, "low": estimate.low, "high": estimate.high}

    return {
        "rules": [
            {"label": each.label, "baseline": each.baseline, "sizes": [vars(r) for r in each.rungs]}
            for each in found.families
        ],
        "laws": [
            {
                "rule": each.family.label,
                "A": float(np.exp(each.laws.level[0])),
                **{name: told(number) for name, number in each.numbers().items()},
            }
            for each in found.fits
        ],
        "compute_equivalent_gain": [
            {
                "rule": each.label,
                "at_losses": list(each.losses),
                **{name: told(getattr(each, name)) for name in ("small", "large", "growth")},
                "exponent_minus_baseline": told(each.exponent),
            }
            for each in found.gains
        ],
        "extrapolation": [
            {**vars(each), "losses": {name: told(loss) for name, loss in each.losses.items()}}
            for each in found.targets
        ],
        "refused": found.refused,
        "remarks": found.said,
    }
