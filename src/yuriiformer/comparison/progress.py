"""The progress of the runs of a suite, read from their records."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Literal

from yuriiformer.comparison.folder import RunSpec
from yuriiformer.runs.metrics import MetricsTail

RunState = Literal["waiting", "running", "elsewhere", "finished", "failed", "stopped"]


@dataclass
class RunProgress:
    """The progress of one run."""

    run: RunSpec
    state: RunState = "waiting"
    step: int = 0
    loss: float | None = None
    val_loss: float | None = None
    best: float | None = None
    speed: float | None = None
    said: str = ""  # the error, if it failed
    began: float = 0.0
    first: int = 0
    logged: int = 0  # bytes that its log had before this try
    _tail: MetricsTail | None = field(default=None, repr=False)

    def start(self, state: RunState) -> None:
        """The run starts from the step of its last record."""
        self.look()
        self.state, self.began, self.first = state, time.monotonic(), self.step
        self.logged = self.run.log.stat().st_size if self.run.log.exists() else 0

    def look(self) -> None:
        """Read what is new."""
        if self._tail is None:
            self._tail = MetricsTail(self.run.folder.metrics_file)
        for record in self._tail.new():
            self.step = record["step"]
            self.loss = _number(record.get("loss"), self.loss)
            self.speed = _number(record.get("timing", {}).get("tokens_per_second"), self.speed)
            if "val_loss" in record:
                self.val_loss = _number(record["val_loss"], math.nan)
                if self.val_loss is not None and math.isfinite(self.val_loss):
                    self.best = min(self.val_loss, math.inf if self.best is None else self.best)

    def end(self, state: RunState, said: str = "") -> None:
        self.look()
        self.state, self.said = state, said
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    @property
    def seconds_left(self) -> float | None:
        done = self.step - self.first
        if self.state != "running" or done < 1:
            return None
        return (time.monotonic() - self.began) / done * (self.run.steps - self.step)


def _number(value: object, otherwise: float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else otherwise
