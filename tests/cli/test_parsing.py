"""Errors of the argument parser, as one line, whatever the terminal can show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_an_error_has_neither_frames_nor_rules(encoding):
    done = subprocess.run(
        [sys.executable, "-m", "yuriiformer", "lab", "circles"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "yurii: Unrecognized options: circles Available subcommands: quadratic, "
        "particles, order; for help, run yurii lab --help\n"
    )
