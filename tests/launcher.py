"""``yurii`` in this process: what it prints and its exit code, without waiting for a new Python."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

from yuriiformer.cli.main import main

PROCESS = [sys.executable, "-m", "yuriiformer"]  # how a process of its own begins


def yurii(words: Sequence[object]) -> subprocess.CompletedProcess[str]:
    """The words of a command, with or without those that would start a process for it."""
    given = [str(word) for word in words]
    given = given[len(PROCESS) :] if given[: len(PROCESS)] == PROCESS else given
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main(given)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return subprocess.CompletedProcess(given, code, out.getvalue(), errors.getvalue())
