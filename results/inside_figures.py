"""Figures of what is inside, from the numbers beside an archive: a line per arm is the mean over
seeds, a band reaches from the lowest seed to the highest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from results.inside import by_arm
from yuriiformer.display.figures import (
    INK,
    WIDTH,
    draw_band,
    draw_line,
    legend,
    look,
    new_figure,
    pen,
    said,
    save_figure,
)

Runs = Sequence[Mapping[str, Any]]
DOTS = {
    "straightness": "straightness: distance of a trajectory's ends / its length",
    "effective_depth": "effective depth: the block after which the prediction stays",
}
LINES = {
    "turning": "turn from one block's move to the next, degrees",
    "lens_loss": "loss if the model ended here, nats per token",
}


def draw(data: Mapping[str, Any], folder: Path) -> list[Path]:
    """One figure per quantity."""
    arms = by_arm(data)
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Callable[[], Figure]] = {
        **{name: lambda name=name: dots(arms, name) for name in DOTS},
        **{name: lambda name=name: lines(arms, {LINES[name]: (name,)}) for name in LINES},
        "norms": lambda: lines(arms, _panels(arms, "norms", "norm of {}")),
        "coefficients": lambda: lines(arms, _panels(arms, "coefficients", "{}")),
    }
    return [save_figure(figure(), folder / f"{name}.png", dpi=160) for name, figure in made.items()]


def dots(arms: Mapping[str, Runs], name: str) -> Figure:
    """A row per arm: every seed, and the mean."""
    with look():
        figure = new_figure(WIDTH, 0.8 + 0.26 * len(arms))
        axes: Any = figure.subplots()
        for place, runs in enumerate(arms.values()):
            values = [run[name] for run in runs]
            axes.plot(values, [place] * len(values), "|", color=INK, ms=8, mew=0.9)
            point = {**pen(place), "linestyle": "", "marker": "D", "markersize": 5}
            axes.plot([float(np.mean(values))], [place], **point)
        axes.set_yticks(range(len(arms)), [said(arm) for arm in arms])
        axes.set_ylim(len(arms) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(DOTS[name])
        return figure


def _panels(arms: Mapping[str, Runs], part: str, title: str) -> dict[str, tuple[str, ...]]:
    names = dict.fromkeys(name for runs in arms.values() for name in runs[0][part])
    return {title.format(name): (part, name) for name in names}


def lines(arms: Mapping[str, Runs], panels: Mapping[str, tuple[str, ...]]) -> Figure:
    """A panel per quantity, by block; arms that do not have it are left out of it."""
    with look():
        columns = min(3, max(1, len(panels)))
        rows = -(-max(1, len(panels)) // columns)
        figure = new_figure(WIDTH, 0.4 + 2.2 * rows)
        grid = figure.subplots(rows, columns, squeeze=False)
        shown = {}
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (title, path) in zip(grid.flat, panels.items(), strict=False):
            for place, (arm, runs) in enumerate(arms.items()):
                values = [_at(run, path) for run in runs]
                if values[0] is None:
                    continue
                table = np.array(values, dtype=np.float64)
                kept = np.flatnonzero(np.isfinite(table).all(axis=0))
                table = table[:, kept]
                draw_band(axes, kept, table.min(axis=0), table.max(axis=0), place)
                shown[arm] = draw_line(axes, kept, table.mean(axis=0), place)
            axes.set_title(title)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.set_xlabel("layer" if path[0] == "coefficients" else "blocks")
        if shown:
            legend(figure, shown)
        return figure


def _at(run: Mapping[str, Any], path: Sequence[str]) -> Any:
    found: Any = run
    for name in path:
        found = found.get(name)
        if found is None:
            return None
    return found
