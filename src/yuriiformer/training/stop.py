"""Signals that ask a run to stop: it finishes its step, saves, and leaves."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

EXIT_CODE = 75  # of a run that was asked to stop and can go on: sysexits' EX_TEMPFAIL
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Stopper:
    """Remembers that a signal came; a second Ctrl-C does not wait."""

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
