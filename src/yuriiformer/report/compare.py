"""Runs compared from Python, as ``yurii report`` compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.errors import RunError
from yuriiformer.report.cells import ResultTable
from yuriiformer.report.headline import headline
from yuriiformer.report.results import result_table
from yuriiformer.report.tables import markdown, terminal_table


@dataclass(frozen=True)
class Compared:
    """Arms over their seeds, beside a baseline. ``print`` shows the table; ``comparison.outcomes``
    has the numbers."""

    comparison: Comparison

    @cached_property
    def table(self) -> ResultTable:
        return result_table(self.comparison)

    def __str__(self) -> str:
        return "\n".join([terminal_table(self.table), *headline(self.comparison)])

    def _repr_markdown_(self) -> str:  # as a notebook shows it
        return markdown(self.table)


def compare(paths: str | Path | Sequence[str | Path], *, baseline: str | None = None) -> Compared:
    """Compare runs: suites, archives, single runs, or folders that hold some.

    Args:
        paths: one or several folders.
        baseline: the arm that others are compared with, by its label or rule; gradient descent if
            not given, or the first.
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    found = collect([Path(path) for path in given], baseline)
    if len(found) > 1:
        names = ", ".join(each.name or "single runs" for each in found)
        raise RunError(f"these are several comparisons ({names}): give their folders one at a time")
    return Compared(found[0])
