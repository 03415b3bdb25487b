"""Figures of what is inside, from the numbers beside an archive; one quantity each.

Blue is an arm with momentum, black one without. Every arm is drawn; those of `NAMED` are named, so
that a reader can follow them from figure to figure. A point or line is the mean over seeds; ticks
are seeds, and a band reaches from the lowest seed to the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from results.inside import archived, by_arm, read_inside
from results.looks import GROUPS, colour_of, has_table
from yuriiformer.comparison.archive import read_archive
from yuriiformer.display.colours import INK
from yuriiformer.display.columns import printable
from yuriiformer.display.curves import Floats
from yuriiformer.display.figures import (
    WIDTH,
    legend,
    look,
    new_figure,
    save_figure,
)
from yuriiformer.methods.rule import Rule

# Of each group, the first is drawn solid and the second dashed.
NAMED = ("gd-lie-trotter", "gd-table", "nesterov-lie-trotter", "one-drift, no lookahead")
DOTS = {
    "straightness": (
        "How straight is a token's path through the model?",
        "distance between its ends / its length",
        ".2f",
    ),
    "effective_depth": (
        "After how many blocks does the prediction stay?",
        "effective depth: blocks until the likeliest next token is the final one",
        ".1f",
    ),
}
LINES = {
    "turning": ("By how much does a token turn from one block's move to the next?", "degrees"),
    "lens_loss": ("What would the loss be if the model ended here?", "nats per token"),
}
STREAMS = {"X": "X: the tokens", "V": "V: the velocity"}
COEFFICIENTS = {
    "mu": "μ: lookahead, first half",
    "beta": "β: memory, first half",
    "gamma": "γ: step, first half",
    "mu_half": "μ: second half",
    "beta_half": "β: second half",
    "gamma_half": "γ: second half",
}


@dataclass(frozen=True)
class Arm:
    """The traced runs of an arm."""

    label: str
    rule: Rule
    runs: Sequence[Mapping[str, Any]]

    @property
    def colour(self) -> str:
        return colour_of(self.rule)

    @property
    def named(self) -> bool:
        return self.label in NAMED

    @property
    def table(self) -> bool:
        return has_table(self.rule)

    def values(self, *path: str) -> Floats | None:
        """A row for each seed; None if the arm does not have it."""
        found: list[Any] = list(self.runs)
        for name in path:
            if any(name not in each for each in found):
                return None
            found = [each[name] for each in found]
        return np.array(found, dtype=np.float64)

    def mean(self, name: str) -> float:
        return float(np.mean([each[name] for each in self.runs]))


def draw(archive: Path, folder: Path) -> list[Path]:
    """One figure per quantity."""
    arms = arms_of(archive)
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Callable[[], Figure]] = {
        **{name: partial(dots, arms, name) for name in DOTS},
        **{name: partial(lines, arms, name) for name in LINES},
        "norms": lambda: panels(arms, "norms", STREAMS, "How long are the streams' vectors?"),
        "coefficients": lambda: panels(
            arms, "coefficients", COEFFICIENTS, "What did the momentum rules learn? (dotted: start)"
        ),
    }
    return [save_figure(figure(), folder / f"{name}.png", dpi=160) for name, figure in made.items()]


def arms_of(archive: Path) -> list[Arm]:
    runs = archived(read_archive(archive))
    return [
        Arm(label, runs[label, own[0]["seed"]].rule, own)
        for label, own in by_arm(read_inside(archive)).items()
    ]


def dots(arms: Sequence[Arm], name: str) -> Figure:
    """A row per arm, the highest first: its seeds, and the mean as a number. Hollow: no second
    table. A line for each group, at the mean of its arms."""
    title, words, form = DOTS[name]
    with look():
        figure = new_figure(WIDTH, 1.0 + 0.22 * len(arms))
        axes: Any = figure.subplots()
        ranked = sorted(arms, key=lambda arm: -arm.mean(name))
        for place, arm in enumerate(ranked):
            values = arm.values(name)
            axes.plot(values, [place] * len(arm.runs), "|", color=arm.colour, ms=7, mew=0.8)
            dot = {"mfc": arm.colour if arm.table else "white", "mec": arm.colour, "mew": 1.2}
            axes.plot(arm.mean(name), place, "o", ms=5.5, zorder=4, **dot)
            where = {"xycoords": ("axes fraction", "data"), "va": "center"}
            axes.annotate(f"{arm.mean(name):{form}}", (1.01, place), color=arm.colour, **where)
        for place, (momentum, (group, colour)) in enumerate(GROUPS.items()):
            own = [arm.mean(name) for arm in arms if arm.rule.uses_velocity == momentum]
            if own:
                axes.axvline(float(np.mean(own)), color=colour, lw=0.9, ls=(0, (4, 3)), zorder=1)
                text = f"{group}: {np.mean(own):{form}}"
                where = {"xycoords": "axes fraction", "va": "bottom", "weight": "bold"}
                axes.annotate(text, (0.45 * place, 1.01), color=colour, **where)
        axes.set_yticks(range(len(ranked)), [printable(arm.label) for arm in ranked])
        axes.set_ylim(len(ranked) - 0.5, -0.5)
        axes.margins(x=0.06)
        axes.grid(axis="y", visible=False)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=9)
        axes.set_xlabel(f"{words} (filled: with a second table)")
        return figure


def lines(arms: Sequence[Arm], name: str) -> Figure:
    """One panel, by block, the named arms labelled at their ends."""
    title, words = LINES[name]
    with look():
        height = 2.9
        figure = new_figure(WIDTH, height)
        axes: Any = figure.subplots()
        shown = curves(axes, arms, (name,))
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=9)
        axes.set_xlabel("block")
        axes.set_ylabel(words)
        legend(figure, shown)
        return figure


def panels(arms: Sequence[Arm], part: str, titles: Mapping[str, str], title: str) -> Figure:
    """A panel for each of these that a named arm has, by block."""
    with look():
        has = [name for name in titles if any(a.values(part, name) is not None for a in arms)]
        columns = min(3, max(1, len(has)))
        rows = -(-max(1, len(has)) // columns)
        figure = new_figure(WIDTH, 0.5 + 1.9 * rows)
        grid = figure.subplots(rows, columns, squeeze=False)
        shown: dict[str, Line2D] = {}
        for axes in grid.flat[len(has) :]:
            axes.set_visible(False)
        for axes, name in zip(grid.flat, has, strict=False):
            shown = curves(axes, arms, (part, name)) | shown
            starts = {
                a.rule.coefficients[name].initial for a in arms if name in a.rule.coefficients
            }
            for start in starts if part == "coefficients" else ():
                axes.axhline(start, color=INK, lw=0.8, ls=":")
            axes.set_title(titles[name])
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
            axes.set_xlabel("block")
        figure.suptitle(title, x=0.01, ha="left", weight="bold", fontsize=9)
        if shown:
            legend(figure, shown)
        return figure


def curves(axes: Any, arms: Sequence[Arm], path: Sequence[str]) -> dict[str, Line2D]:
    """A line for each arm that has it; those named stand out, and are returned."""
    shown, others = {}, {}
    for arm in arms:
        table = arm.values(*path)
        if table is None:
            continue
        kept = np.flatnonzero(np.isfinite(table).all(axis=0))
        kept = kept[kept > 0] if path == ("lens_loss",) else kept  # before a block: far above all
        block = kept + 1 if path[0] == "coefficients" else kept
        mean = table[:, kept].mean(axis=0)
        if not arm.named:
            (line,) = axes.plot(block, mean, color=arm.colour, lw=0.8, alpha=0.35)
            others[f"others {GROUPS[arm.rule.uses_velocity][0]}"] = line
            continue
        dashed = NAMED.index(arm.label) % 2
        low, high = table[:, kept].min(axis=0), table[:, kept].max(axis=0)
        axes.fill_between(block, low, high, color=arm.colour, alpha=0.15, lw=0)
        pen = {"lw": 1.6, "ls": (0, (3, 1.5)) if dashed else "-", "marker": "os"[dashed], "ms": 3.5}
        (shown[arm.label],) = axes.plot(block, mean, color=arm.colour, zorder=3, **pen)
    if axes.get_ylim()[0] > -0.05 * axes.get_ylim()[1]:
        axes.set_ylim(bottom=0)  # or small differences look large
    return {label: shown[label] for label in NAMED if label in shown} | others
