"""Figures on the disk: one is drawn again only if its numbers or its file have changed.

``made.json`` beside the figures says from what each was drawn (a digest) and the SHA-256 of each of
its files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from yuriiformer import __version__
from yuriiformer.comparison.outcomes import Arm, Comparison
from yuriiformer.display.figures import is_empty, save_figure
from yuriiformer.files import read_json, sha256, sha256_of_json, write_json
from yuriiformer.reading import Each, problem_of

MADE = "made.json"
FORM = Each({"from": str, "files": Each(str)})
DPI = 200
# Where the code that draws stands: another version of it may draw another figure.
DRAWN_BY = """report/figures.py report/figures_coefficients.py report/figures_scaling.py
    report/scaling.py report/curves.py report/kept.py
    display/figures.py display/curves.py methods/drawing/equations.py""".split()


@dataclass(frozen=True)
class Drawing:
    """A figure to draw: its name, how, and a digest of all that it shows."""

    name: str
    draw: Callable[[], Figure]
    digest: str


def write_drawings(drawings: Sequence[Drawing], folder: Path, formats: Sequence[str]) -> list[Path]:
    """The files of all drawings that have something to show, drawn where they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    known = read_json(folder / MADE)
    known = {} if problem_of(known, FORM) else known
    code = _code()
    written: list[Path] = []
    for each in drawings:
        source = sha256_of_json([code, each.digest])
        before = known.get(each.name, {"from": "", "files": {}})
        same = before["from"] == source
        files = dict(before["files"]) if same else {}
        empty = same and not files  # it had nothing to show
        wanted = {kind: folder / f"{each.name}.{kind}" for kind in formats}
        missing = [kind for kind, path in wanted.items() if not _stands(path, files.get(kind))]
        if missing and not empty:
            figure = each.draw()
            empty = is_empty(figure)
            for kind in [] if empty else missing:
                files[kind] = sha256(save_figure(figure, wanted[kind], dpi=DPI))
            known[each.name] = {"from": source, "files": files}
            write_json(folder / MADE, known)  # now: what is drawn is kept if this is interrupted
        written += [] if empty else wanted.values()
    return written


def _stands(path: Path, digest: str | None) -> bool:
    """Whether a file is there as it was written."""
    return digest is not None and path.is_file() and sha256(path) == digest


def _code() -> str:
    """What draws: the versions, and the files of this package."""
    home = Path(__file__).parents[1]
    digests = [sha256(home / name) for name in DRAWN_BY]
    return sha256_of_json([__version__, mpl.__version__, np.__version__, *digests])


def comparison_digest(comparison: Comparison) -> str:
    """A digest of all that the figures of a comparison show."""
    about = [comparison.name, comparison.baseline.slug, comparison.preset, comparison.metric]
    ranked = [[each.arm.slug, asdict(comparison.primary(each))] for each in comparison.ranked()]
    return sha256_of_json([about, ranked, [arm_digest(arm) for arm in comparison.arms]])


def arm_digest(arm: Arm) -> str:
    """A digest of an arm's label, rule and settings, and of every number that its runs recorded."""
    told: list[Any] = [arm.label, arm.slug, arm.differs]
    for run in arm.runs:
        curves = run.curves
        columns = (curves.step, curves.loss, curves.seconds, curves.val_step, curves.val_loss)
        numbers = hashlib.sha256()
        for column in columns:
            numbers.update(len(column).to_bytes(8, "little") + column.tobytes())
        named = [[step, {**values}] for step, values in curves.coefficients]
        told.append([run.config.to_dict(), run.status, run.saved.get("plan"), named])
        told.append([numbers.hexdigest(), curves.exact, curves.texts])
    return sha256_of_json(told)
