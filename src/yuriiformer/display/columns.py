"""Plain columns of text for a terminal."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence


def display_width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def aligned(
    rows: Sequence[Sequence[str]],
    left: int | Sequence[bool] = 1,
    *,
    ruled: bool = False,
    width: int | None = None,
) -> list[str]:
    """A line per row, two spaces between columns.

    Args:
        left: how many of the first columns are text, or which are; the others hold numbers.
        ruled: draw a line below the first row.
        width: of the terminal; the text of the last column is wrapped to fit it.
    """
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        room = max(24, width - sum(widths[:-1]) - 2 * len(widths[:-1]))
        rows = [part for row in rows for part in _wrapped_row(row, room)]
        widths[-1] = max(display_width(row[-1]) for row in rows)
    texts = [n < left for n in range(len(widths))] if isinstance(left, int) else left
    lines = []
    for row in rows:
        cells = []
        for text, size, is_text in zip(row, widths, texts, strict=True):
            space = " " * (size - display_width(text))
            cells.append(text + space if is_text else space + text)
        lines.append("  ".join(cells).rstrip())
    if ruled:
        lines.insert(1, "─" * max(map(display_width, lines)))
    return lines


def _wrapped_row(row: Sequence[str], width: int) -> list[list[str]]:
    first, *more = wrapped(row[-1], width)
    return [[*row[:-1], first], *([""] * (len(row) - 1) + [line] for line in more)]


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most that width, unless a word alone is longer."""
    lines = [""]
    for word in text.split():
        if lines[-1] and display_width(lines[-1]) + 1 + display_width(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def shortened(text: str, width: int) -> str:
    """Cut to a width, with an ellipsis at its end."""
    if display_width(text) <= width:
        return text
    while display_width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def printable(text: str) -> str:
    """Without line breaks and characters that steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def in_units(value: float, form: str = "{:g}", units: str = "kMBTPE", gap: str = "") -> str:
    """``5k`` or ``38.6 M``: in the largest of the units, which grow by a factor of 1000."""
    for power in range(len(units), 0, -1):
        if abs(value) >= 1000**power:
            return f"{form.format(value / 1000**power)}{gap}{units[power - 1]}"
    return f"{value:g}"


def duration(seconds: float) -> str:
    """``3:07`` or ``5 h 12 min``."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours / 24:.1f} days"
