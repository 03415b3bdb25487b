"""Draws a block: streams run down, oracles and LN_v are boxes, lookaheads and sums are ⊕."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

from yuriiformer.display.figures import INK, save_figure
from yuriiformer.errors import YuriiError
from yuriiformer.methods.drawing.layout import Arrow, Box, Diagram, Mark, lay_out, oracle_of
from yuriiformer.methods.rule import Rule

SPACING = 1.35  # between lanes
RADIUS = 0.14  # of a ⊕
STREAM_COLOURS = {"X": INK, "V": "#0072B2"}  # Okabe and Ito's palette: safe for all eyes
MOST_PIXELS = 20_000  # of a side
OTHER_STREAM = "#AA5A88"
FILL = {
    "attn": "#F6C98F",
    "mlp": "#9FD9C2",
    "norm": "#C9DDF2",
    "unit": "#E6E6E6",
    "function": "#F3EBC6",
}


def draw_rule(rule: Rule, path: str | Path) -> Path:
    """Write the block's diagram; the ending of the path says in which format."""
    path = Path(path)
    if not path.parent.is_dir():
        raise YuriiError(f"{str(path)!r}: no folder {str(path.parent)!r}; make it first")
    figure = draw(lay_out(rule))
    dpi = min(200.0, MOST_PIXELS / max(figure.get_size_inches()))  # of a very long rule: fewer
    return save_figure(figure, path, dpi=dpi, bbox_inches="tight")


def draw(diagram: Diagram) -> Figure:
    """The diagram as a figure."""
    return draw_together([diagram])


def draw_together(diagrams: Sequence[Diagram]) -> Figure:
    """Diagrams side by side, their tops at one height."""
    sizes = [_Painter(diagram).size for diagram in diagrams]
    width, height = sum(each[0] for each in sizes), max(each[1] for each in sizes)
    figure = Figure(figsize=(width, height))
    left = 0.0
    for diagram, (own, tall) in zip(diagrams, sizes, strict=True):
        place = (left / width, 1.0 - tall / height, own / width, tall / height)
        _paint(diagram, _Painter(diagram, figure.add_axes(place)))
        left += own
    return figure


def _paint(diagram: Diagram, painter: _Painter) -> None:
    painter.prepare(diagram)
    for wire in diagram.wires:
        painter.wire(wire.lane, wire.top, wire.bottom)
    for arrow in diagram.arrows:
        painter.arrow(arrow)
    for box in diagram.boxes:
        painter.box(box)
    for mark in diagram.marks:
        painter.mark(mark)


