"""The laws at the paper's sizes, and how far they can be trusted there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from yuriiformer.comparison.scaling import Estimate, Fit, Target
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.run import count_parameters

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Comparison

PAPER = {"small": (12, 12, 768), "medium": (24, 16, 1024)}  # layers, heads, width


def paper_targets(comparison: Comparison, fits: Sequence[Fit]) -> list[Target]:
    """Models of the paper's depth and width with this vocabulary and context, trained on as many
    tokens as the ladder's line says for their parameters."""
    base = next((each for each in fits if each.family.baseline), fits[0])
    n, d = (np.log(base.family.column(name)) for name in ("all", "tokens"))
    line = np.polyfit(n, d, 1) if np.ptp(n) > 0 else np.array([0.0, d.mean()])
    arms = {arm.label: arm for arm in comparison.arms}
    found = []
    for name, (layers, heads, width) in PAPER.items():
        flops, losses = {}, {}
        sizes = {}
        for each in fits:
            model = arms[each.family.rungs[0].arm].first.config.model
            target = replace(model, n_layer=layers, n_head=heads, d_model=width)
            sizes[each.family.label] = count_parameters(target).all
            tokens = float(np.exp(np.polyval(line, np.log(sizes[each.family.label]))))
            flops[each.family.label] = model_work(target).total.both * tokens
            losses[each.family.label] = Estimate.of(each.laws.loss(flops[each.family.label]))
        parameters = sizes[base.family.label]
        tokens = float(np.exp(np.polyval(line, np.log(parameters))))
        found.append(Target(name, parameters, tokens, flops, losses))
    return found


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
