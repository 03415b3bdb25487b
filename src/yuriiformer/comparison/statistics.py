"""Paired comparison over seeds.

Two arms of the same seed see the same batches in the same order and start from the same tensors,
so they are compared by their differences seed by seed, d_1 … d_n:

    mean      d̄ = Σ d_i / n                  s² = Σ (d_i - d̄)² / (n - 1)
    interval  d̄ ± t(0.975, n - 1) s / √n
    p         of t = d̄ √n / s, two-sided; Holm's correction over the arms of a comparison
    detectable: the true difference that such a test (so corrected) would have found with
              probability 0.8

With one seed there is a difference, and no interval.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

CONFIDENCE = 0.95  # of intervals
SIGNIFICANT = 0.05  # a p value below it is more than chance explains
POWER = 0.8
Alternative = Literal["two-sided", "less"]


@dataclass(frozen=True)
class Summary:
    """A mean over seeds with its interval, which is None with fewer than two."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference(Summary):
    """An arm minus the baseline over the seeds that both have."""

    p: float | None
    detectable: float | None
    p_holm: float | None = None


def summary(values: Sequence[float]) -> Summary:
    """Mean and t interval of independent values."""
    n = len(values)
    if n == 0:
        return Summary(0, None, None, None)
    mean = math.fsum(values) / n
    if n == 1:
        return Summary(1, mean, None, None)
    from scipy import stats  # noqa: PLC0415  half a second, and only needed here

    if np.ptp(values) == 0:  # no spread: the interval is the one value
        return Summary(n, mean, mean, mean)
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    low, high = stats.t.interval(CONFIDENCE, n - 1, loc=mean, scale=error)
    return Summary(n, mean, float(low), float(high))


def paired(
    arm: Mapping[int, float], baseline: Mapping[int, float], comparisons: int = 1
) -> Difference:
    """The difference of two arms, by seed; ``comparisons`` is how many such are made."""
    seeds = sorted(set(arm) & set(baseline))
    differences = [arm[seed] - baseline[seed] for seed in seeds]
    p, least = t_test(differences), detectable(differences, comparisons)
    return Difference(**vars(summary(differences)), p=p, detectable=least)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down correction; None is not a test and is not counted."""
    known = sorted((p, index) for index, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    largest = 0.0
    for rank, (p, index) in enumerate(known):
        largest = max(largest, min(1.0, (len(known) - rank) * p))
        corrected[index] = largest
    return corrected


def t_test(
    differences: Sequence[float], bound: float = 0.0, alternative: Alternative = "two-sided"
) -> float | None:
    """p of the t test that the mean is ``bound``, against its being another (or ``less``); None
    with fewer than two. Two one-sided tests show that a difference is smaller than a bound.

    Differences that are all the same have no spread to judge by: p is 0 if their value alone
    contradicts the hypothesis, else 1.
    """
    if len(differences) < 2:
        return None
    from scipy import stats  # noqa: PLC0415

    if np.ptp(differences) == 0:
        off = differences[0] - bound
        return float(off == 0 if alternative == "two-sided" else off >= 0)
    with warnings.catch_warnings():  # scipy warns of nearly equal numbers
        warnings.simplefilter("ignore", RuntimeWarning)
        return float(stats.ttest_1samp(differences, bound, alternative=alternative).pvalue)


def detectable(differences: Sequence[float], comparisons: int = 1) -> float | None:
    """The smallest true mean that n differences with this spread show with probability 0.8, among
    ``comparisons`` of them (at the level of Holm's first step, the strictest)."""
    n = len(differences)
    if n < 2:
        return None
    return _shift(n, comparisons) * float(np.std(differences, ddof=1)) / math.sqrt(n)


@cache
def _shift(n: int, comparisons: int) -> float:
    """How many standard errors off zero a mean must be for |t| to exceed its bound so often."""
    from scipy import stats  # noqa: PLC0415
    from scipy.optimize import brentq  # noqa: PLC0415

    critical = float(stats.t.isf((1 - CONFIDENCE) / 2 / comparisons, n - 1))
    # scipy's noncentral t gives NaN for one degree of freedom: the integral over the spread s, by
    # Gauss and Legendre's rule on its quantiles. |t| > c is |z + shift| > c s.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    bounds = critical * np.sqrt(stats.chi2.ppf((nodes + 1) / 2, n - 1) / (n - 1))

    def power(shift: float) -> float:
        beyond = stats.norm.cdf(shift - bounds) + stats.norm.cdf(-shift - bounds)
        return float(beyond @ weights) / 2

    return float(brentq(lambda shift: power(shift) - POWER, 0.0, 2 * critical + 10))
