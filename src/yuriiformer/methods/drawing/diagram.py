"""Draws a block: streams run down, oracles and LN_v are boxes, lookaheads and sums are ⊕."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch

from yuriiformer.display.colours import INK
from yuriiformer.display.figures import save_figure
from yuriiformer.errors import YuriiError
from yuriiformer.methods.drawing.layout import Diagram, lay_out
from yuriiformer.methods.drawing.painter import Painter, paint
from yuriiformer.methods.rule import Rule

MOST_PIXELS = 20_000  # of a side


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
    sizes = [Painter(diagram).size for diagram in diagrams]
    width, height = sum(each[0] for each in sizes), max(each[1] for each in sizes)
    figure = Figure(figsize=(width, height))
    left = 0.0
    for diagram, (own, tall) in zip(diagrams, sizes, strict=True):
        place = (left / width, 1.0 - tall / height, own / width, tall / height)
        axes = figure.add_axes(place)
        painter = Painter(diagram, _Axes(axes))
        _prepare(axes, diagram, painter)
        paint(diagram, painter)
        left += own
    return figure


def _prepare(axes: Any, diagram: Diagram, painter: Painter) -> None:
    """Limits and title."""
    axes.set_xlim(-0.9, painter.right)
    axes.set_ylim(diagram.rows + 0.1, -0.75)
    axes.set_aspect("equal")
    axes.axis("off")
    title = diagram.title.replace("$", r"\$").replace("LN_v", r"$\mathrm{LN}_v$")
    axes.text(painter.middle, -0.55, title, ha="center", fontsize=12, color=INK)


class _Axes:
    """The canvas of matplotlib (see `painter.Canvas`)."""

    def __init__(self, axes: Any) -> None:
        self.axes = axes

    def line(self, xs: list[float], ys: list[float], colour: str, width: float, layer: int) -> None:
        self.axes.plot(xs, ys, color=colour, lw=width, zorder=layer)

    def tip(self, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        style = {"arrowstyle": "-|>", "color": colour, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
        self.axes.annotate("", end, start, zorder=4, arrowprops=style)

    def dot(self, x: float, y: float, radius: float, colour: str) -> None:
        self.axes.add_patch(Circle((x, y), radius, color=colour, zorder=5))

    def ring(self, x: float, y: float, radius: float) -> None:
        self.axes.add_patch(Circle((x, y), radius, fc="white", ec=INK, lw=1.3, zorder=8))

    def rounded(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        look: dict[str, Any] = {"ec": INK, "lw": 1.1, "zorder": 7}
        look["boxstyle"] = "round,pad=0,rounding_size=0.09"
        self.axes.add_patch(FancyBboxPatch((x, y), width, height, fc=colour, **look))

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
        look: dict[str, Any] = {"ha": "left" if left else "center", "va": "center", "zorder": 8}
        if above:
            look |= {"va": "bottom", "zorder": 7, "bbox": {"fc": "white", "ec": "none", "pad": 0.3}}
        if colour is not None:
            look["color"] = colour
        # Matplotlib's own TeX knows no small fractions.
        self.axes.text(x, y, text.replace("tfrac", "frac"), fontsize=size, **look)
