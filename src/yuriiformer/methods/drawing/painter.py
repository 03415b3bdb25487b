"""Paints a block's layout with lines, boxes and letters, on any canvas.

`diagram` has the canvas of matplotlib (for files), `svg` one that needs no library (for pages).
"""

from __future__ import annotations

import re
from typing import Any, Protocol

from yuriiformer.display.colours import INK
from yuriiformer.methods.drawing.layout import Arrow, Box, Diagram, Mark, oracle_of

SPACING = 1.35  # between lanes
RADIUS = 0.14  # of a ⊕
STREAM_COLOURS = {"X": INK, "V": "#0072B2"}  # Okabe and Ito's palette: safe for all eyes
OTHER_STREAM = "#AA5A88"
FILL = {
    "attn": "#F6C98F",
    "mlp": "#9FD9C2",
    "norm": "#C9DDF2",
    "unit": "#E6E6E6",
    "function": "#F3EBC6",
}


class Canvas(Protocol):
    """Coordinates run right and down. ``layer``: what is higher covers what is lower. A text in
    dollar signs is LaTeX."""

    def line(
        self, xs: list[float], ys: list[float], colour: str, width: float, layer: int
    ) -> None: ...
    def tip(self, start: tuple[float, float], end: tuple[float, float], colour: str) -> None: ...
    def dot(self, x: float, y: float, radius: float, colour: str) -> None: ...
    def ring(self, x: float, y: float, radius: float) -> None: ...
    def rounded(self, x: float, y: float, width: float, height: float, colour: str) -> None: ...
    def write(self, x: float, y: float, text: str, size: int, **options: Any) -> None: ...


def paint(diagram: Diagram, painter: Painter) -> None:
    for wire in diagram.wires:
        painter.wire(wire.lane, wire.top, wire.bottom)
    for arrow in diagram.arrows:
        painter.arrow(arrow)
    for box in diagram.boxes:
        painter.box(box)
    for mark in diagram.marks:
        painter.mark(mark)


class Painter:
    """Knows where lanes stand, and (with a canvas) draws on them."""

    def __init__(self, diagram: Diagram, canvas: Any = None) -> None:
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
        self.canvas: Canvas = canvas

    @property
    def middle(self) -> float:
        return 0.5 * (self.x["X"] + max(self.x.values()))

    def width(self, lane: str) -> float:
        """How wide the widest box of a lane is."""
        return max((_box_width(box) for box in self.boxes if box.lane == lane), default=0.0)

    def colour(self, lane: str) -> str:
        if oracle_of(lane) or lane.startswith("op#"):
            return INK
        return STREAM_COLOURS.get(lane, OTHER_STREAM)

    def wire(self, lane: str, top: float, bottom: float) -> None:
        x = self.x[lane]
        self.canvas.line([x, x], [top, bottom], self.colour(lane), 1.8, 2)

    def arrow(self, arrow: Arrow) -> None:
        start, end, y = self.x[arrow.source], self.x[arrow.target], arrow.row
        right = 1.0 if end > start else -1.0
        colour = self.colour(arrow.source)
        stop = end if arrow.turns else end - right * RADIUS
        for box in self.boxes:
            if box.lane == arrow.target and box.row <= y <= box.row + box.height:
                stop = end - right * 0.5 * _box_width(box)
        # A white edge lets the arrow bridge the wires it crosses.
        self.canvas.line([start + right * 0.12, stop - right * 0.12], [y, y], "white", 5, 3)
        if arrow.turns:
            self.canvas.line([start, stop], [y, y], colour, 1.4, 4)
        else:
            self.canvas.tip((start, y), (stop, y), colour)
        if any(w.lane == arrow.source and w.top <= y < w.bottom - 0.01 for w in self.wires):
            self.canvas.dot(start, y, 0.05, colour)  # it branches
        near = end - right * (0.38 + 0.055 * _length(arrow.label))
        if arrow.via:
            self.small_box(end - right * 0.58, y, arrow.via, FILL["unit"])
            near -= right * 0.58
        if arrow.label:
            self.canvas.write(near, y - 0.09, _math(arrow.label), 11, colour=INK, above=True)

    def box(self, box: Box) -> None:
        x, width = self.x[box.lane], _box_width(box)
        self.canvas.rounded(x - 0.5 * width, box.row, width, box.height, FILL[box.kind])
        if box.kind in ("attn", "mlp"):
            self.canvas.tip((x, box.row - 0.3), (x, box.row), INK)
            self.canvas.rounded(x - 0.5 * width, box.row, width, 0.42, FILL["unit"])
            self.canvas.write(x, box.row + 0.22, "LN", 9)
            self.canvas.write(x, box.row + 0.8, box.label, 12)
        else:
            self.canvas.write(x, box.row + 0.5 * box.height, _math(box.label), 11)

    def mark(self, mark: Mark) -> None:
        x = self.x[mark.lane]
        if mark.kind == "plus":
            self.canvas.ring(x, mark.row, RADIUS)
            reach = 0.6 * RADIUS
            self.canvas.line([x - reach, x + reach], [mark.row] * 2, INK, 1.3, 9)
            self.canvas.line([x] * 2, [mark.row - reach, mark.row + reach], INK, 1.3, 9)
        elif mark.kind == "gain":
            self.small_box(x, mark.row, mark.label, "white")
        elif mark.kind == "tag":
            colour = self.colour(mark.lane)
            self.canvas.write(x + 0.1, mark.row, _math(mark.label), 10, left=True, colour=colour)
        else:
            self.canvas.write(x, mark.row, _math(mark.label), 15, colour=self.colour(mark.lane))

    def small_box(self, x: float, y: float, label: str, colour: str) -> None:
        width = 0.34 + 0.085 * max(0, _length(label) - 2)
        self.canvas.rounded(x - 0.5 * width, y - 0.19, width, 0.38, colour)
        self.canvas.write(x, y, _math(label), 10)


def _box_width(box: Box) -> float:
    if box.kind == "function":
        return max(0.8, 0.13 * _length(box.label) + 0.3)
    return 0.8 if box.kind in ("norm", "unit") else 1.0


def _length(label: str) -> int:
    """About how many characters a formula shows: a command shows one, a brace none."""
    return len(re.sub(r"[{}_^ !]", "", re.sub(r"\\[A-Za-z]*", "c", label)))


def _math(label: str) -> str:
    return f"${label}$"
