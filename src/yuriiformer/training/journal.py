"""A run's records on their way out: to ``metrics.jsonl`` and to whoever listens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from yuriiformer.config import TrainConfig
from yuriiformer.errors import one_line
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import MetricsFile, Record, cut_metrics
from yuriiformer.training.listeners import Listener, Say, listeners
from yuriiformer.training.state import State


class Journal:
    """Of the leading process; the others' has no file and no listeners."""

    def __init__(
        self, say: Say, metrics: MetricsFile | None = None, told: Sequence[Listener] = ()
    ) -> None:
        self.say, self.metrics, self.told = say, metrics, list(told)

    def add(self, record: Record) -> None:
        """Write a record, and tell it. Listeners that fail (a full disk, a network) are left out:
        the run matters more."""
        if self.metrics is not None:
            problem = self.metrics.add(record)
            if problem:
                self.say(f"{problem}; it is kept, and training continues")
        for listener in tuple(self.told):
            try:
                listener.record(record)
            except Exception as error:
                self.say(f"{type(listener).__name__} failed and is left out: {one_line(error)}")
                self.told.remove(listener)

    def sync(self) -> None:
        """Wait until the records are on the disk."""
        if self.metrics is not None:
            self.metrics.sync()

    def close(self) -> None:
        for listener in self.told:
            with suppress(Exception):  # what it could not write is in metrics.jsonl
                listener.close()
        if self.metrics is not None:
            self.metrics.close()


def open_journal(
    folder: RunFolder, config: TrainConfig, state: State, say: Say, extra: Sequence[Listener]
) -> Journal:
    """From where the run stands; records of steps that will be done again are dropped."""
    begun = state.step > 0 or state.pending is not None
    # The record of a step whose validation was cut short has not been written.
    cut_metrics(folder.metrics_file, state.step - (state.pending is not None) if begun else -1)
    metrics = MetricsFile(folder.metrics_file)
    return Journal(say, metrics, [*listeners(folder, config, state.step, say), *extra])
