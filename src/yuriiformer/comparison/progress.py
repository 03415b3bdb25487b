"""The runs of a suite while they run: read from their records, shown as a live table or lines."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TextIO

from yuriiformer.comparison.definition import RunSpec
from yuriiformer.display.columns import duration
from yuriiformer.runs.metrics import MetricsTail

if TYPE_CHECKING:
    from rich.live import Live


RunState = Literal["waiting", "running", "elsewhere", "finished", "failed", "stopped"]


@dataclass
class RunProgress:
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


EVERY_SECONDS = 30.0  # between lines, without a terminal
WORDS = {"elsewhere": "running elsewhere"}


class SuiteDisplay:
    """Shows how far the runs of a suite are."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live: Live | None = None
        self.states: dict[str, str] = {}
        self.said = time.monotonic()
        self.began = time.monotonic()
        if self.stream.isatty():
            from rich.console import Console  # noqa: PLC0415
            from rich.live import Live  # noqa: PLC0415

            console = Console(file=self.stream)
            self.live = Live(console=console, refresh_per_second=4, transient=True)
            self.live.start()

    def say(self, text: str) -> None:
        try:
            if self.live is not None:
                self.live.console.print(text, markup=False, highlight=False)
            else:
                print(text, file=self.stream, flush=True)
        except OSError:  # the reader of a pipe has gone: the runs continue
            self.live = None

    def show(self, runs: Sequence[RunProgress]) -> None:
        for each in runs:
            self._changed(each)
        if self.live is not None:
            self.live.update(self._table(runs))
        elif time.monotonic() - self.said > EVERY_SECONDS:
            self.said = time.monotonic()
            active = [each for each in runs if each.state == "running"]
            steps = [f"{each.run.name} {each.step}/{each.run.steps}" for each in active]
            self.say("; ".join([overall(runs), *steps]))

    def _changed(self, each: RunProgress) -> None:
        """A line for a run that began or ended."""
        before, name = self.states.get(each.run.name), each.run.name
        self.states[name] = each.state
        if before == each.state or (before is None and each.state == "waiting"):
            return
        if each.run.archived.exists():
            return  # the command says how many there are
        if each.state == "finished":
            how = "was finished already" if before is None else "finished"
            end = f"{each.step} steps"
            if each.val_loss is not None:
                end = f"validation loss {each.val_loss:.4f}, best {_text(each.best) or 'none'}"
            self.say(f"{name} {how}: {end}")
        elif each.state == "running":
            self.say(f"{name} " + (f"resumes from step {each.step}" if each.step else "begins"))
        elif each.state == "stopped" and before == "running":
            self.say(f"{name}: asked to save and stop")

    def _table(self, runs: Sequence[RunProgress]) -> Any:
        from rich.table import Table  # noqa: PLC0415

        table = Table(title=overall(runs, self.began), title_justify="left", expand=False)
        for head in ("run", "", "step", "train", "validation", "best", "tok/s", "left"):
            justify: Any = "left" if head in ("run", "") else "right"
            table.add_column(head, justify=justify, no_wrap=True)
        height = self.live.console.height - 7 if self.live is not None else 40
        for each in _most_interesting(runs, max(3, height)):
            left = each.seconds_left
            state, steps = WORDS.get(each.state, each.state), f"{each.step}/{each.run.steps}"
            losses = [_text(loss) for loss in (each.loss, each.val_loss, each.best)]
            speed = "" if each.speed is None else f"{each.speed:,.0f}"
            rest = "" if left is None else duration(left)
            table.add_row(each.run.name, state, steps, *losses, speed, rest)
        return table

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None


def overall(runs: Sequence[RunProgress], began: float | None = None) -> str:
    """``12 of 51 runs finished, 2 running, 1 failed``."""
    count = Counter(each.state for each in runs)
    parts = [f"{count['finished']} of {len(runs)} runs finished"]
    others: list[RunState] = ["running", "elsewhere", "failed"]
    parts += [f"{count[each]} {WORDS.get(each, each)}" for each in others if count[each]]
    return ", ".join(parts + ([] if began is None else _times(runs, time.monotonic() - began)))


def _times(runs: Sequence[RunProgress], seconds: float) -> list[str]:
    """How long it took so far, and about how long it will."""
    done = sum(max(0, each.step - each.first) for each in runs if each.began)
    ahead = [each for each in runs if each.state in ("waiting", "running")]
    left = sum(each.run.steps - each.step for each in ahead)
    parts = [duration(seconds)]
    return [*parts, f"about {duration(left * seconds / done)} left"] if done and left else parts


def _most_interesting(runs: Sequence[RunProgress], rows: int) -> list[RunProgress]:
    """The rows for a short terminal: running, then failed, waiting, finished; in order."""
    order = ["running", "elsewhere", "failed", "stopped", "waiting", "finished"]
    chosen = sorted(runs, key=lambda each: order.index(each.state))[:rows]
    return [each for each in runs if each in chosen]


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
