"""The paper's figures: its panels, its methods, its cuts and its smoothing, on the plotted data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.comparison.papers import papers_suite
from yuriiformer.comparison.outcomes import only_arms
from yuriiformer.display.curves import smooth
from yuriiformer.display.figures import is_empty
from yuriiformer.errors import RunError
from yuriiformer.report.paper_figures import FOUR, MOMENTUM, paper_pictures
from yuriiformer.report.paper_layouts import SIX
from yuriiformer.report.paper_slots import paper_slots

TINY, SMALL, MEDIUM = "tinystories-small", "openwebtext-small", "openwebtext-medium"


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory):
    """Runs of a tenth of the paper's length: its cuts and widths are a tenth as well."""
    folder = tmp_path_factory.mktemp("figures")
    lengths = {TINY: 1000, SMALL: 3000, MEDIUM: 3000}
    rules = [*SIX, "verlet-ama"]
    return [
        papers_suite(
            folder / name, name, rules if name == TINY else None, steps=steps, every=10, noise=0.1
        )
        for name, steps in lengths.items()
    ]


def drawn(comparisons, number, **options):
    found = {each.title: each for each in paper_pictures(paper_slots(comparisons), **options)}
    return found[f"Figure {number}"]


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def labels(comparison, rules):
    return {arm.label for arm in comparison.arms if arm.rule.name in rules}


def run_of(comparison, label):
    return next(arm.first for arm in comparison.arms if arm.label == label)


def test_tinystories_curves(comparisons):
    picture = drawn(comparisons, 2)
    left, right = picture.figure.axes
    assert (left.get_title(), right.get_title()) == ("Training loss", "Validation loss")
    assert set(lines(left)) == set(lines(right)) == labels(comparisons[0], SIX)
    for label, line in lines(left).items():
        curves = run_of(comparisons[0], label).curves
        assert line.get_xdata()[0] == 100
        assert line.get_xdata()[-1] == 1000
        wanted = smooth(curves.step, curves.loss, 5.0)[99:]  # step 100 is the hundredth
        np.testing.assert_array_equal(line.get_ydata(), wanted)
        assert np.abs(wanted - curves.loss[99:]).max() > 0.05  # it does smooth
    for label, line in lines(right).items():
        curves = run_of(comparisons[0], label).curves
        late = curves.val_step >= 100
        np.testing.assert_array_equal(line.get_xdata(), curves.val_step[late])
        np.testing.assert_array_equal(line.get_ydata(), curves.val_loss[late])  # not smoothed
    assert "(steps ≥ 100)" in picture.caption
    assert "σ = 5 steps" in picture.caption


def test_openwebtext_curves(comparisons):
    picture = drawn(comparisons, 3)
    assert [axes.get_title() for axes in picture.figure.axes] == ["small", "medium"]
    for axes, comparison in zip(picture.figure.axes, comparisons[1:], strict=True):
        assert set(lines(axes)) == labels(comparison, FOUR)
        for label, line in lines(axes).items():
            curves = run_of(comparison, label).curves
            late = curves.val_step >= 300
            np.testing.assert_array_equal(line.get_xdata(), curves.val_step[late])
            wanted = smooth(curves.val_step, curves.val_loss, 20.0)[late]
            np.testing.assert_array_equal(line.get_ydata(), wanted)
            assert np.abs(wanted - curves.val_loss[late]).max() > 0


@pytest.mark.parametrize("sigma", [0.0, 30.0])
def test_nesterov_against_polyak(comparisons, sigma):
    """A panel for each size, from a third on, smoothed only if that is asked for."""
    picture = drawn(comparisons, 5, sigma=sigma)
    assert [axes.get_title() for axes in picture.figure.axes] == ["small", "medium"]
    for axes, comparison in zip(picture.figure.axes, comparisons[1:], strict=True):
        assert set(lines(axes)) == labels(comparison, MOMENTUM)
        for label, line in lines(axes).items():
            curves = run_of(comparison, label).curves
            late = curves.val_step >= 1000
            np.testing.assert_array_equal(line.get_xdata(), curves.val_step[late])
            wanted = smooth(curves.val_step, curves.val_loss, sigma)[late]
            np.testing.assert_allclose(line.get_ydata(), wanted, rtol=0, atol=1e-12)
    assert ("smoothed" in picture.caption) == bool(sigma)


def test_blocks(comparisons):
    for number, titles in (
        (1, ["Nesterov+Euler", "Nesterov+Lie–Trotter"]),
        (4, ["Polyak+Lie–Trotter"]),
    ):
        figure = drawn(comparisons, number).figure
        assert [axes.texts[0].get_text() for axes in figure.axes] == titles
    left, right = drawn(comparisons, 1).figure.axes
    assert left.get_position().x1 <= right.get_position().x0 + 1e-9


def test_several_seeds_are_means_with_a_band(tmp_path):
    comparison = papers_suite(tmp_path, SMALL, seeds=(0, 1), spread=0.1, steps=300)
    axes = drawn([comparison], 3).figure.axes[0]
    assert len(drawn([comparison], 3).figure.axes) == 1
    label, line = next(iter(lines(axes).items()))
    both = [run.curves for arm in comparison.arms if arm.label == label for run in arm.runs]
    values = [smooth(each.val_step, each.val_loss, 2.0) for each in both]
    assert line.get_ydata()[-1] == pytest.approx(np.mean(values, axis=0)[-1])
    assert len(axes.collections) == 4


def test_chosen_arms(comparisons):
    some = only_arms(comparisons, ["verlet-ama", "GD+Euler"])
    left, _ = drawn(some, 2, chosen=True).figure.axes
    assert set(lines(left)) == {"PRK-Verlet (AMA)", "GD+Euler"}
    for number in (3, 5):
        for axes in drawn(some, number, chosen=True).figure.axes:
            assert set(lines(axes)) == {"GD+Euler"}
    only_tiny = only_arms(comparisons, ["verlet-ama"])
    assert drawn(only_tiny, 3, chosen=True).figure is None
    with pytest.raises(RunError, match=r"--arms: no arm 'verlet-amm' .did you mean 'verlet-ama'"):
        only_arms(comparisons, ["verlet-amm"])


def test_what_no_run_has(comparisons):
    picture = drawn(comparisons[:1], 3)
    assert picture.figure is None
    assert picture.remarks == ["No runs of openwebtext-small.", "No runs of openwebtext-medium."]


def test_runs_that_are_not_so_far(tmp_path):
    """From the beginning, if no run has come to the cut; without any validation, it says so."""
    early = papers_suite(tmp_path / "early", SMALL, FOUR, steps=300, until=60)
    line = next(iter(lines(drawn([early], 5).figure.axes[0]).values()), None)
    assert line is not None
    assert line.get_xdata().tolist() == [0, 10, 20, 30, 40, 50, 60]
    nothing = papers_suite(tmp_path / "none", SMALL, FOUR, steps=300, until=0)
    assert not is_empty(drawn([nothing], 3).figure) or drawn([nothing], 3).figure.axes[0].texts
