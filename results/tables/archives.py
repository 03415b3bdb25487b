"""What the tables read: the archives of the studies, their exact losses, and how much is there.

A study is named by its archive under `STUDY`; a folder elsewhere does as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from yuriiformer.comparison.archive import Entry, SuiteRecord, is_archive, read_archive
from yuriiformer.comparison.study import Study, read_study

STUDY = Path(__file__).parents[1] / "tinystories-cpu"


@cache
def archive(name: str | Path) -> SuiteRecord:
    return read_archive(STUDY / name)


def study(name: str | Path) -> Study:
    """As its file has it, run or not."""
    return read_study((STUDY / name).with_suffix(".toml"))


def losses(name: str | Path) -> dict[str, dict[int, float]]:
    """Exact validation loss by arm and seed; a run that diverged has none."""
    found: dict[str, dict[int, float]] = {}
    for entry in archive(name).entries:
        arm = found.setdefault(entry.label, {})
        if entry.run is not None and entry.run.exact is not None:
            arm[entry.seed] = entry.run.exact
    return found


@dataclass(frozen=True)
class Progress:
    """How many runs of a study have ended, and how many seeds in every arm; a run that failed or
    diverged has ended too. Before the baseline has a run there is nothing to compare with."""

    begun: bool
    runs: int
    of_runs: int
    seeds: int
    of_seeds: int

    @property
    def complete(self) -> bool:
        return self.runs == self.of_runs

    def __str__(self) -> str:
        if not self.runs:
            return "It has not been run yet."
        if self.complete:
            return f"All {self.of_runs} runs have ended."
        return (
            f"It is under way: {self.seeds} of {self.of_seeds} seeds so far "
            f"({self.runs} of {self.of_runs} runs). Nothing is judged before all have ended."
        )


def progress(name: str | Path) -> Progress:
    planned = study(name)
    wanted = {(arm.label, seed) for arm in planned.arms for seed in planned.seeds}
    ended: set[tuple[str, int]] = set()
    if is_archive(STUDY / name):
        ended = {(each.label, each.seed) for each in archive(name).entries if _ended(each)}
    missing = {seed for _, seed in wanted - ended}
    begun = any(label == planned.baseline for label, _ in ended)
    seeds = len(planned.seeds)
    return Progress(begun, len(wanted & ended), len(wanted), seeds - len(missing), seeds)


def _ended(entry: Entry) -> bool:
    if entry.run is None:
        return entry.missing.startswith("failed")
    return entry.run.status != "unfinished"


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """The first columns are words, the others are numbers."""
    rule = ["---"] * words + ["---:"] * (len(heads) - words)
    return "\n".join("| " + " | ".join(line) + " |" for line in [heads, rule, *rows])
