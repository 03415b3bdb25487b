"""`yurii completion`: the scripts, run by the shells that they are for."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time

import pytest

from yuriiformer.cli.completion import (
    Flag,
    bash_script,
    fish_script,
    read_page,
    read_pages,
    zsh_script,
)
from yuriiformer.cli.main import COMMANDS, main
from yuriiformer.methods.catalog import rules
from yuriiformer.training.presets import PRESETS

# What is typed before a Tab, and what is then offered.
OFFERED = {
    "yurii ": set(COMMANDS),
    "yurii tr": {"train", "trace"},
    "yurii prepare t": {"tinystories", "text", "tales"},
    "yurii prepare text book.txt --sp": {"--split"},
    "yurii prepare text book.txt --split ": {"auto", "documents", "tail"},
    "yurii train --rule nesterov-": {name for name in rules if name.startswith("nesterov-")},
    "yurii train --preset ": set(PRESETS),
    "yurii train --resume --matrices a": {"adamw"},
    "yurii rules show verlet-m": {"verlet-mam"},
    "yurii completion ": {"bash", "zsh", "fish"},
    "yurii report runs --formats png s": {"svg"},
    "yurii suite --rules gd-euler polyak-e": {"polyak-euler"},
}

ENTRY = r"^(?:│ |  )(?:-\w.*?, )?(--\w[\w.-]+)"  # in a help, with frames or without


@pytest.fixture(scope="module")
def pages():
    return read_pages()


@pytest.fixture(scope="module")
def script(pages, tmp_path_factory):
    """The file of a shell's script."""
    folder = tmp_path_factory.mktemp("scripts")
    for name, make in {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}.items():
        (folder / f"yurii.{name}").write_text(make(pages))
    return lambda shell: folder / f"yurii.{shell}"


def test_pages_are_the_help(pages, capsys):
    assert set(COMMANDS) <= set(pages)
    assert {"prepare text", "data show", "lab quadratic", "rules show"} <= set(pages)
    train = pages["train"].flags
    assert train["--rule"] == Flag(tuple(rules))
    assert train["--resume"] == train["--no-resume"] == Flag(None)
    assert train["--steps"] == Flag(())
    assert train["--allow-changed"] == Flag((), many=True)
    assert pages["rules diagram"].flags["-o"] == Flag(())
    assert pages["sample"].arguments
    assert not pages["train"].arguments
    for at, page in pages.items():
        if at:  # the flags of its help, each with two dashes at the beginning of its line
            with pytest.raises(SystemExit):
                main([*at.split(), "--help"])
            said = re.findall(ENTRY, capsys.readouterr().out, re.MULTILINE)
            assert set(said) <= set(page.flags), at
            assert "--help" in said


def test_a_help_of_every_form():
    page = read_page(
        "usage: x\n"
        "╭─ options ───────────╮\n"
        "│ -h, --help          show this and --what is not a flag  │\n"
        "│ --checkpoint {None,best,final,last}                     │\n"
        "│                     --neither is this                   │\n"
        "│ --formats [{png,svg} [{png,svg} ...]]                   │\n"
        "╰─────────────────────╯\n"
    )
    assert page.flags == {
        "-h": Flag(None),
        "--help": Flag(None),
        "--checkpoint": Flag(("best", "final", "last")),
        "--formats": Flag(("png", "svg"), many=True),
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_the_script(shell, script, capsys):
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == script(shell).read_text()


def test_an_unknown_shell(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def bash_offers(script, typed):
    words = typed.split(" ")
    program = (
        f"source {script('bash')}; COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); "
        f'COMP_CWORD={len(words) - 1}; _yurii; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    result = subprocess.run(["bash", "-uc", program], capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return set(result.stdout.split())


@pytest.mark.parametrize("typed", OFFERED)
def test_bash(script, typed):
    assert bash_offers(script, typed) == OFFERED[typed]


def test_bash_leaves_files_to_the_shell(script):
    """An empty answer, and bash's own completion of file names takes its place."""
    for typed in ("yurii train --out ", "yurii sample ", "yurii report ru"):
        assert bash_offers(script, typed) == set()
    registered = subprocess.run(
        ["bash", "-c", f"source {script('bash')}; complete -p yurii"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert registered.stdout == "complete -o default -F _yurii yurii\n"
    assert "--out" in bash_offers(script, "yurii train ")  # here only flags can follow


@pytest.mark.slow
@pytest.mark.parametrize("typed", OFFERED)
def test_fish(script, typed, need_tool):
    program = f"source {script('fish')}; complete -C '{typed}'"
    result = subprocess.run(
        [need_tool("fish"), "--no-config", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    offered = {line.split("\t")[0] for line in result.stdout.splitlines()}
    if not typed.split(" ")[-1].startswith("-"):
        offered = {word for word in offered if not word.startswith("-")}  # it offers flags too
    assert offered == OFFERED[typed]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "becomes"),
    [
        ("yurii pres", "yurii presets "),
        ("yurii prepare te", "yurii prepare text "),
        ("yurii train --pres", "yurii train --preset "),
        ("yurii train --rule nesterov-eu", "yurii train --rule nesterov-euler "),
        ("yurii rules show verlet-m", "yurii rules show verlet-mam "),
    ],
)
def test_zsh(script, typed, becomes, need_tool, tmp_path):
    """In a terminal, as its user has it: the line that stands there after a Tab."""
    child, terminal = pty.fork()
    if not child:
        os.environ |= {"TERM": "dumb", "ZDOTDIR": str(tmp_path), "PS1": "> "}
        os.execv(need_tool("zsh"), ["zsh", "-f", "-i"])
    try:
        os.write(terminal, f"source {script('zsh')}; bindkey '^I' complete-word\n".encode())
        os.write(terminal, b'accept-line() { print -r -- "=$BUFFER="; zle .send-break }\n')
        os.write(terminal, b"zle -N accept-line; echo read''y\n")
        read_until(terminal, "ready")
        os.write(terminal, f"{typed}\t\r".encode())
        said = read_until(terminal, f"={becomes}=")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    assert f"={becomes}=" in said


def read_until(terminal, words):
    said, until = "", time.monotonic() + 60
    while words not in said and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 4096).decode(errors="replace")
    return said
