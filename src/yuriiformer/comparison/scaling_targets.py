"""The laws at the paper's sizes, and how far they can be trusted there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from yuriiformer.comparison.ladders import Family, Rung
from yuriiformer.comparison.scaling_results import Estimate, Fit, Target

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Comparison
    from yuriiformer.model.config import ModelConfig

PAPER = {"small": (12, 768), "medium": (24, 1024)}  # layers and width


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
