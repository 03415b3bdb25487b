"""Figures: drawn for whatever there is, with the numbers that they claim to show."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from tests.comparison.synthetic import arm, configuration, write_run, write_suite
from tests.report.test_tables import HOSTILE
from yuriiformer.comparison.outcomes import Arm, compare_arms
from yuriiformer.display.curves import line_style, smooth
from yuriiformer.display.figures import DIRECT, is_empty, said, save_figure, spread
from yuriiformer.methods.catalog import paper
from yuriiformer.report.curves import difference_curve, styles
from yuriiformer.report.figures import (
    difference,
    drawings,
    loss_curves,
    momentum_pairs,
    nesterov_polyak,
    ranking,
    sizes,
    write_figures,
)
from yuriiformer.report.figures_coefficients import coefficient_paths, coefficients_over_depth
from yuriiformer.runs.run import read_run

GD, NESTEROV, POLYAK, VERLET = (
    "gd-lie-trotter",
    "nesterov-lie-trotter",
    "polyak-lie-trotter",
    "verlet-ama",
)
OF_COMPARISON = [loss_curves, difference, ranking, nesterov_polyak, coefficients_over_depth]
MOVING = {name: (lambda t: 0.05 * t / 100) for name in ("beta", "mu")}


def texts(figure):
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return found + [text.get_text() for each in figure.legends for text in each.get_texts()]


def line_of(axes, style):
    colour, _ = line_style(style)
    return next(
        line for line in axes.lines if line.get_color() == colour and len(line.get_xdata()) > 2
    )


def unfinished(folder):
    """Different lengths, a seed that has only begun, an arm without any finished run."""
    return compare_arms(
        [
            arm(folder, GD, {0: 1.1, 1: 1.12, 2: 1.1}, until={1: 3}),
            arm(folder, NESTEROV, {0: 1.0, 1: 1.02}, until={1: 77}, coefficients=MOVING),
            arm(folder, POLYAK, {0: 1.05, 1: 1.0}, until={0: 55, 1: 33}),
            arm(folder, VERLET, {0: 1.05}, until={0: 0}),
            arm(folder, "gd-euler", {0: 1.05}, steps=150),
        ]
    )


CASES = {
    "one arm, one seed": lambda f: compare_arms([arm(f, GD, {0: 1.0})]),
    "two arms, one seed": lambda f: write_suite(f, [GD, NESTEROV], seeds=1),
    "17 arms": lambda f: write_suite(f, list(paper), seeds=2, steps=40),
    "unfinished": unfinished,
    "nothing begun": lambda f: compare_arms([arm(f, NESTEROV, {0: 1.0}, until={0: 0})]),
    "no validation": lambda f: write_suite(f, [GD, NESTEROV, POLYAK], seeds=2, every=0),
    "not finite": lambda f: compare_arms(
        [
            arm(f, GD, {0: 1.0}),
            arm(f, NESTEROV, {0: 1.0}, val=lambda s: np.where(s > 40, np.nan, 2.0)),
        ]
    ),
    "hostile labels": lambda f: compare_arms(
        [
            arm(f, GD, {0: 1.0, 1: 1.1}, label=HOSTILE),
            arm(f, NESTEROV, {0: 0.9, 1: 1.0}, label="_under $\\frac{$"),
        ],
        name=HOSTILE,
    ),
}


ODD = ("unfinished", "nothing begun", "not finite", "hostile labels")  # matplotlib might refuse


def every_figure(comparison, *, drawn: bool) -> None:
    for draw in OF_COMPARISON:
        figure = draw(comparison)
        assert not is_empty(figure) or figure.texts or figure.axes[0].texts, draw  # it says why
        if not drawn:
            continue
        figure.dpi = 50
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")
            FigureCanvasAgg(figure).draw()


@pytest.mark.parametrize("case", CASES)
def test_every_figure_is_made(tmp_path, case):
    every_figure(CASES[case](tmp_path / "runs"), drawn=case in ODD)


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if name not in ODD])
def test_every_figure_draws(tmp_path, case):
    every_figure(CASES[case](tmp_path / "runs"), drawn=True)


@pytest.mark.parametrize("case", [name for name in CASES if name != "17 arms"])
def test_figures_that_have_nothing_to_show_are_not_written(tmp_path, case):
    comparison = CASES[case](tmp_path / "runs")
    found = {f"{each.name}.png" for each in drawings([comparison]) if not is_empty(each.draw())}
    assert all(re.fullmatch(r"[a-z0-9.-]+", name) for name in found)
    if case == "nothing begun":  # `yurii report` writes those of a run in its own tests
        written = write_figures([comparison], tmp_path / "figures", ("png",))
        assert {path.name for path in written} == found
        assert all(path.stat().st_size for path in written)
    if case == "nothing begun":
        assert not any("loss" in name or "ranking" in name for name in found)
        return
    assert {"loss-curves.png", "loss-curves-time.png", "loss-curves-flops.png"} <= found
    finished = bool(comparison.ranked())
    assert ("ranking.png" in found) == finished
    judged = case != "no validation"
    assert ("difference.png" in found) == (judged and len(comparison.arms) > 1)
    pairs = judged and bool(momentum_pairs(comparison))
    assert ("nesterov-polyak.png" in found) == pairs
    for each in comparison.arms:
        has = bool(each.first.curves.coefficients)
        assert (f"coefficients-{each.slug}.png" in found) == has


def test_loss_curves_show_means_smoothed_and_cut(tmp_path):
    """The paper's cut and smoothing, scaled: from step 40 of 400, sigma 2 steps."""
    comparison = write_suite(tmp_path, [GD, NESTEROV], steps=400, every=20, noise=0.1)
    left, right = loss_curves(comparison).axes
    runs = comparison.arms[1].runs
    line = line_of(left, 1)
    wanted = np.mean([smooth(run.curves.step, run.curves.loss, 2.0) for run in runs], axis=0)
    assert line.get_xdata().tolist() == list(range(40, 401))
    np.testing.assert_allclose(line.get_ydata(), wanted[39:])
    line = line_of(right, 1)
    wanted = np.mean([run.curves.val_loss for run in runs], axis=0)
    assert line.get_xdata().tolist() == list(range(40, 401, 20))
    np.testing.assert_allclose(line.get_ydata(), wanted[2:])
    (band, _) = (each for each in right.collections if len(each.get_paths()))
    low, high = band.get_paths()[0].get_extents().intervaly
    values = np.array([run.curves.val_loss[2:] for run in comparison.arms[0].runs])
    assert (low, high) == pytest.approx((values.min(), values.max()))


