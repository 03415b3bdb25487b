"""The laws at the paper's sizes, and how far they can be trusted there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from yuriiformer.comparison.ladders import Family
from yuriiformer.comparison.scaling import Estimate, Fit, Target
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.run import count_parameters

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Comparison

PAPER = {"small": (12, 12, 768), "medium": (24, 16, 1024)}  # layers, heads, width


def paper_targets(comparison: Comparison, fits: Sequence[Fit]) -> list[Target]:
    """Models of the paper's depth and width with this vocabulary and context, trained on as many
    tokens as the rule's ladder has for its parameters."""
    base = next((each for each in fits if each.family.baseline), fits[0])
    arms = {arm.label: arm for arm in comparison.arms}
    found = []
    for name, (layers, heads, width) in PAPER.items():
        sizes: dict[str, tuple[int, float]] = {}
        flops, losses = {}, {}
        for each in fits:
            label = each.family.label
            model = arms[each.family.rungs[0].arm].first.config.model
            target = replace(model, n_layer=layers, n_head=heads, d_model=width)
            parameters = count_parameters(target).all
            sizes[label] = parameters, _tokens(each.family, parameters)
            flops[label] = model_work(target).total.both * sizes[label][1]
            losses[label] = Estimate.of(each.laws.loss(flops[label]))
        found.append(Target(name, *sizes[base.family.label], flops, losses))
    return found


def _tokens(family: Family, parameters: int) -> float:
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
