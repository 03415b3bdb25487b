"""Figures of a comparison: curves, differences, ranking; those of the paper among them.

The paper leaves out the first tenth of a run and smooths with a Gaussian; here both scale with
the run. Lines are means over seeds, faint bands reach from the lowest seed to the highest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from yuriiformer.comparison.arms import slug as folder_name
from yuriiformer.comparison.outcomes import Arm, Comparison, same_data
from yuriiformer.display.colours import INK
from yuriiformer.display.figures import (
    DIRECT,
    WIDTH,
    draw_band,
    draw_line,
    label_ends,
    legend,
    look,
    name_lines,
    new_figure,
    nothing,
    pen,
    said,
    x_axis,
)
from yuriiformer.methods.passes import structure, without_lookahead
from yuriiformer.report.curves import (
    TRAIN_SIGMA,
    VAL_SIGMA,
    Axis,
    across_axis,
    difference_curve,
    drawn_runs,
    smoothed_curves,
    styles,
    time_unit,
)
from yuriiformer.report.figures_coefficients import coefficient_paths, coefficients_over_depth
from yuriiformer.report.figures_scaling import scaling_figure
from yuriiformer.report.kept import Drawing, arm_digest, comparison_digest, write_drawings

CUT = 0.1  # of the steps: what is left out at the left
LATE = 1 / 3  # of the steps: from where Nesterov and Polyak are compared
OTHER_AXES: tuple[Axis, ...] = ("tokens", "flops", "time")
AXES = {"step": "training step", "tokens": "training tokens", "flops": "training FLOPs"}


def loss_curves(comparison: Comparison, x: Axis = "step") -> Figure:
    """Training and validation loss, side by side."""
    with look():
        figure = new_figure(WIDTH, 2.9)
        left, right = figure.subplots(1, 2)
        style = styles(comparison)
        lines = {}
        unit = time_unit(comparison) if x == "time" else (1.0, "")
        for arm in comparison.arms:
            for axes, kind in ((left, "train"), (right, "val")):
                if line := _arm_line(axes, comparison, arm, style[arm.slug], kind, x, unit[0]):
                    lines[arm.label] = line  # the right one, where there are both
        for axes, title in ((left, "Training loss"), (right, "Validation loss")):
            axes.set_title(title)
            x_axis(axes, AXES.get(x, f"training time ({unit[1]})"))
            if not axes.has_data():
                axes.text(0.5, 0.5, "none recorded", ha="center", transform=axes.transAxes)
        left.set_ylabel("nats per token")
        if len(lines) <= DIRECT and all(line.axes is right for line in lines.values()):
            label_ends(right, lines, 2.2)
        elif lines:
            legend(figure, lines)
        return figure


def _arm_line(
    axes: Any,
    comparison: Comparison,
    arm: Arm,
    style: int,
    kind: str = "val",
    x: Axis = "step",
    unit: float = 1.0,
    cut: float = CUT,
) -> Line2D | None:
    """An arm's mean over seeds with its band."""
    runs = drawn_runs(arm)
    sigma = TRAIN_SIGMA
    if kind == "val":
        sigma = VAL_SIGMA if (comparison.preset or "").startswith("openwebtext") else 0.0
    steps, values = smoothed_curves(
        runs, kind, lambda run: sigma * run.steps, lambda steps: cut * steps
    )
    across = across_axis(runs, steps, x) if len(steps) else None
    if across is None:
        return None
    if len(runs) > 1:
        draw_band(axes, across / unit, values.min(axis=0), values.max(axis=0), style)
    return draw_line(axes, across / unit, values.mean(axis=0), style)


def difference(comparison: Comparison) -> Figure:
    """Validation loss minus the baseline's, paired by seed: mean and its 95 % interval."""
    with look():
        figure = new_figure(WIDTH, 3.2)
        axes: Any = figure.subplots()
        style = styles(comparison)
        lines = {}
        for arm in comparison.arms:
            if arm.slug == comparison.baseline.slug:
                continue
            if line := _difference_line(axes, arm, comparison.baseline, style[arm.slug], CUT):
                lines[arm.label] = line
        if not lines:
            return nothing("No difference to show: no two arms have validations of one seed.")
        axes.axhline(0, color=INK, lw=1.0)
        axes.set_ylabel("nats per token")
        axes.set_title(f"Validation loss minus that of {said(comparison.baseline.label)}")
        x_axis(axes, AXES["step"])
        name_lines(figure, axes, lines, 2.5)
        return figure


def _difference_line(axes: Any, arm: Arm, baseline: Arm, style: int, cut: float) -> Line2D | None:
    found = difference_curve(arm, baseline)
    if not len(found.step):
        return None
    late = found.step >= cut * baseline.first.steps
    late = late if late.any() else np.ones_like(late)
    step = found.step[late]
    if found.n > 1:
        draw_band(axes, step, found.low[late], found.high[late], style)
    return draw_line(axes, step, found.mean[late], style)


