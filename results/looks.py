"""How arms look in the figures of the studies."""

from __future__ import annotations

from yuriiformer.display.curves import BASELINE_COLOUR, COLOURS
from yuriiformer.methods.rule import Rule

GROUPS = {True: ("with momentum", COLOURS[3]), False: ("without momentum", BASELINE_COLOUR)}


def colour_of(rule: Rule) -> str:
    return GROUPS[rule.uses_velocity][1]


def has_table(rule: Rule) -> bool:
    """Whether a stream beside X begins with a table of its own."""
    return any(start == "tables" for name, start in rule.streams.items() if name != "X")
