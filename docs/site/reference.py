"""The reference pages: the API from its docstrings, every command from its own help."""

from __future__ import annotations

import inspect
import io
import os
import re
import textwrap
from contextlib import redirect_stdout
from pathlib import Path

import yuriiformer as yf
from yuriiformer.cli.main import COMMANDS, main

STUB = Path(inspect.getfile(yf)).with_suffix(".pyi")
WIDTH = 84  # columns of the help: what a page shows without scrolling
ENTRY = re.compile(r"from (?P<home>[\w.]+) import (?P<name>\w+) as \w+  # (?P<remark>.*)")


def write_reference(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    names = []
    for title, entries in groups().items():
        name = f"api_{title.lower().replace(' ', '_')}"
        names.append(name)
        (folder / f"{name}.rst").write_text(api_page(title, entries), encoding="utf-8")
    (folder / "api.md").write_text(overview(names), encoding="utf-8")


def groups() -> dict[str, list[re.Match[str]]]:
    """The names that the package offers, by subject, as its stub lists them."""
    found: dict[str, list[re.Match[str]]] = {}
    title = ""
    for line in STUB.read_text(encoding="utf-8").partition("__version__")[2].splitlines():
        if line.startswith("# "):
            title = line[2:]
        elif entry := ENTRY.match(line):
            found.setdefault(title, []).append(entry)
    return found


def overview(names: list[str]) -> str:
    lines = ["# API", "", "`import yuriiformer as yf` gives these names.", ""]
    for title, entries in groups().items():
        lines += [f"**{title}**", "", "| name | what it is |", "|---|---|"]
        for entry in entries:
            lines.append(f"| {{any}}`yf.{entry['name']} <{target(entry)}>` | {entry['remark']} |")
        lines.append("")
    return "\n".join([*lines, "```{toctree}", ":hidden:", *names, "```", ""])


def target(entry: re.Match[str]) -> str:
    return f"yuriiformer.{entry['name']}"


def api_page(title: str, entries: list[re.Match[str]]) -> str:
    lines = [title, "=" * len(title), ""]
    for entry in entries:
        value, name = getattr(yf, entry["name"]), target(entry)
        if inspect.isclass(value):
            lines += [f".. autoclass:: {name}", "   :members:"]
        elif inspect.isfunction(value):
            lines += [f".. autofunction:: {name}"]
        else:
            lines += [f".. py:data:: {name}", "", f"   {entry['remark'].capitalize()}."]
        lines.append("")
    return "\n".join(lines)


def commands_page() -> str:
    lines = ["# Commands", "", "Each command's own `--help`.", "", _block(help_of([]))]
    for command, what in COMMANDS.items():
        text = help_of([command])
        lines += ["", f"## yurii {command}", "", f"{what[0].upper()}{what[1:]}.", "", _block(text)]
        for word in subcommands(text):
            lines += ["", f"### yurii {command} {word}", "", _block(help_of([command, word]))]
    return "\n".join(lines) + "\n"


def subcommands(text: str) -> list[str]:
    """The words that a command's help lists as subcommands."""
    listed = re.search(r"\{([\w,-]+)\}", text.partition("\n\n")[0])
    headed = re.search(r"^\W*subcommands\b", text, flags=re.MULTILINE)
    return listed[1].split(",") if listed and headed else []


def help_of(words: list[str]) -> str:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            main([*words, "--help"])
    except SystemExit:  # argparse ends this way
        pass
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    text = re.sub(r"\x1b\[[\d;]*m", "", said.getvalue())
    return "\n".join(part for line in text.strip().splitlines() for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    """At most as wide as the rest; in a list, the text stays in its column."""
    column = re.match(r" *\S+ {2,}", line)
    indent = " " * len(column[0]) if column else ""
    return textwrap.wrap(line.rstrip(), WIDTH, subsequent_indent=indent) or [""]


def _block(text: str) -> str:
    return f"```text\n{text}\n```"
