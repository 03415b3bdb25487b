"""Curves made ready to be drawn: smoothed, thinned, and the look of each line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
REACH = 4.0  # standard deviations after which a Gaussian counts as zero


def smooth(step: Any, value: Any, sigma: float) -> Floats:
    """Weighted means with Gaussian weights of the distance in steps.

    Weights are normalised over the values that exist, so there is no bias at the ends and at gaps
    (NaN). Where a value is NaN, so is the result. Steps must be in ascending order.
    """
    x, y = np.asarray(step, dtype=np.float64), np.asarray(value, dtype=np.float64)
    if sigma <= 0 or len(x) < 2:
        return y.copy()
    there = np.isfinite(y)
    filled = np.where(there, y, 0.0)
    spacing = np.diff(x)
    if spacing[0] > 0 and np.allclose(spacing, spacing[0], rtol=1e-9, atol=0.0):
        sums, weights = _even(filled, there, spacing[0] / sigma)
    else:
        sums, weights = _uneven(x / sigma, filled, there)
    found = np.full(len(y), np.nan)
    found[there] = sums[there] / weights[there]
    return found


def _even(y: Floats, there: NDArray[np.bool_], distance: float) -> tuple[Floats, Floats]:
    """One kernel for all points, ``distance`` standard deviations from one to the next."""
    half = min(int(REACH / distance), len(y) - 1)
    kernel = np.exp(-0.5 * (distance * np.arange(-half, half + 1)) ** 2)
    middle = slice(half, half + len(y))
    return np.convolve(y, kernel)[middle], np.convolve(there.astype(np.float64), kernel)[middle]


def _uneven(x: Floats, y: Floats, there: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """A kernel for each point; ``x`` in standard deviations."""
    lows = np.searchsorted(x, x - REACH, side="left")
    highs = np.searchsorted(x, x + REACH, side="right")
    sums, weights = np.empty(len(y)), np.empty(len(y))
    for i, (low, high) in enumerate(zip(lows, highs, strict=True)):
        kernel = np.exp(-0.5 * (x[low:high] - x[i]) ** 2)
        sums[i] = kernel @ y[low:high]
        weights[i] = kernel @ there[low:high]
    return sums, weights


def thin(x: Any, y: Any, buckets: int) -> NDArray[np.intp]:
    """Indices of the points to draw: the first, the last, and the lowest and highest of each bucket
    of x, so that no extreme is lost. All indices, if that would not be fewer."""
    across, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    n = len(values)
    if n <= 2 * buckets + 2 or across[-1] <= across[0]:
        return np.arange(n)
    width = (across[-1] - across[0]) / buckets
    bucket = np.minimum((across - across[0]) / width, buckets - 1).astype(np.intp)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    # Sorted so that each bucket begins with its lowest (or highest) value, or with its first NaN.
    rising = np.lexsort((np.where(np.isnan(values), np.inf, values), bucket))
    falling = np.lexsort((np.where(np.isnan(values), np.inf, -values), bucket))
    return np.unique(np.concatenate(([0, n - 1], rising[starts], falling[starts])))


# The baseline. Pages use their text colour instead, so that it is visible in dark mode.
BASELINE_COLOUR = "#222222"
# Okabe and Ito's colours for colour-blind readers, without the yellow, which is faint on white.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C")
# On and off in line widths, as in matplotlib: solid, dashed, dotted, dash-dot.
DASHES: tuple[tuple[float, ...] | None, ...] = (
    None,
    (3.7, 1.6),
    (1.0, 1.65),
    (6.4, 1.6, 1.0, 1.6),
)


def line_style(style: int) -> tuple[str, tuple[float, ...] | None]:
    """Colour and dash of an arm: 0 is the baseline; others use all colours before the next dash."""
    if style == 0:
        return BASELINE_COLOUR, None
    row, column = divmod(style - 1, len(COLOURS))
    return COLOURS[column], DASHES[row % len(DASHES)]


def palette() -> dict[str, Any]:
    """The same for a page's script."""
    return {"colours": list(COLOURS), "dashes": [list(dash or ()) for dash in DASHES]}