class _Painter:
    """Knows where lanes stand, and (with axes) draws on them."""

    def __init__(self, diagram: Diagram, axes: Any = None) -> None:
        self.x: dict[str, float] = {}
        self.boxes = diagram.boxes
        self.wires = diagram.wires
        place = 0.0
        for lane in diagram.lanes:
            room = 0.5 * max(SPACING, self.width(lane) + 0.55)
            place += room if self.x else 0.0
            self.x[lane] = place
            place += room
        self.right = place
        self.size = (0.85 * (place + 0.6), 0.72 * diagram.rows + 0.5)  # inches
        self.axes = axes

    def prepare(self, diagram: Diagram) -> None:
        """Limits and title."""
        self.axes.set_xlim(-0.9, self.right)
        self.axes.set_ylim(diagram.rows + 0.1, -0.75)
        self.axes.set_aspect("equal")
        self.axes.axis("off")
        middle = 0.5 * (self.x["X"] + max(self.x.values()))
        title = diagram.title.replace("$", r"\$").replace("LN_v", r"$\mathrm{LN}_v$")
        self.axes.text(middle, -0.55, title, ha="center", fontsize=12, color=INK)

    def width(self, lane: str) -> float:
        """How wide the widest box of a lane is."""
        return max((_box_width(box) for box in self.boxes if box.lane == lane), default=0.0)

    def colour(self, lane: str) -> str:
        if oracle_of(lane) or lane.startswith("op#"):
            return INK
        return STREAM_COLOURS.get(lane, OTHER_STREAM)

    def wire(self, lane: str, top: float, bottom: float) -> None:
        x = self.x[lane]
        self.axes.plot([x, x], [top, bottom], color=self.colour(lane), lw=1.8, zorder=2)

    def arrow(self, arrow: Arrow) -> None:
        start, end, y = self.x[arrow.source], self.x[arrow.target], arrow.row
        right = 1.0 if end > start else -1.0
        colour = self.colour(arrow.source)
        stop = end if arrow.turns else end - right * RADIUS
        for box in self.boxes:
            if box.lane == arrow.target and box.row <= y <= box.row + box.height:
                stop = end - right * 0.5 * _box_width(box)
        # A white edge lets the arrow bridge the wires it crosses.
        self.axes.plot(
            [start + right * 0.12, stop - right * 0.12], [y, y], color="white", lw=5, zorder=3
        )
        if arrow.turns:
            self.axes.plot([start, stop], [y, y], color=colour, lw=1.4, zorder=4)
        else:
            self.tip((start, y), (stop, y), colour)
        if any(w.lane == arrow.source and w.top <= y < w.bottom - 0.01 for w in self.wires):
            self.axes.add_patch(Circle((start, y), 0.05, color=colour, zorder=5))  # it branches
        near = end - right * (0.38 + 0.055 * _length(arrow.label))
        if arrow.via:
            self.small_box(end - right * 0.58, y, arrow.via, FILL["unit"])
            near -= right * 0.58
        if arrow.label:
            look = {"va": "bottom", "color": INK, "zorder": 7}
            paper = {"fc": "white", "ec": "none", "pad": 0.3}
            self.write(near, y - 0.09, _math(arrow.label), 11, bbox=paper, **look)

    def tip(self, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        style = {"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        self.axes.annotate("", end, start, zorder=4, arrowprops=style)

    def box(self, box: Box) -> None:
        x, width = self.x[box.lane], _box_width(box)
        self.rounded(x - 0.5 * width, box.row, width, box.height, FILL[box.kind])
        if box.kind in ("attn", "mlp"):
            self.tip((x, box.row - 0.3), (x, box.row), INK)
            self.rounded(x - 0.5 * width, box.row, width, 0.42, FILL["unit"])
            self.write(x, box.row + 0.22, "LN", 9)
            self.write(x, box.row + 0.8, box.label, 12)
        else:
            self.write(x, box.row + 0.5 * box.height, _math(box.label), 11)

    def mark(self, mark: Mark) -> None:
        x = self.x[mark.lane]
        if mark.kind == "plus":
            self.axes.add_patch(Circle((x, mark.row), RADIUS, fc="white", ec=INK, lw=1.3, zorder=8))
            reach = 0.6 * RADIUS
            self.axes.plot([x - reach, x + reach], [mark.row] * 2, color=INK, lw=1.3, zorder=9)
            self.axes.plot(
                [x] * 2, [mark.row - reach, mark.row + reach], color=INK, lw=1.3, zorder=9
            )
        elif mark.kind == "gain":
            self.small_box(x, mark.row, mark.label, "white")
        elif mark.kind == "tag":
            colour = self.colour(mark.lane)
            self.write(x + 0.1, mark.row, _math(mark.label), 10, ha="left", color=colour)
        else:
            self.write(x, mark.row, _math(mark.label), 15, color=self.colour(mark.lane))

    def small_box(self, x: float, y: float, label: str, colour: str) -> None:
        width = 0.34 + 0.085 * max(0, _length(label) - 2)
        self.rounded(x - 0.5 * width, y - 0.19, width, 0.38, colour)
        self.write(x, y, _math(label), 10)

    def rounded(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        look: dict[str, Any] = {"ec": INK, "lw": 1.1, "zorder": 7}
        look["boxstyle"] = "round,pad=0,rounding_size=0.09"
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, fc=colour, **look))

    def write(self, x: float, y: float, text: str, size: int, **options: Any) -> None:
        usual = {"ha": "center", "va": "center", "zorder": 8}
        self.axes.text(x, y, text, fontsize=size, **{**usual, **options})


def _box_width(box: Box) -> float:
    if box.kind == "function":
        return max(0.8, 0.13 * _length(box.label) + 0.3)
    return 0.8 if box.kind in ("norm", "unit") else 1.0


def _length(label: str) -> int:
    """About how many characters a formula shows: a command shows one, a brace none."""
    return len(re.sub(r"[{}_^ !]", "", re.sub(r"\\[A-Za-z]*", "c", label)))


def _math(label: str) -> str:
    """Matplotlib's own TeX knows no small fractions."""
    return f"${label.replace('tfrac', 'frac')}$"
