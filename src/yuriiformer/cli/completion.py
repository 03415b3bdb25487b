"""``yurii completion SHELL``: a script with which a shell completes commands, flags and values.

What there is to complete is read from the help of every command, so a new flag needs nothing here.
(tyro can complete one command, but not a program of many; each of its scripts starts a Python.)
"""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal

import tyro

from yuriiformer.cli.completion_scripts import bash_script, fish_script, zsh_script
from yuriiformer.cli.main import COMMANDS, MODULES
from yuriiformer.cli.parsing import parse_flags
from yuriiformer.methods.catalog import rules
from yuriiformer.training.presets import PRESETS

SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
# The values of flags and arguments whose help has no list of choices.
RULES, KNOWN = tuple(rules), {"--preset": tuple(PRESETS)}
KNOWN |= dict.fromkeys(("--rule", "--rules", "RULE"), RULES)
WIDTH = "100"  # columns of the help; in more, tyro sets two boxes side by side


@dataclass(frozen=True)
class Flag:
    """``values`` are empty if any value may be given, and None if the flag takes none."""

    values: tuple[str, ...] | None
    many: bool = False


@dataclass
class Page:
    """What may follow a command: words, flags, and files if it takes arguments."""

    words: list[str] = field(default_factory=list)
    flags: dict[str, Flag] = field(default_factory=dict)
    arguments: bool = False


@dataclass(frozen=True)
class Flags:
    """Print a script that completes commands, flags and the values of choices:

    bash: yurii completion bash > ~/.local/share/bash-completion/completions/yurii;
    zsh: yurii completion zsh > ~/.yurii.zsh, and 'source ~/.yurii.zsh' in ~/.zshrc;
    fish: yurii completion fish > ~/.config/fish/completions/yurii.fish"""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """Which shell."""


def run(arguments: list[str]) -> None:
    flags = parse_flags("yurii completion", Flags(tyro.MISSING), arguments)
    print(SCRIPTS[flags.shell](read_pages()), end="")


def read_pages() -> dict[str, Page]:
    """Every command, and every command of a command, by its words: 'train', 'prepare text'."""
    pages = {"": Page([*COMMANDS], {each: Flag(None) for each in ("--help", "--version")})}
    for command in COMMANDS:
        pages[command] = read_page(_help_of(command, []))
        for word in list(pages[command].words) if not pages[command].arguments else []:
            pages[f"{command} {word}"] = read_page(_help_of(command, [word]))
    return pages


def _help_of(command: str, words: list[str]) -> str:
    """The help that a command prints; none if a package is missing that it needs."""
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # so that tyro draws its frames
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with redirect_stdout(said):
            import_module(f"yuriiformer.cli.{MODULES.get(command, command)}").run([*words, "-h"])
    except (SystemExit, ModuleNotFoundError):
        pass
    finally:
        del os.environ["COLUMNS"]
        os.environ |= {} if before is None else {"COLUMNS": before}
    said.seek(0)
    return said.read()


def read_page(text: str) -> Page:
    """What a help says: its boxes begin with a title, each entry at the left edge of its box."""
    page, box = Page(), ""
    for line in text.splitlines():
        if title := re.match(r"╭─ (.+?) ─", line):
            box = title[1]
        elif box == "subcommands" and (entry := re.match(r"│ +• (\S+)", line)):
            page.words.append(entry[1])
        elif entry := re.match(r"│ (\S.*?)(?: {2,}|\s*│)", line):
            if box == "positional arguments":
                page.arguments = True
                page.words += _values(entry[1], [entry[1]])
            elif entry[1].startswith("-"):
                _add_flags(page, entry[1])
    return page


def _add_flags(page: Page, entry: str) -> None:
    """From '--resume, --no-resume', '-o FILE, --out FILE' or '--rules [STR [STR ...]]'."""
    names = re.findall(r"(?:^|, )(--?[\w.-]+)", entry)
    takes = bool(re.search(r" [^-]", entry))
    values = tuple(_values(entry, names)) if takes else None
    page.flags |= {name: Flag(values, "..." in entry) for name in names}


def _values(entry: str, names: list[str]) -> list[str]:
    """The choices that an entry lists, or else what is known of its name."""
    listed = re.search(r"\{([^}]+,[^}]+)\}", entry)
    if listed:
        return [value for value in listed[1].split(",") if value != "None"]
    return [value for name in names for value in KNOWN.get(name, ())]
