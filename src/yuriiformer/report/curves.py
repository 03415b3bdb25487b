"""Curves of runs, averaged over seeds and set against a baseline's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yuriiformer.comparison.outcomes import Arm
from yuriiformer.comparison.statistics import summary
from yuriiformer.display.curves import Floats
from yuriiformer.runs.run import Run


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
    numbers = [[_or_nan(each.mean), _or_nan(each.low), _or_nan(each.high)] for each in found]
    mean, low, high = np.array(numbers, dtype=np.float64).reshape(-1, 3).T
    return DifferenceCurve(steps, mean, low, high, len(pairs))


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
