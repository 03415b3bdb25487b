"""A block's diagram as SVG, drawn without matplotlib: for pages that follow the reader's colours.

Lines are of the page's own text colour; a page sets the rest by the properties ``--diagram-paper``,
``--diagram-v`` and ``--diagram-other``. Where nothing is set they are white and the usual colours.
"""

from __future__ import annotations

import html
from typing import Any

from yuriiformer.display.colours import INK
from yuriiformer.methods.drawing.layout import lay_out
from yuriiformer.methods.drawing.markup import svg_text
from yuriiformer.methods.drawing.painter import OTHER_STREAM, STREAM_COLOURS, Painter, paint
from yuriiformer.methods.rule import Rule

SCALE = 52.0  # of a row, so that sizes of letters are those of the printed diagrams
HEAD, HALF = 7.0, 3.0  # of an arrow
COLOURS = {
    INK: "currentColor",
    "white": "var(--diagram-paper, #fff)",
    STREAM_COLOURS["V"]: f"var(--diagram-v, {STREAM_COLOURS['V']})",
    OTHER_STREAM: f"var(--diagram-other, {OTHER_STREAM})",
}


def svg_diagram(rule: Rule) -> str:
    """The diagram as an SVG element."""
    diagram, canvas = lay_out(rule), _Canvas()
    painter = Painter(diagram, canvas)
    paint(diagram, painter)
    left, top = -0.75 * SCALE, -0.45 * SCALE
    width, height = painter.right * SCALE - left, (diagram.rows + 0.1) * SCALE - top
    parts = "".join(part for _, part in sorted(canvas.parts, key=lambda part: part[0]))
    label = html.escape(f"Block diagram of {rule.label}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" role="img" aria-label="{label}" '
        f'viewBox="{left:.5g} {top:.5g} {width:.5g} {height:.5g}" width="{width:.5g}" '
        f'height="{height:.5g}" font-family="STIX Two Text, Cambria, Times New Roman, serif">'
        f"{parts}</svg>"
    )


class _Canvas:
    """Collects elements with their layers (see `painter.Canvas`)."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, str]] = []

    def add(self, layer: int, tag: str, attributes: dict[str, Any], inside: str = "") -> None:
        shown = " ".join(
            f'{name.replace("_", "-")}="{_number(value)}"' for name, value in attributes.items()
        )
        self.parts.append((layer, f"<{tag} {shown}>{inside}</{tag}>"))

    def line(self, xs: list[float], ys: list[float], colour: str, width: float, layer: int) -> None:
        points = [SCALE * each for each in (xs[0], ys[0], xs[1], ys[1])]
        ends = dict(zip(("x1", "y1", "x2", "y2"), points, strict=True))
        self.add(layer, "line", {"stroke": COLOURS[colour], "stroke_width": width, **ends})

    def tip(self, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        (x, y), along = end, (end[0] > start[0]) - (end[0] < start[0])
        down = (end[1] > start[1]) - (end[1] < start[1])
        back = (x - along * HEAD / SCALE, y - down * HEAD / SCALE)
        self.line([start[0], back[0]], [start[1], back[1]], colour, 1.4, 4)
        corners = [
            (x * SCALE, y * SCALE),
            (back[0] * SCALE + down * HALF, back[1] * SCALE + along * HALF),
            (back[0] * SCALE - down * HALF, back[1] * SCALE - along * HALF),
        ]
        points = " ".join(f"{a:.5g},{b:.5g}" for a, b in corners)
        self.add(4, "polygon", {"points": points, "fill": COLOURS[colour]})

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        place = {"cx": x * SCALE, "cy": y * SCALE, "r": radius * SCALE}
        self.add(5, "circle", {**place, "fill": COLOURS[colour]})

    def ring(self, x: float, y: float, radius: float) -> None:
        look = {"fill": COLOURS["white"], "stroke": "currentColor", "stroke_width": 1.3}
        self.add(8, "circle", {"cx": x * SCALE, "cy": y * SCALE, "r": radius * SCALE, **look})

    def rounded(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        place = {"x": x, "y": y, "width": width, "height": height, "rx": 0.09}
        look: dict[str, Any] = {
            "fill": COLOURS.get(colour, colour),
            "stroke": "currentColor",
            "stroke_width": 1.1,
        }
        self.add(7, "rect", {name: SCALE * each for name, each in place.items()} | look)
        self.on_paper = colour == "white"

    def write(
        self,
        x: float,
        y: float,
        text: str,
        size: int,
        *,
        colour: str | None = None,
        left: bool = False,
        above: bool = False,
    ) -> None:
        inside = svg_text(text[1:-1]) if text.startswith("$") else html.escape(text)
        place = {"x": x * SCALE, "y": y * SCALE + (-2.0 if above else 0.33 * size)}
        # What has no colour stands in a box; one with a fill of its own has black letters.
        box = "currentColor" if self.on_paper else "#000"
        look: dict[str, Any] = {"font_size": size, "fill": COLOURS[colour] if colour else box}
        look["text_anchor"] = "start" if left else "middle"
        if above:  # a light edge keeps it readable across lines
            look |= {"stroke": COLOURS["white"], "stroke_width": 3, "paint_order": "stroke"}
        self.add(7 if above else 8, "text", {**place, **look}, inside)

    on_paper = False


def _number(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
