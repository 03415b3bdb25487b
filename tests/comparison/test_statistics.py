"""Paired statistics: by hand, against scipy, and by what they promise over many experiments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.later import Later
from yuriiformer.comparison.statistics import detectable, holm, paired, summary

stats = Later("scipy.stats")


def by_seed(values):
    return dict(enumerate(values))


def test_by_hand():
    """d = -1, -2, -3: mean -2, s = 1, standard error 1/√3, t(0.975, 2) = 4.302653."""
    found = paired({0: 1.0, 1: 1.0, 2: 1.0}, {0: 2.0, 1: 3.0, 2: 4.0})
    half = 4.302652729911275 / math.sqrt(3)
    assert found.n == 3
    assert found.mean == -2
    assert found.low == pytest.approx(-2 - half)
    assert found.high == pytest.approx(-2 + half)
    # Two degrees of freedom have a closed form: P(|t| > x) = 1 - x / √(2 + x²), x = 2 √3.
    assert found.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert found.p_holm is None


@given(st.integers(2, 12), st.integers(0, 10**6))
def test_as_scipy_has_it(n, seed):
    random = np.random.default_rng(seed)
    one, two = random.normal(1.1, 0.01, n), random.normal(1.09, 0.02, n)
    found = paired(by_seed(one.tolist()), by_seed(two.tolist()))
    wanted = stats.ttest_rel(one, two)
    low, high = wanted.confidence_interval(0.95)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-12)
    single = summary(one.tolist())
    low, high = stats.t.interval(0.95, n - 1, one.mean(), stats.sem(one))
    assert (single.low, single.high) == pytest.approx((low, high), rel=1e-9)


def test_only_common_seeds_count():
    found = paired({0: 1.0, 1: 5.0, 7: 2.0}, {7: 1.0, 0: 0.5, 9: 3.0})
    assert found.n == 2
    assert found.mean == pytest.approx(0.75)


def test_one_seed_has_a_difference_and_nothing_more():
    found = paired({3: 1.0}, {3: 1.5, 4: 1.0})
    assert (found.n, found.mean) == (1, -0.5)
    assert found.low is found.high is found.p is found.detectable is None
    assert summary([2.0]).low is None


def test_no_seed():
    found = paired({0: 1.0}, {1: 1.0})
    assert (found.n, found.mean, found.p) == (0, None, None)
    assert summary([]).mean is None


def test_an_arm_against_itself():
    values = by_seed([1.1, 1.2, 1.05])
    found = paired(values, values)
    assert (found.mean, found.low, found.high, found.p, found.detectable) == (0, 0, 0, 1, 0)


def test_differences_that_are_all_the_same():
    found = paired(by_seed([1.5, 2.5, 3.5]), by_seed([1.0, 2.0, 3.0]))
    assert (found.mean, found.low, found.high, found.p) == (0.5, 0.5, 0.5, 0.0)
    rounded = paired(by_seed([1.1, 1.2, 1.3]), by_seed([1.0, 1.1, 1.2]))  # the same but for bits
    assert rounded.p < 1e-12
    assert rounded.low == pytest.approx(rounded.high)


def test_holm_by_hand():
    """0.01·4, then 0.02·3, then 0.03·2 = 0.06 (no less than the one before), then 0.5."""
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.04, 0.03]) == pytest.approx([0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([None, 0.02, None, 0.5]) == [None, 0.04, None, 0.5]
    assert holm([0.01]) == [0.01]
    assert holm([]) == []
    assert holm([None]) == [None]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_order_and_never_lowers(ps):
    found = holm(ps)
    assert all(p <= q <= 1 for p, q in zip(ps, found, strict=True))
    ranked = [found[i] for i in np.argsort(ps, kind="stable")]
    assert ranked == sorted(ranked)
    assert max(found) <= min(1.0, len(ps) * max(ps))


@pytest.mark.parametrize("n", [2, 3, 5, 10, 30])
def test_what_is_detectable_is_found_in_four_of_five(n):
    """By simulation, of the very test that is reported."""
    random = np.random.default_rng(n)
    pattern = random.normal(size=n)
    pattern = (pattern - pattern.mean()) / pattern.std(ddof=1)
    shift = detectable(pattern.tolist())
    draws = random.normal(shift, 1.0, size=(20_000, n))
    hits = (stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05).mean()
    assert hits == pytest.approx(0.8, abs=0.012)


def test_what_is_detectable_scales_with_the_spread_and_shrinks_with_seeds():
    few, many = [0.0, 1.0, 2.0], [0.0, 1.0, 2.0] * 4
    assert detectable([10 * d for d in few]) == pytest.approx(10 * detectable(few))
    assert detectable(many) < detectable(few) / 2
    assert detectable([1.0]) is None


def test_the_level_is_kept():
    """4,000 comparisons of two arms that differ by chance alone, with a spread they share."""
    random = np.random.default_rng(5)
    runs, n = 4000, 3
    shared = random.normal(0, 0.05, size=(runs, n))
    one = shared + random.normal(0, 0.01, size=(runs, n))
    two = shared + random.normal(0, 0.01, size=(runs, n))
    differences = (one - two).tolist()
    intervals = [summary(each) for each in differences]
    outside = np.mean([not found.low <= 0 <= found.high for found in intervals])
    assert outside == pytest.approx(0.05, abs=0.015)
    # The interval and p say the same.
    for row in range(0, runs, 200):
        found = paired(by_seed(one[row].tolist()), by_seed(two[row].tolist()))
        assert (found.p < 0.05) == (not found.low <= 0 <= found.high)
        assert found.p == pytest.approx(stats.ttest_rel(one[row], two[row]).pvalue, rel=1e-6)


def test_holm_keeps_the_level_over_a_family():
    """Five arms against one baseline: their tests are not independent, and Holm need not care."""
    random = np.random.default_rng(6)
    runs, n, arms = 4000, 4, 5
    base = random.normal(size=(runs, 1, n))
    ps = stats.ttest_1samp(random.normal(size=(runs, arms, n)) - base, 0.0, axis=2).pvalue
    alarms = np.mean([min(holm(row)) < 0.05 for row in ps.tolist()])
    naive = np.mean(ps.min(axis=1) < 0.05)
    assert alarms <= 0.065
    assert naive > 0.1  # which is why it is done
