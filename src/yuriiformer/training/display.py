"""What a person sees of a training run: live progress."""

from __future__ import annotations

import math
import sys
import time
from io import StringIO
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

EVERY_SECONDS = 10.0  # between lines where no terminal is


def duration(seconds: float) -> str:
    """``3:07`` or ``5 h 12 min``."""
    if not math.isfinite(seconds):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours / 24:.1f} days"


class Display:
    """Progress of a run: a live bar on a terminal, a line now and then elsewhere."""

    def __init__(
        self, steps: int, step: int, best: float | None = None, stream: TextIO | None = None
    ) -> None:
        self.steps, self.first = steps, step
        self.stream = stream = stream or sys.stderr
        self.began = self.said = time.monotonic()
        self.best = best
        self.validation = ""
        self.bar: Bar | None = None
        self.task: TaskID | None = None
        if stream.isatty():
            self._open_bar()

    def _open_bar(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415
        from rich.table import Column  # noqa: PLC0415

        self.bar = Progress(
            TextColumn(
                "{task.completed}/{task.total}",
                table_column=Column(no_wrap=True, min_width=2 * len(str(self.steps)) + 1),
            ),
            BarColumn(bar_width=12),
            TextColumn(
                "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
            console=Console(file=self.stream),
        )
        self.bar.start()
        self.task = self.bar.add_task("starting", total=self.steps, completed=self.first)

    def say(self, text: str) -> None:
        """A remark, above the bar."""
        try:
            if self.bar is not None:
                self.bar.console.print(text, markup=False, highlight=False)
            else:
                print(text, file=self.stream, flush=True)
        except OSError:  # the reader of a pipe has gone: metrics.jsonl has it all
            self.stream, self.bar = StringIO(), None

    def record(self, record: dict[str, Any]) -> None:
        if "val_loss" in record:
            better = self.best is None or record["val_loss"] < self.best
            self.best = record["val_loss"] if better else self.best
            self.validation = f"val {record['val_loss']:.4f}{' (best)' if better else ''}"
        text = self._line(record)
        now = time.monotonic()
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=record["step"], description=text)
        if "val_loss" in record or (self.bar is None and now - self.said > EVERY_SECONDS):
            self.said = now
            self.say(f"step {record['step']}/{self.steps}  {text}")

    def _line(self, record: dict[str, Any]) -> str:
        parts = [f"loss {record['loss']:.4f}"] if "loss" in record else []
        parts += [self.validation] if self.validation else []
        done = record["step"] - self.first
        if done > 0 and record["step"] < self.steps:
            left = (time.monotonic() - self.began) / done * (self.steps - record["step"])
            parts.append(f"{duration(left)} left")
        if "lr" in record:  # what a narrow terminal may cut off
            parts.append(f"{record['timing']['tokens_per_second']:,.0f} tok/s")
            parts.append("lr " + " ".join(f"{rate:.2e}" for rate in record["lr"].values()))
            parts.append(f"grad {record['grad_norm']:.2f}")
        return "  ".join(parts)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
