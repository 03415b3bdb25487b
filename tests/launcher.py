"""``yurii`` without waiting for a new Python: in this process, or in one that is warm already.

A new Python takes seconds to import torch. A warm process is forked from one that has imported all
of it: a process like any other, with its own number, that can be signalled and killed.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace
from typing import IO, Any
from unittest import mock

from yuriiformer.cli.main import main
from yuriiformer.training.stop import PARENT

PROCESS = [sys.executable, "-m", "yuriiformer"]  # how a process of its own begins
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.warm"])


def yurii(words: Sequence[object]) -> subprocess.CompletedProcess[str]:
    """A command in this process, with or without the words that would start one for it; the runs of
    a suite are warm processes."""
    given = [str(word) for word in words]
    given = given[len(PROCESS) :] if given[: len(PROCESS)] == PROCESS else given
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), warm_suites():
        try:
            code = main(given)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return subprocess.CompletedProcess(given, code, out.getvalue(), errors.getvalue())


def warm_suites(start: type | None = None) -> Any:
    """While it lasts, suites of this process start warm processes."""
    words = {"DEVNULL": subprocess.DEVNULL, "STDOUT": subprocess.STDOUT}
    kinds = SimpleNamespace(Popen=start or Warm, **words)
    return mock.patch("yuriiformer.comparison.running.subprocess", kinds)


class Warm:
    """A warm process with the face of ``subprocess.Popen``."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        stdout: IO[bytes],
        stderr: IO[bytes] | int,
        env: Mapping[str, str],
        file_bytes: int | None = None,
        **_: Any,
    ) -> None:
        assert list(words[: len(PROCESS)]) == PROCESS
        self.args, self.returncode = list(words), None
        errors = stdout.name if isinstance(stderr, int) else stderr.name
        given = (self.args[len(PROCESS) :], stdout.name, errors, dict(env), file_bytes)
        self._process = FORKS.Process(target=_run, args=given)
        self._process.start()
        self.pid = self._process.pid

    def poll(self) -> int | None:
        self.returncode = self._process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Warm:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


class Forked:
    """What a warm process forks of itself, with the little of ``subprocess.Popen`` that a suite
    needs. Not for the process of the tests, which has threads."""

    def __init__(
        self, words: Sequence[str], *, stdout: IO[bytes], env: Mapping[str, str], **_: Any
    ) -> None:
        assert list(words[: len(PROCESS)]) == PROCESS
        self.returncode: int | None = None
        self.pid = os.fork()
        if not self.pid:
            code = 1
            os.closerange(3, 1024)  # as Popen does: the suite's lock is not the run's
            try:
                _run(list(words[len(PROCESS) :]), stdout.name, stdout.name, dict(env), None)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def poll(self) -> int | None:
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)


def _run(
    words: list[str], out: str, errors: str, environment: dict[str, str], file_bytes: int | None
) -> None:
    """In the warm process: what a new one would do."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    if PARENT in environment:
        os.environ[PARENT] = str(os.getppid())
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    for path, number in ((out, 1), (errors, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)  # there already: a file or a pipe
        os.dup2(file, number)
        os.close(file)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    sys.argv = ["yurii", *words]
    with warm_suites(Forked):
        code = main(words)
    try:
        sys.stderr.flush()
    except OSError:  # nobody reads it: a Python that ends does not mind, multiprocessing would
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(code)
