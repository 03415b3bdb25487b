"""Curves made ready: smoothing equals its definition, thinning loses no extreme."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.comparison.synthetic import arm, write_suite
from yuriiformer.comparison.statistics import paired
from yuriiformer.display.curves import REACH, smooth, thin
from yuriiformer.report.curves import difference_curve, drawn_runs, mean_curve, together


def longhand(step, value, sigma):
    """The definition, point by point."""
    found = []
    for i in range(len(step)):
        if not np.isfinite(value[i]):
            found.append(np.nan)
            continue
        top = below = 0.0
        for j in range(len(step)):
            distance = abs(step[j] - step[i]) / sigma
            if np.isfinite(value[j]) and distance <= REACH:
                weight = np.exp(-0.5 * distance**2)
                top, below = top + weight * value[j], below + weight
        found.append(top / below)
    return np.array(found)


@st.composite
def curves(draw, even=None):
    n = draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    even = draw(st.booleans()) if even is None else even
    spacing = np.full(n, draw(st.integers(1, 100))) if even else random.integers(1, 50, n)
    values = random.normal(size=n)
    values[random.random(n) < draw(st.sampled_from([0, 0.3]))] = np.nan
    return np.cumsum(spacing), values, draw(st.floats(0.5, 500))


@given(curves())
def test_smoothing_is_what_it_says(curve):
    step, value, sigma = curve
    distances = np.abs(step[:, None] - step[None, :]) / sigma
    if np.isclose(distances, REACH, rtol=1e-9).any():
        return  # a weight at the very end of the reach: either way is right
    np.testing.assert_allclose(
        smooth(step, value, sigma), longhand(step, value, sigma), rtol=1e-9, atol=1e-12
    )


@given(curves())
def test_a_constant_stays_constant(curve):
    step, value, sigma = curve
    constant = np.where(np.isnan(value), np.nan, 2.5)
    np.testing.assert_allclose(smooth(step, constant, sigma), constant, rtol=1e-12)


def test_no_smoothing_changes_nothing():
    step, value = np.arange(10), np.random.default_rng(0).normal(size=10)
    assert (smooth(step, value, 0) == value).all()
    assert smooth([], [], 5).shape == (0,)
    assert smooth([3], [1.5], 5).tolist() == [1.5]


def test_smoothing_a_line_keeps_it_away_from_the_ends():
    step = np.arange(0, 1000, 10)
    found = smooth(step, 3 - step / 500, 20)
    np.testing.assert_allclose(found[10:-10], (3 - step / 500)[10:-10])
    assert found[0] < 3  # nothing is made up before the first


def test_smoothing_ten_thousand_points():
    step = np.arange(1, 10_001)
    value = 1 + np.random.default_rng(0).normal(size=10_000)
    found = smooth(step, value, 200)
    assert found[[0, 5000, 9999]] == pytest.approx(
        [longhand_at(step, value, 200, i) for i in (0, 5000, 9999)]
    )
    assert found.std() < 0.1


def longhand_at(step, value, sigma, i):
    distance = np.abs(step - step[i]) / sigma
    weight = np.exp(-0.5 * distance**2) * (distance <= REACH)
    return (weight * value).sum() / weight.sum()


numbers = st.floats(-1e6, 1e6, width=32) | st.just(np.nan)


@given(
    hnp.arrays(np.float64, st.integers(0, 300), elements=numbers), st.integers(1, 20), st.booleans()
)
def test_thinning_keeps_every_extreme(y, buckets, even):
    random = np.random.default_rng(len(y))
    x = np.arange(len(y)) if even else np.cumsum(random.integers(1, 30, len(y)))
    kept = thin(x, y, buckets)
    assert (np.diff(kept) > 0).all()
    if len(y) <= 2 * buckets + 2:
        assert kept.tolist() == list(range(len(y)))
        return
    assert len(kept) <= 2 * buckets + 2
    assert kept[0] == 0
    assert kept[-1] == len(y) - 1
    edges = x[0] + (x[-1] - x[0]) * np.arange(buckets + 1) / buckets
    for low, high in pairwise(edges):
        inside = (x >= low + 1e-6) & (x <= high - 1e-6) & ~np.isnan(y)
        if inside.any():
            near = kept[(x[kept] >= low - 1e-6) & (x[kept] <= high + 1e-6)]
            assert np.nanmin(y[near]) <= y[inside].min()
            assert np.nanmax(y[near]) >= y[inside].max()
    if not np.isnan(y).all():
        assert np.nanmin(y[kept]) == np.nanmin(y)
        assert np.nanmax(y[kept]) == np.nanmax(y)


def test_means_at_common_steps():
    steps, mean = mean_curve([([0, 10, 20], [1, 2, 3]), ([10, 20, 30], [4, 5, 6])])
    assert steps.tolist() == [10, 20]
    assert mean.tolist() == [3, 4]
    assert together([([1], [2.0])])[1].tolist() == [[2.0]]
    for part in mean_curve([]):
        assert len(part) == 0
    assert len(mean_curve([([1], [1.0]), ([2], [1.0])])[1]) == 0


def test_differences_over_steps_are_paired(tmp_path):
    """At every step what `paired` says of that step's losses."""
    comparison = write_suite(tmp_path, ["gd-lie-trotter", "nesterov-lie-trotter"], seeds=3)
    base, other = comparison.arms
    found = difference_curve(other, base)
    assert found.n == 3
    assert found.step.tolist() == list(range(0, 101, 10))
    for place in (0, 5, 10):
        losses = [
            {run.seed: float(run.curves.val_loss[place]) for run in each.runs}
            for each in (other, base)
        ]
        wanted = paired(*losses)
        shown = [found.mean[place], found.low[place], found.high[place]]
        assert shown == pytest.approx([wanted.mean, wanted.low, wanted.high])


def test_differences_of_unfinished_and_uneven_runs(tmp_path):
    base = arm(tmp_path, "gd-lie-trotter", {0: 1.0, 1: 1.1, 2: 1.2})
    part = arm(tmp_path, "verlet-ama", {0: 1.0, 1: 1.0, 3: 1.0}, until={0: 55})
    found = difference_curve(part, base)
    assert [run.seed for run in drawn_runs(part)] == [1, 3]
    assert (found.n, found.step[-1]) == (1, 100)
    assert np.isnan(found.low).all()
    none = arm(tmp_path, "gd-euler", {5: 1.0})
    assert len(difference_curve(none, base).step) == 0
    early = arm(tmp_path, "polyak-euler", {0: 1.0, 1: 1.0}, until={0: 55, 1: 30})
    found = difference_curve(early, base)
    assert (found.n, found.step[-1]) == (2, 30)
    wild = arm(
        tmp_path, "hamiltonian", {0: 1.0, 1: 1.0}, val=lambda s: np.where(s > 50, np.inf, 1.0)
    )
    assert np.isnan(difference_curve(wild, wild).mean[-1])
