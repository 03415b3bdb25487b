"""What the tables read: the archives of the studies, and their exact losses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from yuriiformer.comparison.archive import SuiteRecord, read_archive

STUDY = Path(__file__).parents[1] / "tinystories-cpu"


@cache
def archive(name: str) -> SuiteRecord:
    return read_archive(STUDY / name)


def losses(name: str) -> dict[str, dict[int, float]]:
    """Exact validation loss by arm and seed; a run that diverged has none."""
    found: dict[str, dict[int, float]] = {}
    for entry in archive(name).entries:
        arm = found.setdefault(entry.label, {})
        if entry.run is not None and entry.run.exact is not None:
            arm[entry.seed] = entry.run.exact
    return found


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
