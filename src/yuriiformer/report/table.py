"""A table of results: columns, rows of cells, footnotes; how it is printed is elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NONE = "–"  # a number that does not exist


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    help: str
    numeric: bool = True
    lower_is_better: bool | None = None
    drop: int = 0  # where a terminal is narrow, columns go from the highest number down; 0 stays


@dataclass(frozen=True)
class Cell:
    """``value`` is what a table is sorted by."""

    text: str
    value: float | str | None = None
    bold: bool = False
    help: str = ""

    @property
    def empty(self) -> bool:
        return self.text in ("", NONE)


@dataclass(frozen=True)
class Row:
    arm_slug: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class ResultTable:
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...] = ()

    def column(self, key: str) -> Column:
        return next(each for each in self.columns if each.key == key)

    def to_payload(self) -> dict[str, Any]:
        """As plain data for a page."""
        columns = [
            {
                "key": each.key,
                "title": each.title,
                "help": each.help,
                "numeric": each.numeric,
                "lower_is_better": each.lower_is_better,
            }
            for each in self.columns
        ]
        rows = [
            {
                "arm": row.arm_slug or None,
                "cells": {key: _plain(cell) for key, cell in row.cells.items()},
            }
            for row in self.rows
        ]
        return {"columns": columns, "rows": rows}


def _plain(cell: Cell) -> dict[str, Any]:
    found: dict[str, Any] = {"text": cell.text, "value": cell.value}
    if cell.bold:
        found["bold"] = True
    if cell.help:
        found["help"] = cell.help
    return found