def test_openwebtexts_validation_is_smoothed(tmp_path):
    comparison = write_suite(
        tmp_path, [GD, NESTEROV], steps=300, every=1, seeds=1, setting="openwebtext-small"
    )
    _, right = loss_curves(comparison).axes
    curves = comparison.arms[1].first.curves
    wanted = smooth(curves.val_step, curves.val_loss, 2.0)  # 200 of 30,000
    np.testing.assert_allclose(line_of(right, 1).get_ydata(), wanted[30:])


def test_other_axes(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV], seeds=1, speed=491_520 / 30)
    run = comparison.arms[1].first
    steps = np.arange(10, 101, 10)
    for x, wanted in (
        ("step", steps),
        ("tokens", steps * 491_520),
        ("flops", steps * 491_520 * run.flops_a_token),
        ("time", steps * 0.5),  # minutes: a step takes half of one
    ):
        _, right = loss_curves(comparison, x).axes
        np.testing.assert_allclose(line_of(right, 1).get_xdata(), wanted, rtol=1e-4)
    assert "minutes" in right.get_xlabel()


def test_differences_show_the_interval(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV], seeds=4)
    (axes,) = difference(comparison).axes
    found = difference_curve(comparison.arms[1], comparison.arms[0])
    line = line_of(axes, 1)
    np.testing.assert_allclose(line.get_ydata(), found.mean[1:])
    low, high = axes.collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == pytest.approx((found.low[1:].min(), found.high[1:].max()))
    assert any(set(line.get_ydata()) == {0} for line in axes.lines)


