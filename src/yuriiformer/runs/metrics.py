"""``metrics.jsonl``: one object per logged step, in order; the source of every table and plot."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from yuriiformer.errors import CheckpointError, RunError
from yuriiformer.files import write_text

Record = dict[str, Any]


class MetricsFile:
    """Records are appended one at a time, each a whole line. If the disk is full they are kept in
    memory and written with the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._waiting = b""

    def add(self, record: Record) -> str | None:
        """Write a record; returns the problem if it could not be written yet."""
        line = json.dumps(_plain(record), ensure_ascii=False, allow_nan=False) + "\n"
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


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as text."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def read_metrics(path: Path) -> list[Record]:
    """All records; a last line that a kill cut short is left out."""
    return [record for record, _ in _records(path)]


def iterate_metrics(path: Path) -> Iterator[Record]:
    """The same, one at a time."""
    for record, _ in _records(path):
        yield record


def cut_metrics(path: Path, step: int) -> int:
    """Keep the records up to a step, which the run will resume from; how many were dropped."""
    if not path.exists():
        return 0
    kept, dropped = [], 0
    for record, line in _records(path):
        if record["step"] <= step:
            kept.append(line)
        else:
            dropped += 1
    write_text(path, "".join(kept))
    return dropped


def _records(path: Path) -> Iterator[tuple[Record, str]]:
    damaged = None
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if damaged is not None:
                raise RunError(f"{path}, line {damaged} is not a record: the file is damaged")
            try:
                record = json.loads(line)
                if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                    raise ValueError("no step")
            except ValueError:
                damaged = number  # allowed for the last line: the process was killed
                continue
            if not line.endswith("\n"):
                return  # complete JSON, but the process was killed before the line end
            yield record, line


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
        found = []
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                found.append(record)
        return found

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
