"""Plain columns of text for a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def display_width(text: str) -> int:
    """Columns of a terminal that a text takes."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """A line per row: the first ``left`` columns are text, the others numbers."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for number, (text, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - display_width(text))
            cells.append(text + space if number < left else space + text)
        lines.append("  ".join(cells).rstrip())
    return lines


def printable(text: str) -> str:
    """Without line breaks and characters that steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
