"""All subjects, in the order of the table: importing a module registers its own."""

# ruff: noqa: I001  the order is the table's
from __future__ import annotations

from contextlib import nullcontext

from benchmarks import waits, training_step, loss, generation, evaluation  # noqa: F401
from benchmarks import interpreter, muon, data, plan_memory  # noqa: F401
from benchmarks.measuring import SUBJECTS, MissingError, Rounds, threads


def rounds_of(name: str, quick: bool) -> Rounds | str:
    """A subject's rounds, or what it misses here."""
    try:
        # Small sizes: threads would only wait for each other.
        with threads(1) if quick else nullcontext():
            return SUBJECTS[name].measure(quick=quick)
    except MissingError as missing:
        return str(missing)
