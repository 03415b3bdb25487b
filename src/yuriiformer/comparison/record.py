"""The results of a suite: its definition and its runs, from a folder or an archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yuriiformer.comparison.archived_run import read_packed
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.hypotheses import StudyRecord
from yuriiformer.runs.run import Run, read_run


@dataclass(frozen=True)
class Entry:
    """A run of the suite; ``missing`` is the reason if there is none yet."""

    label: str
    slug: str
    seed: int
    run: Run | None
    missing: str = ""

    @property
    def name(self) -> str:
        return f"{self.slug}/seed-{self.seed}"


@dataclass(frozen=True)
class SuiteRecord:
    """``definition`` is what ``suite.json`` holds."""

    folder: Path
    definition: Mapping[str, Any]
    entries: Sequence[Entry]

    @property
    def study(self) -> StudyRecord | None:
        saved = self.definition.get("study")
        return None if saved is None else StudyRecord(saved["definition"], saved["history"])


def read_suite(suite: SuiteFolder) -> SuiteRecord:
    """From its folder."""
    definition, failures = suite.read(), suite.failures()
    entries = []
    for spec in suite.runs():
        failure = failures.get(spec.name)
        if spec.folder.exists:
            run = read_run(spec.folder.path, failure)
            entries.append(Entry(spec.label, spec.slug, spec.seed, run))
        elif spec.archived.exists():
            run = read_packed(spec.archived)
            entries.append(Entry(spec.label, spec.slug, spec.seed, run))
        else:
            missing = f"failed before its first step: {failure}" if failure else "has not begun"
            entries.append(Entry(spec.label, spec.slug, spec.seed, None, missing))
    return SuiteRecord(suite.path, definition, entries)
