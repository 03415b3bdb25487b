"""Figures of the learned coefficients: over depth, and during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from yuriiformer.comparison.outcomes import Arm, Comparison
from yuriiformer.display.curves import Floats
from yuriiformer.display.figures import (
    WIDTH,
    draw_band,
    draw_line,
    legend,
    look,
    new_figure,
    nothing,
    said,
    x_axis,
)
from yuriiformer.methods.drawing.equations import coefficient_symbol
from yuriiformer.report.curves import drawn_runs, styles

COLUMNS = 3  # panels beside each other


def coefficients_over_depth(comparison: Comparison) -> Figure:
    """The learned values by layer: a panel per coefficient, a line per arm (mean over seeds)."""
    ends = {arm.slug: end_of(arm) for arm in comparison.arms}
    names = list(dict.fromkeys(name for end in ends.values() for name in end))
    if not names:
        return nothing("No arm has coefficients.")
    style = styles(comparison)
    with look():
        figure, panels = _panels(names)
        lines = {}
        for name, axes in zip(names, panels, strict=False):
            for arm in comparison.arms:
                if name not in ends[arm.slug]:
                    continue
                mean, low, high = ends[arm.slug][name]
                layers = np.arange(len(mean))
                if (high > low).any():
                    draw_band(axes, layers, low, high, style[arm.slug])
                lines[arm.label] = draw_line(axes, layers, mean, style[arm.slug])
            axes.set_xlabel("layer")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        legend(figure, lines)
        return figure


def end_of(arm: Arm) -> dict[str, tuple[Floats, Floats, Floats]]:
    """The last value of each coefficient by layer: mean over seeds, lowest and highest. Of one per
    head or channel, its mean and its range."""
    records = [run.curves.coefficients[-1][1] for run in drawn_runs(arm) if run.curves.coefficients]
    found = {}
    for name in [name for name in (records[0] if records else {}) if "." not in name]:
        rows = {
            ending: np.array([record.get(name + ending, record[name]) for record in records])
            for ending in ("", ".min", ".max")
        }
        low, high = rows[".min"].min(axis=0), rows[".max"].max(axis=0)
        found[name] = (rows[""].mean(axis=0), low, high)
    return found


def coefficient_paths(arm: Arm) -> Figure:
    """The coefficients of an arm during training (its first seed): a line per layer."""
    run = next((run for run in arm.runs if run.curves.coefficients), None)
    if run is None:
        return nothing(f"{said(arm.label)} has no coefficients.")
    records = run.curves.coefficients
    steps = [step for step, _ in records]
    names = [name for name in records[0][1] if "." not in name]
    paths = {name: np.array([record[name] for _, record in records]) for name in names}
    depth = max(values.shape[1] for values in paths.values())
    # Without the lightest end, which is hard to see on white.
    colours = ListedColormap(mpl.colormaps["viridis"](np.linspace(0, 0.9, 256)))
    norm = Normalize(0, max(1, depth - 1))
    with look():
        figure, panels = _panels(names)
        for values, axes in zip(paths.values(), panels, strict=False):
            for layer in range(values.shape[1]):
                axes.plot(steps, values[:, layer], color=colours(norm(layer)), lw=1.0)
            x_axis(axes, "training step")
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=panels, pad=0.01, aspect=30)
        bar.set_label("layer")
        bar.locator = MaxNLocator(6, integer=True)
        bar.update_ticks()
        figure.suptitle(said(arm.label) + f", seed {run.seed}", fontsize=9)
        return figure


def _panels(names: Sequence[str]) -> tuple[Figure, list[Any]]:
    """Small multiples titled by the coefficients' letters."""
    columns = min(COLUMNS, len(names))
    rows = -(-len(names) // columns)
    width = WIDTH if columns > 1 else 4.2
    figure = new_figure(width, 0.3 + 1.75 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
    for spare in panels[len(names) :]:
        spare.remove()
    for name, axes in zip(names, panels, strict=False):
        symbol = coefficient_symbol(name).latex().replace(r"\frac{1}{2}", "1/2")
        axes.set_title(f"${symbol}$", fontsize=11)
        axes.tick_params(labelbottom=True)
    return figure, panels[: len(names)]