def test_the_ranking_is_in_order(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV, VERLET])
    (axes,) = ranking(comparison).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [each.arm.label for each in comparison.ranked()]
    best = comparison.ranked()[0]
    at_top = [line for line in axes.lines if set(line.get_ydata()) == {0}]
    shown = [sorted(np.asarray(line.get_xdata()).tolist()) for line in at_top]
    assert sorted(best.arm.values("final").values()) in shown
    assert [best.final.low, best.final.high] in shown
    assert [best.final.mean] in shown
    low, high = axes.get_ylim()
    assert low > high  # the best is at the top


def test_pairs_of_momentum(tmp_path):
    comparison = write_suite(tmp_path, list(paper), seeds=1, steps=30)
    names = [(one.rule.name, two.rule.name) for one, two in momentum_pairs(comparison)]
    assert names == [("nesterov-euler", "polyak-euler"), (NESTEROV, POLYAK)]
    arms = [
        arm(tmp_path / "x", NESTEROV, {0: 1.0}, slug="n1"),
        arm(tmp_path / "x", POLYAK, {0: 1.0}, slug="p1", recipe={"muon_lr": 0.5}),
    ]
    assert momentum_pairs(compare_arms(arms)) == []  # they differ in more
    figure = nesterov_polyak(write_suite(tmp_path / "y", [NESTEROV, POLYAK], steps=90))
    top, below = figure.axes
    assert line_of(top, 1).get_xdata()[0] == 30  # a third
    wanted = line_of(top, 0).get_ydata() - line_of(top, 1).get_ydata()
    np.testing.assert_allclose(line_of(below, 0).get_ydata(), wanted)


def test_coefficients_over_depth(tmp_path):
    arms = [
        arm(tmp_path, GD, {0: 1.0}),
        arm(tmp_path, "polyak-euler", {0: 1.0, 1: 1.0}, coefficients=MOVING),
        arm(tmp_path, NESTEROV, {0: 1.0}),
    ]
    figure = coefficients_over_depth(compare_arms(arms))
    assert len(figure.axes) == 6  # beta gamma mu, and their halves
    beta = figure.axes[0]
    assert beta.get_title() == r"$\beta_{t}$"
    np.testing.assert_allclose(line_of(beta, 1).get_ydata(), 0.9 + 0.05 * np.arange(1, 13) / 12)
    np.testing.assert_allclose(line_of(beta, 2).get_ydata(), 0.9)
    assert set(texts(figure)) == {each.label for each in arms[1:]}


def test_paths_of_coefficients(tmp_path):
    one = arm(tmp_path, "polyak-euler", {4: 1.0}, coefficients=MOVING)
    figure = coefficient_paths(one)
    beta, _, bar = figure.axes
    assert len(beta.lines) == 12
    assert beta.lines[11].get_xdata().tolist() == list(range(0, 101, 10))
    np.testing.assert_allclose(beta.lines[11].get_ydata(), 0.9 + 0.05 * np.arange(0, 1.01, 0.1))
    assert bar.get_ylabel() == "layer"
    assert is_empty(coefficient_paths(arm(tmp_path, GD, {0: 1.0})))


