"""The picture of a confirmation, of one glance: each arm's difference to the baseline."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from results.looks import GROUPS, colour_of, has_table
from results.tables.archives import STUDY
from results.tables.arms import comparison
from results.tables.confirmation import size
from yuriiformer.comparison.archive import ARCHIVE
from yuriiformer.comparison.outcomes import Comparison, Outcome
from yuriiformer.display.colours import INK
from yuriiformer.display.columns import printable
from yuriiformer.display.figures import WIDTH, look, new_figure, save_figure


def draw(found: Comparison) -> Figure:
    """A row per arm, the lowest first: its difference to the baseline in each seed, the mean and
    its 95 % interval. Hollow: no second table."""
    with look():
        figure = new_figure(WIDTH, 0.9 + 0.25 * len(found.outcomes))
        axes: Any = figure.subplots()
        ranked = found.ranked()
        for place, each in enumerate(ranked):
            _row(axes, place, each, found)
        axes.axvline(0, color=INK, lw=0.9, zorder=1)
        for place, (words, colour) in enumerate(GROUPS.values()):
            where = {"xycoords": "axes fraction", "va": "bottom", "weight": "bold"}
            axes.annotate(words, (0.4 * place, 1.01), color=colour, **where)
        axes.annotate("parameters", (1.01, 1.01), xycoords="axes fraction", va="bottom", color=INK)
        axes.set_yticks(range(len(ranked)), [printable(each.arm.label) for each in ranked])
        axes.set_ylim(len(ranked) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(
            f"loss minus that of {printable(found.baseline.label)}, nats per token\n"
            "(bar: 95 % interval; ticks: seeds; filled: with a second table)"
        )
        return figure


def _row(axes: Any, place: int, each: Outcome, found: Comparison) -> None:
    arm, beside, colour = each.arm, each.difference, colour_of(each.arm.rule)
    fill = colour if has_table(arm.rule) else "white"
    if beside.mean is not None:
        axes.plot(beside.mean, place, "o", mfc=fill, mec=colour, mew=1.2, ms=6, zorder=4)
    if arm.slug != found.baseline.slug:
        own, base = arm.values(found.metric), found.baseline.values(found.metric)
        seeds = [own[seed] - base[seed] for seed in own if seed in base]
        axes.plot(seeds, [place] * len(seeds), "|", color=colour, ms=8, mew=0.8, alpha=0.6)
        if beside.low is not None:
            axes.plot([beside.low, beside.high], [place, place], color=colour, lw=1.6)
    where = {"xycoords": ("axes fraction", "data"), "va": "center"}
    axes.annotate(size(arm), (1.01, place), color=INK, **where)


def identity(name: str | Path) -> str:
    """What a picture ends with, so that a test knows which archive it is of."""
    digest = hashlib.sha256((STUDY / name / ARCHIVE).read_bytes()).hexdigest()
    return f"<!-- of the archive {digest} -->\n"


def write(name: str | Path, path: Path) -> Path:
    save_figure(draw(comparison(name)), path, facecolor="white")
    path.write_text(path.read_text(encoding="utf-8") + identity(name), encoding="utf-8")
    return path
