"""The look of each line, in the pages and in the figures alike."""

from __future__ import annotations

from typing import Any

# The baseline; a page draws it in the colour of its text instead, so that it also shows on dark.
BASELINE_COLOUR = "#222222"
# Okabe and Ito's, told apart by colour-blind readers, without the yellow that vanishes on white.
COLOURS = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#8C8C8C")
# On and off in widths of the line, as matplotlib counts them: solid, dashed, dotted, dash-dot.
DASHES: tuple[tuple[float, ...] | None, ...] = (
    None,
    (3.7, 1.6),
    (1.0, 1.65),
    (6.4, 1.6, 1.0, 1.6),
)


def line_style(style: int) -> tuple[str, tuple[float, ...] | None]:
    """Colour and dash of an arm: 0 is the baseline, others take each colour before a new dash."""
    if style == 0:
        return BASELINE_COLOUR, None
    row, column = divmod(style - 1, len(COLOURS))
    return COLOURS[column], DASHES[row % len(DASHES)]


def palette() -> dict[str, Any]:
    """The same for a page's script."""
    return {"colours": list(COLOURS), "dashes": [list(dash or ()) for dash in DASHES]}
