"""The scripts of `completion`, for each shell. They hold all words: no Python starts at a Tab."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from yuriiformer.cli.main import COMMANDS

if TYPE_CHECKING:
    from yuriiformer.cli.completion import Page

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


def bash_script(pages: Mapping[str, Page]) -> str:
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


def zsh_script(pages: Mapping[str, Page]) -> str:
    """zsh runs functions of bash."""
    return ZSH + bash_script(pages).partition("\n")[2]


def fish_script(pages: Mapping[str, Page]) -> str:
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
