"""Signals that ask a run to stop: it finishes its step, saves, and exits."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

EXIT_CODE = 75  # of a run that was asked to stop and can continue: sysexits' EX_TEMPFAIL
# SIGUSR1 is what SLURM users ask for before a time limit, SIGUSR2 what submitit does.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


PARENT = "YURII_PARENT"  # a process whose death is a reason to stop
_PR_SET_PDEATHSIG = 1


def stop_with_parent() -> None:
    """If a suite started this run and ends, send SIGTERM to this process: the run saves and exits.
    On Linux only; elsewhere the run continues, and a restarted suite waits for it."""
    parent = os.environ.get(PARENT)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    direct = "TORCHELASTIC_RUN_ID" not in os.environ
    if direct and str(os.getppid()) != parent:  # it ended before prctl was called
        os.kill(os.getpid(), signal.SIGTERM)


class Stopper:
    """Records a signal; a second Ctrl-C interrupts at once."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self.say = say
        self.requested: str | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        # torchrun passes a Ctrl-C on to processes that have seen it already.
        again = self.requested is not None and "TORCHELASTIC_RUN_ID" not in os.environ
        if again and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.requested is None:
            self.say(f"{name}: finishing the step, then saving")
        self.requested = name
