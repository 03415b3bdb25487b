"""What was measured inside the models of a study, as far as its runs were traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from results.inside import by_arm, inside_file, read_inside
from results.tables.archives import STUDY, markdown, study

Traced = Mapping[str, Any]


def _turning(run: Traced) -> float:
    """Over the blocks that have one before them."""
    return float(np.mean([each for each in run["turning"] if each is not None]))


QUANTITIES: dict[str, tuple[Callable[[Traced], float], str]] = {
    "straightness": (lambda run: run["straightness"], ".2f"),
    "turning, degrees": (_turning, ".0f"),
    "effective depth": (lambda run: run["effective_depth"], ".1f"),
    "norm of X at the end": (lambda run: run["norms"]["X"][-1], ".0f"),
}


def traced(name: str | Path) -> int:
    """How many runs."""
    there = inside_file(STUDY / name).is_file()
    return len(read_inside(STUDY / name)["runs"]) if there else 0


def inside_table(name: str | Path) -> str:
    """A row for each traced arm, in the study's order: means over seeds, and in brackets the lowest
    and the highest seed."""
    if not traced(name):
        return "No run has been traced yet."
    arms = by_arm(read_inside(STUDY / name))
    rows = []
    for label in (arm.label for arm in study(name).arms if arm.label in arms):
        row = [label, str(len(arms[label]))]
        for measured, form in QUANTITIES.values():
            values = [measured(run) for run in arms[label]]
            spread = f" ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""
            row.append(f"{np.mean(values):{form}}{spread}")
        rows.append(row)
    return markdown(["arm", "seeds", *QUANTITIES], rows)
