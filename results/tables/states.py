"""How far the studies are: the list of all of them, and what the pages say of those to come."""

from __future__ import annotations

from pathlib import Path

from results.tables.archives import markdown, progress, study
from results.tables.arms import seeds_table
from results.tables.confirmation import arms_table, setting, shown, tally
from results.tables.inside import traced

# What the first page shows of the screening, until the confirmation is there: few rows, as its
# first two screens are full.
LEADS = (
    "gd-lie-trotter",
    "gd-table",
    "gd, second embedding injected",
    "nesterov-lie-trotter",
    "nesterov-lie-trotter, MLP first, no table",
    "polyak-lie-trotter",
    "one-drift, no lookahead",
)


STUDIES = (
    "rates",
    "screening",
    "screening-adamw",
    "ideas",
    "confirmation",
    "ladder",
    "upcycling-start",
    "upcycling",
)


def studies_table() -> str:
    """A row for each study's file: its title, how many of its runs the archive has, and of how many
    the model was traced."""
    rows = []
    for name in STUDIES:
        there = progress(name)
        runs = f"all {there.runs}" if there.complete else f"{there.runs} of {there.of_runs}"
        rows.append([f"`{name}.toml`", study(name).title, runs, str(traced(name) or "")])
    return markdown(["study", "what it asks", "runs archived", "traced"], rows, words=2)


def states(*names: str) -> str:
    """A line for each of these studies."""
    lines = [f"- [{name.capitalize()}](#{name}): {progress(name)}" for name in names]
    return "\n".join(lines)


def first_page(name: str | Path = "confirmation") -> str:
    """The README's table: of the confirmation once it is complete, before that of the screening."""
    there = progress(name)
    if there.complete:
        return (
            f"{setting(name)} Nothing was chosen on these seeds. Differences are to gradient "
            "descent, paired by seed, with their 95 % intervals.\n\n"
            f"{shown('docs/images')}\n\n{arms_table(name, short=True)}\n\n{tally(name)}"
        )
    return (
        f"{study('screening').settings['steps']} steps, **two seeds: leads, not findings**.\n\n"
        f"{seeds_table('screening', LEADS)}\n\n"
        f"A confirmation with {there.of_seeds} new seeds is to test them. {there}"
    )
