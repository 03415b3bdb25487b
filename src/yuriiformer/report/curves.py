"""Curves of runs: averaged over seeds, set against a baseline's, smoothed, on any axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from yuriiformer.comparison.outcomes import Arm, Comparison
from yuriiformer.comparison.statistics import summary
from yuriiformer.display.curves import Floats, smooth
from yuriiformer.runs.run import Run

Axis = Literal["step", "tokens", "flops", "time"]
TRAIN_SIGMA = 50 / 10_000  # of the steps
VAL_SIGMA = 200 / 30_000  # of OpenWebText; else none


def mean_curve(curves: Sequence[tuple[Any, Any]]) -> tuple[NDArray[np.int64], Floats]:
    """The mean over seeds at the steps that all have."""
    steps, values = together(curves)
    return steps, values.mean(axis=0) if len(values) else np.empty(0)


def together(curves: Sequence[tuple[Any, Any]]) -> tuple[NDArray[np.int64], Floats]:
    """The steps that all curves have, and a row of values for each curve."""
    if not curves:
        return np.empty(0, dtype=np.int64), np.empty((0, 0))
    parts = [(np.asarray(s, dtype=np.int64), np.asarray(v, dtype=np.float64)) for s, v in curves]
    common = parts[0][0]
    for steps, _ in parts[1:]:
        common = np.intersect1d(common, steps)
    rows = [values[np.isin(steps, common)] for steps, values in parts]
    return common, np.array(rows).reshape(len(parts), len(common))


def drawn_runs(arm: Arm) -> list[Run]:
    """Those whose curves are averaged: the finished ones, or all if none is."""
    begun = [run for run in arm.runs if run.step > 0]
    return [run for run in begun if run.finished] or begun


@dataclass(frozen=True)
class DifferenceCurve:
    """Validation loss minus the baseline's, seed by seed; ``low`` and ``high`` are NaN with fewer
    than two seeds."""

    step: NDArray[np.int64]
    mean: Floats
    low: Floats
    high: Floats
    n: int


def difference_curve(arm: Arm, baseline: Arm) -> DifferenceCurve:
    """At the steps that both arms have in all their common seeds: those finished in both, or (if
    there are none) those begun in both."""
    theirs = {run.seed: run for run in drawn_runs(baseline)}
    pairs = [(run, theirs[run.seed]) for run in drawn_runs(arm) if run.seed in theirs]
    curves = [(each.curves.val_step, each.curves.val_loss) for pair in pairs for each in pair]
    steps, values = together(curves)
    values[~np.isfinite(values)] = np.nan
    differences = values[0::2] - values[1::2]
    found = [summary(column) for column in differences.T.tolist()] if pairs else []
    numbers = [[each.mean, each.low, each.high] for each in found]
    mean, low, high = np.array(numbers, dtype=np.float64).reshape(-1, 3).T  # None becomes NaN
    return DifferenceCurve(steps, mean, low, high, len(pairs))


def styles(*comparisons: Comparison) -> dict[str, int]:
    """The look of each arm's line (see `palette`), the same in all comparisons: 0 is the baseline,
    others follow in order."""
    base = comparisons[0].baseline.slug
    others = dict.fromkeys(arm.slug for each in comparisons for arm in each.arms)
    others.pop(base, None)
    return {base: 0, **{slug: number for number, slug in enumerate(others, 1)}}


def smoothed_curves(
    runs: Sequence[Run], kind: str, sigma: Callable[[Run], float], cut: Callable[[int], float]
) -> tuple[Any, Floats]:
    """Smoothed curves of runs at their common steps, a row for each. ``sigma`` (in steps) depends
    on a run, the first step on the number of steps; from the beginning, if they are not so far."""
    curves = []
    for run in runs:
        own = run.curves
        step, loss = (own.step, own.loss) if kind == "train" else (own.val_step, own.val_loss)
        curves.append((step, smooth(step, loss, sigma(run))))
    steps, values = together(curves)
    late = steps >= cut(max((run.steps for run in runs), default=0))
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
    tokens = at * float(runs[0].config.tokens_per_step)
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
