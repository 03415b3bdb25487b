"""What the figures of a report share: curves of runs, smoothed, on any axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.display.curves import Floats, smooth
from yuriiformer.report.curves import together
from yuriiformer.runs.run import Run

Axis = Literal["step", "tokens", "flops", "time"]
TRAIN_SIGMA = 50 / 10_000  # of the steps
VAL_SIGMA = {"openwebtext": 200 / 30_000}  # by the beginning of the preset's name, else none


def shared_styles(comparisons: Sequence[Comparison]) -> dict[str, int]:
    """One look for each arm in all of several comparisons."""
    base = comparisons[0].baseline.slug
    others = dict.fromkeys(arm.slug for each in comparisons for arm in each.arms)
    others.pop(base, None)
    return {base: 0, **{slug: number for number, slug in enumerate(others, 1)}}


def smoothed_curves(
    comparison: Comparison, runs: Sequence[Run], kind: str, cut: float
) -> tuple[Any, Floats]:
    """Smoothed curves of runs from a part of their length on, at their common steps; from the
    beginning, if they have not come so far."""
    sigma = TRAIN_SIGMA
    if kind == "val":
        preset = comparison.preset or ""
        fitting = [part for name, part in VAL_SIGMA.items() if preset.startswith(name)]
        sigma = fitting[0] if fitting else 0.0
    curves = []
    for run in runs:
        own = run.curves
        step, loss = (own.step, own.loss) if kind == "train" else (own.val_step, own.val_loss)
        curves.append((step, smooth(step, loss, sigma * run.steps)))
    steps, values = together(curves)
    late = steps >= cut * max((run.steps for run in runs), default=0)
    return (steps[late], values[:, late]) if late.any() else (steps, values)


def across_axis(runs: Sequence[Run], steps: Any, x: Axis) -> Floats | None:
    """Where steps stand on an axis; None if that is not known."""
    at = np.asarray(steps, dtype=np.float64)
    if x == "step":
        return at
    if x == "time":
        clocks = [run.curves for run in runs if len(run.curves.step)]
        times = [np.interp(at, [0.0, *own.step], [0.0, *own.seconds]) for own in clocks]
        return np.asarray(np.mean(times, axis=0)) if times else None
    config = runs[0].config
    tokens = at * float(config["recipe"]["sequences"] * config["model"]["context"])
    if x == "tokens":
        return tokens
    flops = runs[0].flops_a_token
    return None if flops is None else np.asarray(tokens * flops)


def time_unit(comparison: Comparison) -> tuple[float, str]:
    seconds = [run.curves.seconds for arm in comparison.arms for run in arm.runs]
    longest = max((float(each[-1]) for each in seconds if len(each)), default=0.0)
    if longest > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if longest > 300 else (1.0, "seconds")
