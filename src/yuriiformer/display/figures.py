"""What figures share: their look, lines as they are drawn, labels at their ends, legends, axes."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from yuriiformer.display.colours import INK
from yuriiformer.display.columns import in_units, printable
from yuriiformer.display.curves import line_style, thin
from yuriiformer.errors import YuriiError

# The same results give the same bytes.
METADATA: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
FORMATS = (".svg", ".png", ".pdf")
WIDTH = 7.0  # inches: two columns of a paper
DIRECT = 8  # as many lines are labelled at their ends; more get a legend
POINTS = 8.0  # size of all text: still read in print
POINTS_DRAWN = 600  # buckets of a line (see `thin`): more than a column of print can show
LONGEST = 36  # characters of a label
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8")
LOOK: dict[Any, Any] = {
    "font.size": POINTS,
    "axes.titlesize": POINTS + 1,
    "axes.labelsize": POINTS,
    "xtick.labelsize": POINTS,
    "ytick.labelsize": POINTS,
    "legend.fontsize": POINTS,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "mathtext.fontset": "cm",
    "svg.hashsalt": "yuriiformer",  # the same results give the same bytes
    "pdf.fonttype": 42,
}


def look() -> AbstractContextManager[None]:
    """The settings under which a figure is made and written."""
    return mpl.rc_context(LOOK)


def new_figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def nothing(text: str) -> Figure:
    """An empty figure with the reason as its text."""
    figure = new_figure(WIDTH, 1.2)
    figure.text(0.5, 0.5, text, ha="center", va="center", color=INK)
    return figure


def is_empty(figure: Figure) -> bool:
    return not any(axes.has_data() for axes in figure.axes)


def save_figure(figure: Figure, path: Path, **options: Any) -> Path:
    """Write a figure, the path's ending saying in which format; the same figure gives the same
    bytes. A letter that the font lacks is drawn as a box, without a warning."""
    if path.suffix.lower() not in FORMATS:
        raise YuriiError(f"{str(path)!r}: a figure is written as {', '.join(FORMATS)}")
    metadata = METADATA.get(path.suffix.lower())
    fonts = logging.getLogger("fontTools")  # tells the dates of fonts
    level = fonts.level
    fonts.setLevel(logging.ERROR)
    try:
        with look(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")
            figure.savefig(path, metadata=metadata, **options)
    except (OSError, ValueError) as error:
        raise YuriiError(f"{str(path)!r} cannot be written: {error}") from None
    finally:
        fonts.setLevel(level)
    return path


def said(text: str) -> str:
    """A label for matplotlib: dollar signs escaped, on one line, at most `LONGEST` characters."""
    text = printable(text)
    text = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return text.replace("$", r"\$")


def pen(style: int) -> dict[str, Any]:
    """The look of a line: colour, dash, and a marker for readers who cannot see the colours."""
    colour, dash = line_style(style)
    return {
        "color": colour,
        "linestyle": "-" if dash is None else (0, dash),
        "marker": MARKERS[(style - 1) % len(MARKERS)] if style else "",
        "markersize": 3.2,
        "markerfacecolor": "white",
        "markeredgewidth": 0.8,
    }


def draw_line(axes: Any, x: Any, y: Any, style: int) -> Line2D:
    """A line thinned to visible detail, with a marker now and then (shifted by style)."""
    kept = thin(x, y, POINTS_DRAWN)
    every: Any = (0.02 + 0.013 * (style % 7), 0.16) if len(kept) > 12 else None
    pencil = pen(style)
    if len(kept) == 1 and not pencil["marker"]:
        pencil["marker"] = "."  # a line of one point is invisible
    pencil |= {"markevery": every, "zorder": 3.5 if style == 0 else 3}
    (line,) = axes.plot(np.asarray(x)[kept], np.asarray(y)[kept], **pencil)
    return line  # type: ignore[no-any-return]


def draw_band(axes: Any, x: Any, low: NDArray[Any], high: NDArray[Any], style: int) -> None:
    """A faint band between two lines."""
    kept = np.union1d(thin(x, low, POINTS_DRAWN), thin(x, high, POINTS_DRAWN))
    colour, _ = line_style(style)
    axes.fill_between(np.asarray(x)[kept], low[kept], high[kept], color=colour, alpha=0.15, lw=0)


def label_ends(axes: Any, lines: Mapping[str, Line2D], height: float) -> None:
    """Names at the right ends of lines, moved apart, each joined to its line. ``height`` is
    about the height of the axes, in inches."""
    low, high = axes.get_ylim()
    ends = []
    for name, line in lines.items():
        x, y = (np.asarray(part, dtype=np.float64) for part in line.get_data())
        there = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if len(there):
            last = there[-1]
            ends.append(((y[last] - low) / (high - low), name, line, (x[last], y[last])))
    ends.sort(key=lambda end: end[0])
    places = spread([end[0] for end in ends], 1.3 * POINTS / 72 / height)
    for place, (_, name, line, end) in zip(places, ends, strict=True):
        early = axes.transAxes.inverted().transform(axes.transData.transform(end))[0] < 0.88
        join = {
            "arrowstyle": "-",
            "color": INK if early else line.get_color(),
            "lw": 0.7,
            "ls": (0, (1, 3)) if early else "-",
            "relpos": (0, 0.5),  # to the text's left end
            "shrinkA": 1,
            "shrinkB": 2,
        }
        where = {"xycoords": "data", "textcoords": "axes fraction", "va": "center", "ha": "left"}
        look = {"color": INK, "arrowprops": join, "annotation_clip": False}
        axes.annotate(said(name), end, (1.05, place), **where, **look)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Ascending positions moved apart to at least ``gap``, as little as possible; within 0 and 1
    if there is room."""
    groups: list[tuple[float, int]] = []  # mean of (place - index * gap), and how many
    for index, place in enumerate(places):
        mean, count = place - index * gap, 1
        while groups and groups[-1][0] > mean:
            other, number = groups.pop()
            mean = (mean * count + other * number) / (count + number)
            count += number
        groups.append((mean, count))
    flat = [mean for mean, count in groups for _ in range(count)]
    highest = max(0.0, 1.0 - gap * (len(flat) - 1))
    return [min(max(mean, 0.0), highest) + index * gap for index, mean in enumerate(flat)]


def legend(figure: Figure, lines: Mapping[str, Line2D]) -> None:
    """Below all axes; the figure grows by the height of the legend."""
    labels = [said(name) for name in lines]
    labels = [f" {label}" if label.startswith("_") else label for label in labels]
    longest = max(map(len, labels))
    width, height = figure.get_size_inches()
    columns = max(1, min(len(labels), int(width / (0.055 * longest + 0.55))))
    rows = -(-len(labels) // columns)
    figure.set_size_inches(width, height + 0.17 * rows)
    look: dict[str, Any] = {"frameon": False, "handlelength": 3.2, "columnspacing": 1.0}
    handles = list(lines.values())
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **look)


def name_lines(
    figure: Figure, axes: Any, lines: Mapping[str, Line2D], height: float, direct: int = DIRECT
) -> None:
    """Name lines at their ends if they are at most ``direct``, else in a legend."""
    if len(lines) > direct:
        legend(figure, lines)
    elif lines:
        label_ends(axes, lines, height)


def x_axis(axes: Any, title: str) -> None:
    """Few ticks, large numbers as 5k, 2.5B."""
    axes.set_xlabel(title)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_units(value)))
