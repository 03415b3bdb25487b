"""A report as one HTML file that needs no network: scripts, styles and data are inside it."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from yuriiformer.display.curves import palette
from yuriiformer.files import write_text

# The browser refuses every network address, whatever the data contain.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)

POOLED_FROM = 16


@dataclass(frozen=True)
class Page:
    """A kind of page: the package that holds its assets, and their order. Assets that all pages
    share come first."""

    room: str
    body: str
    styles: tuple[str, ...]
    scripts: tuple[str, ...]


# Shared by all pages.
CHARTS = ("uPlot.iife.min.js", "dom.js", "numbers.js", "chart.js", "intervals.js")
LOOKS = ("uPlot.min.css", "base.css")


def write_page(page: Page, payload: Mapping[str, Any], path: Path) -> None:
    write_text(path, page_html(page, payload))


def page_html(page: Page, payload: Mapping[str, Any]) -> str:
    """The whole page; the same payload gives the same text."""
    parts = {
        "policy": html.escape(POLICY),
        "title": html.escape(str(payload.get("title", "")), quote=False),
        "licences": f"uPlot:\n\n{_asset('uPlot.LICENSE').strip()}",
        "styles": "\n".join(
            f"<style>\n{text}\n</style>" for text in _all(page, LOOKS, page.styles)
        ),
        "body": _asset(page.body, page.room).rstrip(),
        "data": data_json({"palette": palette(), "payload": payload}),
        "scripts": "\n".join(
            f"<script>\n{text}\n</script>" for text in _all(page, CHARTS, page.scripts)
        ),
    }
    # One pass: a placeholder's name inside the data is not replaced.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))


def data_json(data: Mapping[str, Any]) -> str:
    """JSON in which no text can close a script element or open another."""
    pool: dict[tuple[int, ...], int] = {}
    small = pooled(data, pool)
    whole = {**small, "pool": [list(numbers) for numbers in pool]}
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False)
    return text.replace("<", r"\u003c")


def for_json(value: Any, digits: int | None = None) -> Any:
    """Data for JSON, which has no NaN and no infinity: they become null. With ``digits``, numbers
    are rounded to that many significant digits."""
    if isinstance(value, dict):
        return {key: for_json(each, digits) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [for_json(each, digits) for each in value]
    if isinstance(value, float | np.floating):
        rounded = float(value if digits is None else f"{value:.{digits}g}")
        return rounded if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def pooled(data: Any, pool: dict[tuple[int, ...], int]) -> Any:
    """The data with each long list of whole numbers replaced by its index in the pool.

    All runs are measured at the same steps; storing the steps once halves the size of a page.
    """
    if isinstance(data, Mapping):
        return {key: pooled(value, pool) for key, value in data.items()}
    if not isinstance(data, list | tuple):
        return data
    if len(data) < POOLED_FROM or not all(type(value) is int for value in data):
        return [value if type(value) is float else pooled(value, pool) for value in data]
    return {"@list": pool.setdefault(tuple(data), len(pool))}


def _all(page: Page, shared: Sequence[str], own: Sequence[str]) -> list[str]:
    return [*(_asset(name) for name in shared), *(_asset(name, page.room) for name in own)]


def _asset(name: str, room: str = "display") -> str:
    return (files(f"yuriiformer.{room}") / "assets" / name).read_text(encoding="utf-8")
