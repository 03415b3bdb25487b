"""Errors of the argument parser, as one line, whatever the terminal can show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from yuriiformer.cli.main import main


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_an_error_has_neither_frames_nor_rules(encoding):
    done = subprocess.run(
        [sys.executable, "-m", "yuriiformer", "lab", "quadratic", "--stpes", "4"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "yurii: not understood: --stpes 4 (similar: --steps); for help, run yurii lab --help\n"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("lab xyz", "unknown 'yurii lab xyz'; known are quadratic, particles, order"),
        ("prepare tex a --out b", "unknown 'yurii prepare tex' (did you mean 'text'?)"),
        ("train --lr 3 --step 5", "not understood: --lr 3 --step 5 (similar: --adamw-lr, "),
        ("data show a b", "not understood: b"),
        ("train --steps x", "Error parsing --steps: not a whole number: 'x'"),
        ("train --muon-lr x", "Error parsing --muon-lr: not a number: 'x'"),
        ("rules show gd-euler --format png", "invalid choice 'png' for argument '--format'"),
    ],
)
def test_an_error_says_what_was_wrong_and_where_the_help_is(words, says, capsys):
    command = " ".join(words.split()[:1])
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"yurii: {says}")
    assert f"for help, run yurii {command}" in error
    assert "helptext" not in error
