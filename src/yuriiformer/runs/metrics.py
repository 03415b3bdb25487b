"""``metrics.jsonl``: one object per logged step, in order; the source of every table and plot.

`Curves` are its columns."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from yuriiformer.display.curves import Floats
from yuriiformer.errors import CheckpointError, RunError
from yuriiformer.files import write_text
from yuriiformer.reading import count, number_or_text, reason

Record = dict[str, Any]
NUMBERS = ("loss", "val_loss", "exact_loss")  # of a record
BY_NAME = ("text_losses", "lr", "timing")  # numbers too, each under a name
_decode = json.JSONDecoder().raw_decode


class MetricsFile:
    """Records are appended one at a time, each a whole line. If the disk is full they are kept in
    memory and written with the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._waiting = b""

    def add(self, record: Record) -> str | None:
        """Write a record; returns the problem if it could not be written yet."""
        line = json.dumps(without_nan(record), ensure_ascii=False, allow_nan=False) + "\n"
        self._waiting += line.encode()
        try:
            self._write()
        except OSError as error:
            return f"{self.path} cannot be written: {error}"
        return None

    def _write(self) -> None:
        while self._waiting:  # a nearly full disk accepts a part
            written = self._file.write(self._waiting) or 0
            self._waiting = self._waiting[written:]

    def sync(self) -> None:
        """Wait until the records are on the disk."""
        try:
            self._write()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise CheckpointError(f"{self.path} could not be written: {error}") from error

    def close(self) -> None:
        self._file.close()


def without_nan(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as text."""
    if isinstance(value, dict):
        return {key: without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_nan(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def read_metrics(path: Path) -> list[Record]:
    """All records; a last line that a kill cut short is left out."""
    return [record for record, _ in _records(path)]


def cut_metrics(path: Path, step: int) -> list[int]:
    """Keep the records up to a step, which the run will resume from. Lines that are damaged are
    left out: their numbers are returned."""
    if not path.exists():
        return []
    damaged: list[int] = []
    kept = [line for record, line in _records(path, damaged) if record["step"] <= step]
    write_text(path, "".join(kept))
    return damaged


def _records(path: Path, damaged: list[int] | None = None) -> Iterator[tuple[Record, str]]:
    """One at a time, with their lines. A damaged line is an error, unless a list is given for their
    numbers; the last line may be: the process was killed."""
    wrong = None
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if wrong is not None and damaged is None:
                    raise RunError(
                        f"{path}, line {wrong} is damaged: 'yurii train --resume' leaves it out, "
                        "or remove that line"
                    )
                if wrong is not None and damaged is not None:
                    damaged.append(wrong)
                record, wrong = _record(line), None
                if record is None:
                    wrong = number
                elif line.endswith("\n"):  # not complete JSON that was cut before the line end
                    yield record, line
    except OSError as error:
        raise RunError(f"{path} cannot be read: {reason(error)}") from None


def _record(line: str | bytes) -> Record | None:
    """What a line holds; None if that is no record."""
    try:
        record = _parsed(line)
    except (ValueError, RecursionError):
        return None
    return record if _is_record(record) else None


def _is_record(record: Any) -> bool:
    """Whether it has the form of a record. (`reading.problem_of` takes seven times as long, and a
    file may have a million lines.)"""
    try:
        count(record["step"])
        numbers = [record[name] for name in NUMBERS if name in record]
        for name in BY_NAME:
            numbers += record.get(name, {}).values()
        for layers in record.get("coefficients", {}).values():
            numbers += layers if isinstance(layers, list) else [None]  # which is no number
        for number in numbers:
            number_or_text(number)
    except (ValueError, TypeError, KeyError, AttributeError):
        return False
    return True


def _parsed(line: str | bytes) -> Any:
    """As json.loads, in half the time for a line that has nothing around its object."""
    if isinstance(line, str) and line.startswith("{"):
        record, end = _decode(line)
        if line[end:] in ("", "\n"):
            return record
    return json.loads(line)


class MetricsTail:
    """Follows a file that another process writes: the records that are new since the last look."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._inode = -1
        self._rest = b""

    def new(self) -> list[Record]:
        try:
            now = self.path.stat()
        except OSError:
            return []
        if now.st_ino != self._inode or self._file is None or now.st_size < self._file.tell():
            self.close()  # a run that is resumed has cut its records: from the start again
            self._file, self._inode, self._rest = self.path.open("rb"), now.st_ino, b""
        lines = (self._rest + self._file.read()).split(b"\n")
        self._rest = lines.pop()
        return [record for record in map(_record, lines) if record is not None]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True)
class Curves:
    """What a run recorded, in columns. ``loss`` is the training batch's, before its step."""

    step: NDArray[np.int64]
    loss: Floats
    seconds: Floats  # of training, validation not counted
    speed: Floats  # tokens per second
    val_step: NDArray[np.int64]
    val_loss: Floats
    exact: tuple[int, float] | None  # a step, and the loss over the whole split after it
    median_speed: float | None  # of all steps, also where the others are thinned
    coefficients: list[tuple[int, dict[str, list[float]]]] = field(repr=False)
    texts: dict[str, tuple[int, float]] = field(default_factory=dict)  # as exact, on other texts

    def seconds_at(self, step: float) -> float | None:
        """Time until a step was done."""
        if not len(self.step):
            return None
        return float(np.interp(step, [0.0, *self.step], [0.0, *self.seconds]))


def read_curves(path: Path) -> Curves:
    """The records of ``metrics.jsonl``; a half-written last line is left out."""
    rows: list[tuple[int, float, float, float]] = []
    validations: list[tuple[int, float]] = []
    coefficients = []
    exact = None
    texts: dict[str, tuple[int, float]] = {}
    for record, _ in _records(path) if path.exists() else ():
        step = record["step"]
        timing = record.get("timing") or {}
        if "loss" in record:
            speed = _number(timing.get("tokens_per_second"))
            rows.append((step, _number(record["loss"]), _number(timing.get("seconds")), speed))
        if "val_loss" in record:
            validations.append((step, _number(record["val_loss"])))
        if "exact_loss" in record:
            exact = (step, _number(record["exact_loss"]))
        for name, loss in record.get("text_losses", {}).items():
            texts[name] = (step, _number(loss))
        if record.get("coefficients"):
            parts = record["coefficients"].items()
            numbers = {name: [*map(_number, part)] for name, part in parts}
            coefficients.append((step, numbers))
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    val = np.array(validations, dtype=np.float64).reshape(-1, 2)
    speeds = table[:, 3][np.isfinite(table[:, 3])]
    return Curves(
        step=table[:, 0].astype(np.int64),
        loss=table[:, 1],
        seconds=table[:, 2],
        speed=table[:, 3],
        val_step=val[:, 0].astype(np.int64),
        val_loss=val[:, 1],
        exact=exact,
        median_speed=float(np.median(speeds)) if len(speeds) else None,
        coefficients=coefficients,
        texts=texts,
    )


def _number(value: Any) -> float:
    """NaN and infinity are written as text, because JSON has none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
