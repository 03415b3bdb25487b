"""``yurii presets``: the ready-made configurations, side by side."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from yuriiformer.cli.parsing import parse_flags
from yuriiformer.methods.catalog import BASELINE
from yuriiformer.training.presets import PRESETS

# The data's, the rule's own, or the same everywhere and rarely asked for.
LEFT_OUT = ("rule", "vocab_size", "valid_vocab")


@dataclass(frozen=True)
class Flags:
    """List the presets: each is a complete configuration of a run, of which a flag or a file
    changes any field (yurii train --preset NAME, --config FILE). The vocabulary is the data's."""

    all: bool = False
    """Also the fields that are the same in every preset."""
    json: bool = False
    """Print JSON: every field of every preset."""


def run(arguments: list[str]) -> None:
    flags = parse_flags("yurii presets", Flags(), arguments)
    found = {name: _fields(name) for name in PRESETS}
    if flags.json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    table = Table("field", *found)
    for field in next(iter(found.values())):
        values = [each[field] for each in found.values()]
        if flags.all or any(value != values[0] for value in values):
            table.add_row(field, *map(_text, values))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for name, make in PRESETS.items():
        console.print(f"{name}: {make.__doc__}", highlight=False)


def _fields(name: str) -> dict[str, object]:
    config = PRESETS[name](BASELINE)
    values = {key: value for part in config.to_dict().values() for key, value in part.items()}
    values["warmup"] = config.recipe.warmup_steps
    return {key: value for key, value in values.items() if key not in LEFT_OUT}


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value}"
