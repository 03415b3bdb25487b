"""Ladders: arms of one rule at several sizes; whether they can carry a law, and what is known of
them: laws with intervals, gains, the paper's sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from yuriiformer.comparison.scaling_laws import ComputeLaws, SizeLaws
from yuriiformer.display.curves import Floats

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Arm, Comparison

COUNTS = {
    "all": "all parameters",
    "without_tables": "without positions and start tables",
    "blocks": "without any table",
}
SIZES, SPAN = 4, 8.0  # a law needs so many sizes, and compute from one end to the other
APART = 2.0  # by this factor tokens must vary at one number of parameters


@dataclass(frozen=True)
class Rung:
    """An arm at one size; parameters counted in three ways."""

    arm: str
    parameters: dict[str, float]
    tokens: float
    flops: float
    losses: dict[int, float]  # by seed

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.losses.values())))


@dataclass(frozen=True)
class Family:
    """The arms of one rule, by compute."""

    label: str
    baseline: bool
    rungs: list[Rung]

    def column(self, name: str) -> Floats:
        """``flops``, ``tokens`` or a count of parameters, a number per run."""
        rows = [(each, len(each.losses)) for each in self.rungs]
        value = [each.parameters.get(name) or getattr(each, name, 0.0) for each, _ in rows]
        return np.repeat(np.array(value, dtype=np.float64), [count for _, count in rows])

    @property
    def losses(self) -> Floats:
        return np.array([loss for each in self.rungs for loss in each.losses.values()])

    @property
    def cells(self) -> list[tuple[int, int]]:
        """For each run its place in the ladder and its seed."""
        return [(place, seed) for place, each in enumerate(self.rungs) for seed in each.losses]


def families(comparison: Comparison) -> tuple[list[Family], list[str]]:
    """Arms of one rule that differ in size, the baseline's first, and the arms that are left out:
    of two with the same size, the later one (a check of a rate, say). A rule of which more is left
    out than kept was not run as a ladder."""
    groups: dict[str, list[Arm]] = {}
    for arm in comparison.arms:
        if not arm.first.from_model:
            groups.setdefault(_same_rule(arm), []).append(arm)
    found, left_out = [], []
    for arms in groups.values():
        rungs: dict[tuple[float, float], Rung] = {}
        others = []
        for arm in arms:
            rung = _rung(arm, comparison.metric)
            if rung is None:
                continue
            size = (rung.parameters["all"], rung.tokens)
            if size in rungs:
                others.append(arm.label)
            rungs.setdefault(size, rung)
        if len({size for size, _ in rungs}) < 2 or len(others) > len(rungs):
            continue
        base = comparison.baseline.slug in {arm.slug for arm in arms}
        ladder = sorted(rungs.values(), key=lambda rung: rung.flops)
        found.append(Family(_common_label(arms), base, ladder))
        left_out += others
    return sorted(found, key=lambda family: not family.baseline), left_out


def _same_rule(arm: Arm) -> str:
    """What two rules have in common that differ in their names alone."""
    told = arm.rule.to_dict().items()
    return repr({key: value for key, value in told if key not in ("name", "label", "note")})


def _common_label(arms: Sequence[Arm]) -> str:
    """The words that the labels begin with."""
    first, *others = [arm.label.split(", ") for arm in arms]
    count = 0
    while count < len(first) and all(words[: count + 1] == first[: count + 1] for words in others):
        count += 1
    return ", ".join(first[:count]) or arms[0].rule.label


def _rung(arm: Arm, metric: str) -> Rung | None:
    run, losses = arm.first, arm.values(metric)
    paper, total = run.plan("parameters"), run.plan("all_parameters")
    tokens, flops = run.plan("tokens"), run.plan("flops")
    if not losses or paper is None or total is None or tokens is None or flops is None:
        return None
    model = run.config.model
    counts = {"all": total, "without_tables": paper}
    counts["blocks"] = paper - model.vocab_size * model.d_model
    return Rung(arm.label, counts, tokens, flops, losses)


def refusal(family: Family) -> str:
    """Why the data of a rule cannot carry a law; empty if they can."""
    count, runs = len(family.rungs), len(family.losses)
    span = family.rungs[-1].flops / family.rungs[0].flops
    if count < SIZES:
        return f"It has {count} sizes, and a law needs {SIZES}."
    if span < SPAN:
        return f"Its compute spans a factor of {span:.1f}, and a law needs {SPAN:g}."
    if runs < SIZES + 2:
        return f"It has {runs} runs: too few to know how sure its three numbers are."
    means = [rung.mean for rung in family.rungs]
    with np.errstate(invalid="ignore", divide="ignore"):  # all means may be the same
        falls = np.corrcoef(np.log([rung.flops for rung in family.rungs]), means)[0, 1]
    if not falls < -0.5:
        return "Its loss does not fall with compute."
    return ""


def grow_together(fitted: Sequence[Family]) -> str:
    """Why parameters and tokens cannot be told apart; empty if they can, in every rule."""
    for family in fitted:
        n, d = (np.log(family.column(name)) for name in ("all", "tokens"))
        ratio = np.exp(d - n)
        line = "so a law in compute is fitted, and it holds along this line only."
        if np.ptp(d) < np.log(APART):
            return f"All runs have nearly the same number of tokens, {line}"
        if np.ptp(n) < np.log(APART):
            return f"All runs have nearly the same number of parameters, {line}"
        off = d - np.polyval(np.polyfit(n, d, 1), n)
        few = len(np.unique(n)) < 3 or len(np.unique(d)) < 3 or len(family.rungs) < 6
        if few or np.ptp(off) < np.log(APART):
            ends = list(dict.fromkeys(f"{end:.3g}" for end in (ratio.min(), ratio.max())))
            return (
                f"Parameters and tokens grow together ({' to '.join(ends)} tokens per parameter): "
                f"their shares cannot be told apart, {line}"
            )
    return ""


ENDS = (2.5, 97.5)  # of a 95 % interval, in percent


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
        low, high = np.percentile(finite[1:], ENDS, method="nearest")
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
