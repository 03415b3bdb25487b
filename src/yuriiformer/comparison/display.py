"""The runs of a suite while they run: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from yuriiformer.display.columns import duration

if TYPE_CHECKING:
    from rich.live import Live

    from yuriiformer.comparison.progress import RunProgress, RunState

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
            self._open()

    def _open(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.live import Live  # noqa: PLC0415

        self.live = Live(console=Console(file=self.stream), refresh_per_second=4, transient=True)
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
        if each.state == "finished":
            how = "was finished already" if before is None else "finished"
            if each.run.archived.exists():
                return  # the suite says how many are archived
            self.say(f"{name} {how}: {_losses(each)}")
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


def _losses(each: RunProgress) -> str:
    if each.val_loss is None:
        return f"{each.step} steps"
    return f"validation loss {each.val_loss:.4f}, best {_text(each.best) or 'none'}"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
