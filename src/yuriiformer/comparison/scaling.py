"""How the loss falls with size: the laws of ladders, and the compute that the baseline needs to
reach an arm's loss.

A ladder whose tokens grow with its parameters does not tell the two apart. Then only a law in
compute is fitted, L = E + A C^-a with a shared E, and it holds along that line. Where parameters
and tokens vary apart, it is L = E + A N^-α + B D^-β for each rule, and the law in compute is its
lowest loss per compute. The laws are also read at the paper's sizes, with a word on how far they
can be trusted there. Intervals are of a bootstrap of residuals: the errors of one size and seed
are drawn together for all rules, because these runs share their batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from yuriiformer.comparison.ladders import (
    COUNTS,
    Estimate,
    Family,
    Fit,
    Gain,
    Rung,
    Scaling,
    Target,
    families,
    grow_together,
    refusal,
)
from yuriiformer.comparison.scaling_laws import ComputeLaws, fit_compute, fit_sizes
from yuriiformer.display.curves import Floats

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Comparison
    from yuriiformer.model.config import ModelConfig

DRAWS = 500
PAPER = {"small": (12, 768), "medium": (24, 1024)}  # layers and width


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
    """The factor by which residuals are too small for 95 % intervals. A fitted law lies closer to
    its runs than the true law does, and few runs give an uncertain spread (therefore Student's t).
    The runs of the other rules do not help: they share most of their noise."""
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
    """The gain of each rule over the baseline's, at losses that both ladders reach."""
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


def paper_targets(comparison: Comparison, fits: Sequence[Fit]) -> list[Target]:
    """Models of the paper's depth and width with this vocabulary and context, trained on as many
    tokens as the rule's ladder has for its parameters."""
    base = next((each for each in fits if each.family.baseline), fits[0])
    arms = {arm.label: arm for arm in comparison.arms}
    found = []
    for name, (layers, width) in PAPER.items():
        sizes: dict[str, tuple[float, float]] = {}
        flops, losses = {}, {}
        for each in fits:
            family, largest = each.family, each.family.rungs[-1]
            model = arms[largest.arm].first.config.model
            parameters = scaled_parameters(largest, model, layers, width)
            tokens = _tokens(family, parameters)
            per_token = largest.flops / largest.tokens
            per_token *= work(model, layers, width) / work(model, model.n_layer, model.d_model)
            sizes[family.label], flops[family.label] = (parameters, tokens), per_token * tokens
            losses[family.label] = Estimate.of(each.laws.loss(flops[family.label]))
        found.append(Target(name, *sizes[base.family.label], flops, losses))
    return found


def scaled_parameters(largest: Rung, model: ModelConfig, layers: int, width: int) -> float:
    """All parameters at another size: blocks grow with depth and the square of the width, tables
    with the width."""
    blocks = largest.parameters["blocks"] * layers / model.n_layer * (width / model.d_model) ** 2
    return (
        blocks + (largest.parameters["all"] - largest.parameters["blocks"]) * width / model.d_model
    )


def work(model: ModelConfig, layers: int, width: int) -> float:
    """Training FLOPs per token, up to a factor, without building a model: three times the forward
    pass, and attention's weights once more (as `costs.flops` counts the paper's oracles)."""
    calls = model.rule.oracle_calls
    weights = 6 * width**2 * (4 * calls["attn"] + 8 * calls["mlp"])
    attention = 14 * model.context * width * calls["attn"]
    return layers * (weights + attention) + 6 * model.vocab_size * width


def _tokens(family: Family, parameters: float) -> float:
    """On the line through the ladder's logarithms."""
    n, d = (np.log(family.column(name)) for name in ("all", "tokens"))
    line = np.polyfit(n, d, 1) if np.ptp(n) > 0 else np.array([0.0, d.mean()])
    return float(np.exp(np.polyval(line, np.log(parameters))))


def trust(fits: Sequence[Fit], targets: Sequence[Target]) -> list[str]:
    """A plain word on the floor and on the extrapolation."""
    said = []
    floor = Estimate.of(fits[0].laws.floor)
    lowest = min(float(each.family.losses.min()) for each in fits)
    if floor.low < 0.05 or floor.high - floor.low > lowest / 2:
        said.append(
            f"The runs hardly determine the floor E ({floor.low:.2f} to {floor.high:.2f}): what "
            "the laws say beyond the measured sizes rests on their form."
        )
    base = next((each for each in fits if each.family.baseline), fits[0])
    flops = [rung.flops for rung in base.family.rungs]
    measured = np.log10(flops[-1] / flops[0])
    for each in targets:
        beyond = each.flops[base.family.label] / flops[-1]
        far = np.log10(beyond) / measured
        word = (
            "It is a picture, not a forecast."
            if far > 1
            else "It is a rough guess."
            if far > 0.3
            else "It is near the measured range."
        )
        said.append(
            f"The paper's {each.name} size in this setting ({each.parameters / 1e6:.0f} M "
            f"parameters, {each.tokens / 1e9:.2g} B tokens) has {beyond:,.0f} times the compute of "
            f"the largest run, and the ladder spans a factor of {10**measured:,.0f}. {word}"
        )
    return [*said, "Bands have the noise of the runs, not the doubt about the law's form."]