def test_coefficients_of_channels_show_their_range(tmp_path):
    config = configuration("polyak-euler")
    write_run(tmp_path, config, val=lambda s: 2 - s / 100)
    path = tmp_path / "metrics.jsonl"
    layers = [0.9] * 12
    wide = f'"beta.min": {[0.1] * 12}, "beta.max": {[0.95] * 12}, "gamma"'
    path.write_text(path.read_text().replace('"gamma"', wide))
    comparison = compare_arms([Arm("one", "one", [read_run(tmp_path)])])
    figure = coefficients_over_depth(comparison)
    assert len(figure.axes) == 2
    assert line_of(figure.axes[0], 0).get_ydata().tolist() == layers
    low, high = figure.axes[0].collections[0].get_paths()[0].get_extents().intervaly
    assert (low, high) == (0.1, 0.95)
    assert len(coefficient_paths(comparison.arms[0]).axes) == 3


def test_sizes_share_one_look(tmp_path):
    small = write_suite(tmp_path / "s", [GD, NESTEROV], seeds=1, name="small")
    medium = write_suite(tmp_path / "m", [VERLET, GD], seeds=1, name="medium")
    assert styles(small, medium) == {GD: 0, NESTEROV: 1, VERLET: 2}
    figure = sizes([small, medium])
    assert [axes.get_title() for axes in figure.axes] == ["small", "medium"]
    assert len(texts(figure)) == 3
    np.testing.assert_allclose(
        line_of(figure.axes[1], 0).get_ydata(), medium.arms[1].first.curves.val_loss[1:]
    )
    alone = [write_suite(tmp_path / name, [GD], seeds=1, name=name) for name in ("small", "medium")]
    names = [path.name for path in write_figures(alone, tmp_path / "f", ("svg",))]
    assert "sizes.svg" in names
    assert "small-ranking.svg" in names
    assert "medium-ranking.svg" in names


def test_few_lines_are_named_at_their_ends_and_many_in_a_legend(tmp_path):
    few = write_suite(tmp_path / "few", list(paper)[:DIRECT], seeds=1, gap=1e-5)
    figure = loss_curves(few)
    assert not figure.legends
    FigureCanvasAgg(figure).draw()
    boxes = [Text.get_window_extent(text) for text in figure.axes[1].texts]  # not their leaders
    assert len(boxes) == DIRECT
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    many = loss_curves(write_suite(tmp_path / "many", list(paper), seeds=1))
    assert len(texts(many)) == len(paper)
    FigureCanvasAgg(many).draw()
    box = many.legends[0].get_window_extent()
    assert many.bbox.x0 <= box.x0
    assert box.x1 <= many.bbox.x1
    assert all(not box.overlaps(axes.get_tightbbox()) for axes in many.axes)


def test_places_are_moved_apart_as_little_as_needed():
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    assert spread([0.5, 0.5], 0.1) == pytest.approx([0.45, 0.55])
    assert spread([0.0, 0.01], 0.1) == pytest.approx([0.0, 0.1])
    assert spread([1.0, 1.0, 1.0], 0.2) == pytest.approx([0.6, 0.8, 1.0])
    assert spread([], 0.1) == []


def test_labels_are_no_formulas():
    assert said("a $x$\nb") == r"a \$x\$ b"
    assert len(said("x" * 100)) < 40


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes(tmp_path):
    """Every figure drawn twice, and some of them in every format."""
    comparison = write_suite(tmp_path / "runs", [GD, NESTEROV], seeds=2)
    one, two = (write_figures([comparison], tmp_path / name, ("svg",)) for name in ("a", "b"))
    for draw in (ranking, coefficients_over_depth):
        for paths, home in ((one, "a"), (two, "b")):
            for kind in ("png", "pdf"):
                path = tmp_path / home / f"{draw.__name__}.{kind}"
                paths.append(save_figure(draw(comparison), path, dpi=200))
    assert {path.suffix for path in one} == {".svg", ".png", ".pdf"}
    assert [path.name for path in one] == [path.name for path in two]
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_tables_and_figures_need_no_torch():
    names = ("report.figures", "report.tables", "report.results", "comparison.paper")
    imports = "; ".join(f"import yuriiformer.{name}" for name in names)
    code = f"import sys; {imports}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
