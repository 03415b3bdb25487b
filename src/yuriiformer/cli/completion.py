"""``yurii completion SHELL``: a script with which a shell completes commands, flags and values.

What there is to complete is read from the help of every command, so a new flag needs nothing here.
(tyro can complete one command, but not a program of many; each of its scripts starts a Python.)
The scripts hold all words: no Python starts at a Tab.
"""

from __future__ import annotations

import io
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from typing import Literal

import tyro

from yuriiformer.cli.main import COMMANDS, MODULES
from yuriiformer.cli.parsing import parse_flags
from yuriiformer.methods.catalog import rules
from yuriiformer.training.presets import PRESETS

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
class CommandPage:
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


def read_pages() -> dict[str, CommandPage]:
    """Every command, and every command of a command, by its words: 'train', 'prepare text'."""
    pages = {"": CommandPage([*COMMANDS], {each: Flag(None) for each in ("--help", "--version")})}
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


def read_page(text: str) -> CommandPage:
    """What a help says: its boxes begin with a title, each entry at the left edge of its box."""
    page, box = CommandPage(), ""
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


def _add_flags(page: CommandPage, entry: str) -> None:
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


BASH = """\
# Completion of yurii in bash, made by 'yurii completion bash'.
_yurii() {
    local cur="${COMP_WORDS[COMP_CWORD]}" flag="" at="" i="$COMP_CWORD" words="" flags="" files=1
    if (( COMP_CWORD > 1 )); then at="${COMP_WORDS[1]}"; fi
    if (( COMP_CWORD > 2 )); then
        case "$at ${COMP_WORDS[2]}" in
            @NESTED@) at="$at ${COMP_WORDS[2]}" ;;
        esac
    fi
    # The last flag: what follows may be its value.
    while (( --i > 0 )); do
        flag="${COMP_WORDS[i]}"
        if [[ "$flag" == -* ]]; then break; fi
        flag=""
    done
    if [[ "$cur" != -* && -n "$flag" ]]; then
        if (( i == COMP_CWORD - 1 )); then
            case "$at $flag" in
@ONE@
            esac
        fi
        case "$at $flag" in
@MANY@
        esac
    fi
    case "$at" in
@PAGES@
    esac
    # Flags are offered once a dash is typed, or where nothing else can follow.
    if [[ "$cur" == -* || ( -z "$words" && -z "$files" ) ]]; then words="$flags"; fi
    COMPREPLY=( $(compgen -W "$words" -- "$cur") )
}
complete -o default -F _yurii yurii
"""

ZSH = """\
# Completion of yurii in zsh, made by 'yurii completion zsh'.
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
(( $+functions[bashcompinit] )) || { autoload -Uz bashcompinit && bashcompinit; }
"""

FISH = """\
# Completion of yurii in fish, made by 'yurii completion fish'.
function __yurii_at # whether the command line begins with these words
    set -l words (commandline -opc)
    set -l last (math 1 + (count $argv))
    test (count $words) -ge $last; and test "$words[2..$last]" = "$argv"
end
function __yurii_after # whether this is the last flag
    set -l flags (string match -- '-*' (commandline -opc))
    test "$flags[-1]" = "$argv[1]"
end
function __yurii_words # how many words there are before the cursor
    test (count (commandline -opc)) -eq $argv[1]
end
"""


def bash_script(pages: Mapping[str, CommandPage]) -> str:
    one: list[tuple[str, str]] = []
    many: list[tuple[str, str]] = []
    rest: list[tuple[str, str]] = []
    for at, page in pages.items():
        for name, flag in page.flags.items():
            if flag.values is not None:
                found = f'COMPREPLY=( $(compgen -W "{" ".join(flag.values)}" -- "$cur") ); return'
                (many if flag.many else one).append((f"{at} {name}", found))
        files = "" if page.arguments else " files="
        words, flags = (" ".join(each) for each in (page.words, page.flags))
        rest.append((at, f'words="{words}" flags="{flags}"{files}'))
    parts = {
        "NESTED": "|".join(f'"{at}"' for at in pages if " " in at),
        "ONE": _cases(one, 16),
        "MANY": _cases(many, 12),
        "PAGES": _cases(rest, 8),
    }
    text = BASH
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _cases(entries: Iterable[tuple[str, str]], indent: int) -> str:
    """Cases of a shell; those that do the same are one."""
    alike: dict[str, list[str]] = {}
    for key, what in entries:
        alike.setdefault(what, []).append(f'"{key}"')
    return "\n".join(f"{' ' * indent}{'|'.join(keys)}) {what} ;;" for what, keys in alike.items())


def zsh_script(pages: Mapping[str, CommandPage]) -> str:
    """zsh runs functions of bash."""
    return ZSH + bash_script(pages).partition("\n")[2]


def fish_script(pages: Mapping[str, CommandPage]) -> str:
    lines = [FISH.rstrip()]
    for at, page in pages.items():
        count = f"__yurii_words {len(at.split()) + 1}"
        here = f"__yurii_at {at}" if at else count
        first = f"{here}; and {count}" if at else count
        for word in page.words:
            note = f" -d {shlex.quote(COMMANDS[word])}" if not at else ""
            lines.append(f"{_fish(first)} -f -a {word}{note}")
        for name, flag in page.flags.items():
            kind = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            words = shlex.quote(" ".join(flag.values or ()))
            value = "" if flag.values is None else f" -x -a {words}" if flag.values else " -r"
            lines.append(f"{_fish(here)} {kind}{value}")
            if flag.many and flag.values:
                lines.append(f"{_fish(f'{here}; and __yurii_after {name}')} -f -a {words}")
    return "\n".join(lines) + "\n"


def _fish(condition: str) -> str:
    return f"complete -c yurii -n {shlex.quote(condition)}"


SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