def ranking(comparison: Comparison) -> Figure:
    """Validation loss at the end, best first: mean, 95 % interval, and every seed."""
    ranked = comparison.ranked()
    if not ranked:
        return nothing("No ranking: no run has finished.")
    with look():
        figure = new_figure(WIDTH, 0.8 + 0.26 * len(ranked))
        axes: Any = figure.subplots()
        style = styles(comparison)
        for place, each in enumerate(ranked):
            look_of = {**pen(style[each.arm.slug]), "linestyle": "-", "marker": "D"}
            found = comparison.primary(each)
            mean = float(found.mean or 0.0)
            if found.low is not None:
                bar = {"color": look_of["color"], "lw": 2.2, "solid_capstyle": "butt"}
                axes.plot([found.low, found.high], [place] * 2, **bar)
            seeds = list(each.arm.values(comparison.metric).values())
            axes.plot(seeds, [place] * len(seeds), "|", color=INK, ms=7, mew=0.8, zorder=4)
            fill = look_of["color"] if each.arm.standard else "white"
            look_of |= {"markersize": 5, "markerfacecolor": fill, "zorder": 5}
            axes.plot([mean], [place], **look_of)
            if style[each.arm.slug] == 0:
                axes.axvline(mean, color=INK, lw=0.8, ls=(0, (2, 2)), zorder=1)
        axes.set_yticks(range(len(ranked)), [said(each.arm.label) for each in ranked])
        axes.set_ylim(len(ranked) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        several = comparison.primary(ranked[0]).n > 1
        notes = ["mean, 95 % interval and seeds" if several else "one seed"]
        if len({each.arm.standard for each in ranked}) > 1:
            notes.append("hollow: blocks of other than 1 attention + 1 MLP call")
        metric = comparison.metric.capitalize()
        axes.set_xlabel(f"{metric} validation loss, nats per token\n({'; '.join(notes)})")
        return figure


def momentum_pairs(comparison: Comparison) -> list[tuple[Arm, Arm]]:
    """Arms that are the same but for Nesterov's momentum in one and Polyak's in the other: the
    oracles of one are asked ahead along V (``mu*``), those of the other at X."""
    without = [(_settings(arm), without_lookahead(arm.rule)) for arm in comparison.arms]
    own = [(_settings(arm), structure(arm.rule)) for arm in comparison.arms]
    return [
        (ahead, plain)
        for ahead, reduced, before in zip(comparison.arms, without, own, strict=True)
        for plain, after in zip(comparison.arms, own, strict=True)
        if reduced == after and before != after
    ]


def _settings(arm: Arm) -> dict[str, Any]:
    return {name: own for name, (_, own) in arm.differs.items()}


def nesterov_polyak(comparison: Comparison) -> Figure:
    """Each pair's validation loss late in training, and below it the difference."""
    pairs = momentum_pairs(comparison)
    if not pairs:
        return nothing("No pair of arms differs by Nesterov's and Polyak's momentum alone.")
    with look():
        figure = new_figure(WIDTH if len(pairs) > 1 else 4.2, 3.8)
        heights = {"height_ratios": (2, 1)}
        grid = figure.subplots(2, len(pairs), sharex="col", squeeze=False, gridspec_kw=heights)
        style = styles(comparison)
        lines = {}
        for column, pair in enumerate(pairs):
            top, below = grid[:, column]
            for arm in pair:
                if line := _arm_line(top, comparison, arm, style[arm.slug], cut=LATE):
                    lines[arm.label] = line
            _difference_line(below, pair[0], pair[1], style[pair[0].slug], LATE)
            below.axhline(0, color=INK, lw=1.0)
            x_axis(below, AXES["step"])
        grid[0, 0].set_ylabel("validation loss")
        grid[1, 0].set_ylabel("Nesterov − Polyak")
        if not lines:
            return nothing("Nesterov against Polyak: no validation was recorded.")
        legend(figure, lines)
        return figure


def sizes(comparisons: Sequence[Comparison]) -> Figure:
    """Validation loss of several comparisons side by side, with one legend."""
    with look():
        figure = new_figure(WIDTH, 2.7)
        row = figure.subplots(1, len(comparisons), squeeze=False)[0]
        style = styles(*comparisons)
        lines: dict[str, Line2D] = {}
        for axes, comparison in zip(row, comparisons, strict=True):
            for arm in comparison.arms:
                if line := _arm_line(axes, comparison, arm, style[arm.slug]):
                    lines.setdefault(arm.label, line)
            axes.set_title(said(comparison.name))
            x_axis(axes, AXES["step"])
        row[0].set_ylabel("validation loss, nats per token")
        if not lines:
            return nothing("No validation was recorded.")
        legend(figure, lines)
        return figure


def write_figures(
    comparisons: Sequence[Comparison], folder: Path, formats: Sequence[str] = ("png",)
) -> list[Path]:
    """All figures that have something to show; those of several comparisons bear their names. A
    figure that stands there already, drawn from the same numbers, is not drawn again."""
    return write_drawings(list(drawings(comparisons)), folder, formats)


def drawings(comparisons: Sequence[Comparison]) -> Iterator[Drawing]:
    """Every figure of a report, with the digest of what it shows."""
    several = len(comparisons) > 1
    digests = [comparison_digest(each) for each in comparisons]
    for comparison, digest in zip(comparisons, digests, strict=True):
        prefix = f"{folder_name(comparison.name)}-" if several else ""
        for name, draw in _of_comparison(comparison):
            yield Drawing(prefix + name, draw, digest)
        for arm in comparison.arms:
            name, draw = f"coefficients-{arm.slug}", partial(coefficient_paths, arm)
            yield Drawing(prefix + name, draw, arm_digest(arm))
    if several and same_data(comparisons):
        yield Drawing("sizes", partial(sizes, comparisons), " ".join(digests))


def _of_comparison(comparison: Comparison) -> Iterator[tuple[str, partial[Figure]]]:
    yield "loss-curves", partial(loss_curves, comparison)
    for x in OTHER_AXES:
        yield f"loss-curves-{x}", partial(loss_curves, comparison, x)
    yield "difference", partial(difference, comparison)
    yield "ranking", partial(ranking, comparison)
    yield "nesterov-polyak", partial(nesterov_polyak, comparison)
    yield "coefficients", partial(coefficients_over_depth, comparison)
    yield "scaling", partial(scaling_figure, comparison)
