"""Figures of the lab: convergence and rates on a quadratic, energies and trajectories.

All are drawn from the plain data that ``lab.json`` holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from yuriiformer.display.colours import INK
from yuriiformer.display.curves import Floats, line_style
from yuriiformer.display.figures import (
    WIDTH,
    draw_line,
    legend,
    look,
    name_lines,
    new_figure,
    said,
    save_figure,
    x_axis,
)

Data = Mapping[str, Any]
COLUMNS = 4  # panels side by side
DIRECT = 9  # lines that are named at their ends; more get a legend
LOWEST = -26.0  # powers of ten: below are squares of rounding


def convergence(data: Data) -> Figure:
    """f minus its minimum, by blocks and by oracle calls."""
    with look():
        figure = new_figure(WIDTH, 3.1)
        left, right = figure.subplots(1, 2, sharey=True)
        curves = [_logs(each["gap"]) for each in data["rules"]]
        first = max(curve[0] for curve in curves)
        lines = {}
        for style, (each, logs) in enumerate(zip(data["rules"], curves, strict=True)):
            # Diverging lines leave at the top; rounding errors are left out.
            shown = np.where((logs <= first + 3) & (logs > LOWEST), logs, np.nan)
            blocks = np.arange(len(shown), dtype=np.float64)
            draw_line(left, blocks, shown, style)
            calls = sum(each["calls"].values())
            lines[each["rule"]["name"]] = draw_line(right, calls * blocks, shown, style)
        lowest = min(float(np.min(curve)) for curve in curves)
        for axes, title in ((left, "blocks"), (right, "oracle calls")):
            x_axis(axes, title)
            axes.set_ylim(max(lowest, LOWEST) - 0.5, first + 3)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"$10^{{{y:g}}}$"))
            axes.yaxis.set_major_locator(MaxNLocator(7, integer=True))
        left.set_ylabel("f(X) − min f")
        name_lines(figure, right, lines, 2.5, DIRECT)
        return figure


def _logs(values: Sequence[float | None]) -> Floats:
    numbers = np.array([np.inf if value is None else value for value in values])
    logs: Floats = np.log10(np.maximum(numbers, 10.0**LOWEST))
    return logs


def rates(data: Data) -> Figure:
    """The speed of convergence of each rule, by theory and fitted: -ln(rate) per block."""
    shown = [each for each in data["rules"] if _speed(each["theory"]) or _speed(each["fitted"])]
    with look():
        figure = new_figure(WIDTH, 1.0 + 0.24 * max(2, len(shown)))
        axes: Any = figure.subplots()
        marks = {
            "theory": Line2D([], [], ls="", marker="o", ms=8, mfc="none", mec=INK),
            "fitted to the run": Line2D([], [], ls="", marker="x", ms=5, color=INK),
        }
        for row, each in enumerate(shown):
            theory, fitted = _speed(each["theory"]), _speed(each["fitted"])
            colour, _ = line_style(data["rules"].index(each))
            if theory:
                axes.plot([theory], [row], "o", ms=8, mfc="none", mec=colour, mew=1.3)
            if fitted:
                axes.plot([fitted], [row], "x", ms=5, color=INK, mew=1.1)
        for (name, rate), dash in zip(data["closed_forms"].items(), (":", "--", "-."), strict=True):
            speed = _speed({"block": rate})
            if speed:
                marks[f"{name} (textbook)"] = axes.axvline(speed, color=INK, lw=0.7, ls=dash)
        axes.set_yticks(range(len(shown)), [said(each["rule"]["name"]) for each in shown])
        axes.set_ylim(max(1, len(shown)) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_xlabel("−ln(rate) per block: more is faster")
        legend(figure, marks)
        return figure


def _speed(rate: Mapping[str, float | None]) -> float | None:
    """None if it does not converge."""
    block = rate["block"]
    return None if block is None or not 0 < block < 1 else -float(np.log(block))


def paths(data: Data) -> Figure:
    """Every rule over the level lines of f: the flattest axis across, the steepest up."""
    with look():
        figure, panels = _panels(len(data["rules"]), 1.55)
        reach = _reach(data)
        for style, (each, axes) in enumerate(zip(data["rules"], panels, strict=True)):
            _levels(axes, data, reach)
            points = np.array(each["path"], dtype=np.float64)
            colour, _ = line_style(style)
            axes.plot(*points.T, color=colour, lw=0.9, marker=".", ms=2.5, mew=0, zorder=3)
            axes.plot(*points[0], "o", ms=4, mfc="white", mec=INK, mew=0.9, zorder=4)
            axes.plot(0, 0, "+", ms=8, color=INK, mew=1.2, zorder=5)
            if each["limit"] is not None:
                axes.plot(*each["limit"], "s", ms=5, mfc="none", mec=INK, mew=1.0, zorder=5)
            axes.set_title(said(each["rule"]["name"]), fontsize=8)
            axes.set_xlim(-reach[0], reach[0])
            axes.set_ylim(-reach[1], reach[1])
        marks = {
            "start": Line2D([], [], ls="", marker="o", mfc="white", mec=INK),
            "minimum": Line2D([], [], ls="", marker="+", ms=8, color=INK),
            "limit, if another": Line2D([], [], ls="", marker="s", mfc="none", mec=INK),
        }
        if _apart(data):
            marks["parts' minima"] = Line2D([], [], ls="", marker="^", color="#777777")
        for axes in panels:
            place = axes.get_subplotspec()
            axes.set_ylabel("steepest axis" if place.is_first_col() else "")
            axes.set_xlabel("flattest axis" if place.is_last_row() else "")
        legend(figure, marks)
        return figure


def _apart(data: Data) -> bool:
    return bool(np.ptp(np.array(data["centres"]), axis=0).max() > 0)


def _reach(data: Data) -> tuple[float, float]:
    """Half the width and height that all panels share: enough for the start and most points."""
    found = []
    for axis in (0, 1):
        start = max(abs(each["path"][0][axis]) for each in data["rules"])
        arrived = [each["path"] for each in data["rules"] if each["stopped"] is None]
        whole = [np.array(path, dtype=np.float64) for path in arrived]
        most = [float(np.abs(points[:, axis]).max()) for points in whole]
        found.append(1.15 * min(1.8 * start, max([start, *most])))
    return found[0], found[1]


def _levels(axes: Any, data: Data, reach: tuple[float, float]) -> None:
    x, y = (np.linspace(-size, size, 81) for size in reach)
    values = 0.5 * (data["m"] * x[None, :] ** 2 + data["L"] * y[:, None] ** 2)
    levels = np.quantile(values, np.linspace(0.02, 0.95, 9))
    axes.contour(x, y, values, np.unique(levels), colors="#c8c8c8", linewidths=0.5, zorder=1)
    axes.grid(visible=False)
    if _apart(data):
        for centre in data["centres"]:
            axes.plot(*centre, "^", ms=4, color="#777777", mew=0, zorder=2)


def energies(data: Data) -> Figure:
    """J and the number of clusters, by blocks."""
    with look():
        figure = new_figure(WIDTH, 3.1)
        left, right = figure.subplots(1, 2)
        lines = {}
        low = min(v for each in data["rules"] for v in each["value"] if v is not None)
        first = data["rules"][0]["value"][0]
        high = first + 1.0 * (first - low)  # as far above the start as the deepest is below it
        for style, each in enumerate(data["rules"]):
            values = np.array([np.inf if v is None else v for v in each["value"]])
            values = np.where(values <= high, values, np.nan)
            blocks = np.arange(len(values))
            draw_line(left, blocks, values, style)
            counts = np.array(each["clusters"], dtype=np.float64)
            counts = counts + 0.12 * (style - len(data["rules"]) / 2) / len(data["rules"])
            lines[each["rule"]["name"]] = draw_line(right, blocks, counts, style)
        left.set_ylabel("J")
        right.set_ylabel(f"clusters (nearer than {data['options']['distance']:g})")
        right.set_yscale("log", base=2)
        right.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        for axes in (left, right):
            x_axis(axes, "blocks")
        legend(figure, lines)
        return figure


def trajectories(data: Data) -> Figure:
    """Where the tokens went (in their first two coordinates)."""
    with look():
        figure, panels = _panels(len(data["rules"]), 2.1, columns=3)
        starts = np.array(data["rules"][0]["trajectories"][0], dtype=np.float64)
        reach = 1.12 * max(float(np.abs(starts).max()), 1.2 * data["ring"]["radius"])
        for style, (each, axes) in enumerate(zip(data["rules"], panels, strict=True)):
            frames = np.array(each["trajectories"], dtype=np.float64)  # (frame, token, 2)
            colour, _ = line_style(style)
            ring = Circle((0, 0), data["ring"]["radius"], fill=False, ec="#b0b0b0", ls="--", lw=0.7)
            axes.add_patch(ring)
            axes.plot(frames[..., 0], frames[..., 1], color=colour, lw=0.6, alpha=0.6, zorder=2)
            axes.plot(*frames[0].T, "o", ms=2.5, mfc="white", mec="#777777", mew=0.6, zorder=3)
            axes.plot(*frames[-1].T, "o", ms=4.5, color=INK, mew=0, zorder=4)
            count = each["clusters"][-1]
            axes.set_title(
                f"{said(each['rule']['name'])}: {count} cluster{'s' * (count != 1)}", fontsize=8
            )
            axes.set_xlim(-reach, reach)
            axes.set_ylim(-reach, reach)
            axes.set_aspect("equal")
            axes.grid(visible=False)
        marks = {
            "start": Line2D([], [], ls="", marker="o", ms=3, mfc="white", mec="#777777"),
            "end": Line2D([], [], ls="", marker="o", ms=4.5, color=INK),
            "ring": Line2D([], [], ls="--", lw=0.7, color="#b0b0b0"),
        }
        legend(figure, marks)
        return figure


def _panels(number: int, height: float, columns: int = COLUMNS) -> tuple[Figure, list[Any]]:
    columns = min(columns, number)
    rows = -(-number // columns)
    figure = new_figure(max(3.2, WIDTH * columns / max(columns, 3)), 0.3 + height * rows)
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    panels = list(grid.flat)
    for spare in panels[number:]:
        spare.remove()
    for above in panels[max(0, number - columns) : number]:
        above.tick_params(labelbottom=True)
    return figure, panels[:number]


def orders(data: Data) -> Figure:
    """The error at the end over the step, and lines of slope 1 and 2."""
    with look():
        figure = new_figure(WIDTH, 3.4)
        axes: Any = figure.subplots()
        shown = [each for each in data["rules"] if each["errors"]]
        lines = {}
        for style, each in enumerate(shown):
            steps = np.log10(np.array(each["steps"], dtype=np.float64))
            errors = np.array([np.nan if e is None else e for e in each["errors"]])
            errors = np.log10(np.maximum(errors, 1e-16))
            lines[each["rule"]["name"]] = draw_line(axes, steps, errors, style)
        for slope, dash in ((1, ":"), (2, "--")):
            x = np.log10(np.array(shown[0]["steps"], dtype=np.float64)) if shown else np.zeros(2)
            top = -0.3 if slope == 1 else -2.3  # beside the lines, not on them
            line = axes.plot(x, top + slope * (x - x.max()), color=INK, lw=0.7, ls=dash)[0]
            lines[f"slope {slope}"] = line
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"$10^{{{y:g}}}$"))
        axes.yaxis.set_major_locator(MaxNLocator(7, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{10**x:.2g}"))
        axes.set_xlabel("step H")
        axes.set_ylabel("error of x and v")
        legend(figure, lines)
        return figure


FIGURES = {
    "quadratic": {"convergence": convergence, "rates": rates, "paths": paths},
    "particles": {"energies": energies, "trajectories": trajectories},
    "order": {"orders": orders},
}


def write_lab_figures(data: Data, folder: Path, formats: Sequence[str]) -> list[Path]:
    """All figures of a lab, in each format."""
    made = FIGURES[data["problem"]]
    if data["options"]["dim"] == 1:  # a path would be a line
        made = {name: draw for name, draw in made.items() if draw not in (paths, trajectories)}
    written = []
    for name, draw in made.items():
        figure = draw(data)
        written += [save_figure(figure, folder / f"{name}.{kind}", dpi=150) for kind in formats]
    return written
