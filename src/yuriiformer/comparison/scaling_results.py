"""What is known of scaling: laws with intervals, gains, the paper's sizes; also as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from yuriiformer.comparison.ladders import Family
from yuriiformer.comparison.scaling_laws import ComputeLaws, SizeLaws
from yuriiformer.display.curves import Floats

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
