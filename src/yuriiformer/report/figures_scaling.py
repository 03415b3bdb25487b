"""The loss against compute with the fitted laws, and against parameters counted in three ways."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from yuriiformer.comparison.ladders import COUNTS, Family, Scaling
from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.display.colours import INK
from yuriiformer.display.figures import (
    WIDTH,
    draw_band,
    draw_line,
    legend,
    look,
    new_figure,
    nothing,
    pen,
)
from yuriiformer.report.scaling import law_curve, style_of


def scaling_figure(comparison: Comparison) -> Figure:
    """Left: every run and the laws, as far as the paper's sizes. Right: means by parameters."""
    found = comparison.scaling
    if found is None:
        return nothing("No rule was run at several sizes.")
    with look():
        figure = new_figure(WIDTH, 2.9)
        left, *others = figure.subplots(1, 1 + len(COUNTS), width_ratios=[3, 1.2, 1.2, 1.2])
        lines: dict[str, Line2D] = {}
        for place, family in enumerate(found.families):
            style = style_of(family.baseline, place)
            lines[family.label] = _law(left, found, family, style)
            for axes, count in zip(others, COUNTS, strict=True):
                sizes = [rung.parameters[count] for rung in family.rungs]
                order = np.argsort(sizes)
                means = np.array([rung.mean for rung in family.rungs])
                draw_line(axes, np.array(sizes)[order], means[order], style)
        for target in found.targets:
            left.axvline(next(iter(target.flops.values())), color=INK, lw=0.8, ls=(0, (2, 2)))
        left.set_xlabel("training FLOPs" + ("\n(dashed: the paper's sizes)" * bool(found.targets)))
        left.set_ylabel(f"{comparison.metric.capitalize()} validation loss, nats per token")
        names = ("all", "without start\ntables", "without any\ntable")
        for axes, words in zip(others, names, strict=True):
            axes.set_xlabel(f"parameters,\n{words}")
            axes.sharey(others[0])
        for axes in (left, *others):
            axes.set_xscale("log")
        legend(figure, lines)
        return figure


def _law(axes: Any, found: Scaling, family: Family, style: int) -> Line2D:
    """A rule's runs and its law; the line between its means where it has none."""
    pencil = {**pen(style), "linestyle": "", "marker": "o", "markersize": 2.6}
    axes.plot(family.column("flops"), family.losses, **pencil)
    fits = [each for each in found.fits if each.family is family]
    if not fits:
        flops = np.array([rung.flops for rung in family.rungs])
        return draw_line(axes, flops, np.array([rung.mean for rung in family.rungs]), style)
    curve = law_curve(fits[0], found)
    draw_band(axes, curve["flops"], curve["low"], curve["high"], style)
    line = draw_line(axes, curve["flops"], curve["loss"], style)
    line.set_marker("")
    return line
