"""How everything here is measured: ways take turns in rounds, and every round gives a figure.

A subject of measurement is a function that returns `Rounds`, and the rows of the table that are
read from them:

    @subject("sorting", Row("Sorting 10⁶ numbers", "sorted()", ("sorted", "ours"), "≥ 2"))
    def sorting(*, quick: bool) -> Rounds:
        return take_turns({"sorted": lambda: sorted(numbers), "ours": ...}, 2 if quick else 9)
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"  # real text and tasks, where they are at hand

Rounds = dict[str, list[float]]  # way -> its figure in every round


class MissingError(Exception):
    """Something that a subject needs is not here; its words say what."""


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Args:
        what, against: what is measured, and what it is compared with.
        ways: of the rounds. Two: the first divided by the second, round by round. One: itself.
        aim: such as ``≥ 1.5``; empty where there is none.
        unit: of the figures.
        pooled: the figure is the ratio of the sums, not the median of the ratios. For rounds that
            are parts of one piece of work.
    """

    what: str
    against: str
    ways: tuple[str] | tuple[str, str]
    aim: str = ""
    unit: str = "×"
    pooled: bool = False

    def values(self, rounds: Rounds) -> list[float]:
        first, *rest = (rounds[way] for way in self.ways)
        return [a / b for a, b in zip(first, rest[0], strict=True)] if rest else first

    def figure(self, rounds: Rounds) -> float:
        if self.pooled:
            sums = [sum(rounds[way]) for way in self.ways]
            return sums[0] / sums[-1]
        return statistics.median(self.values(rounds))

    def reached(self, rounds: Rounds) -> bool | None:
        """Whether the aim is; None where there is none."""
        if not self.aim:
            return None
        sense, number = self.aim.split()
        return {"≥": float.__ge__, "≤": float.__le__}[sense](self.figure(rounds), float(number))


class Measure(Protocol):
    def __call__(self, *, quick: bool) -> Rounds: ...


@dataclass(frozen=True)
class Subject:
    """What one command measures."""

    name: str
    rows: tuple[Row, ...]
    measure: Measure

    @property
    def command(self) -> str:
        return f"python -m benchmarks {self.name}"


SUBJECTS: dict[str, Subject] = {}


def subject(name: str, *rows: Row) -> Callable[[Measure], Measure]:
    """Register a function as a subject; ``quick`` asks it for few rounds of a small size."""

    def register(measure: Measure) -> Measure:
        assert name not in SUBJECTS, name
        SUBJECTS[name] = Subject(name, rows, measure)
        return measure

    return register


def take_turns(ways: Mapping[str, Callable[[], Any]], rounds: int, *, warm: int = 1) -> Rounds:
    """Seconds of each way, once per round; the order is reversed every other round, and the first
    ``warm`` rounds do not count."""
    times: Rounds = {name: [] for name in ways}
    for turn in range(warm + rounds):
        for name in ways if turn % 2 else reversed(ways):
            seconds = timed(ways[name])
            if turn >= warm:
                times[name].append(seconds)
    return times


def timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads of torch."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def fresh(function: Callable[..., Any], *arguments: Any, **environment: str) -> Any:
    """What a function of a module here returns, called in a process of its own. Arguments and
    result are plain data."""
    code = (
        f"import json, sys; from {function.__module__} import {function.__qualname__} as f; "
        "print(json.dumps(f(*json.loads(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    return json.loads(done.stdout.splitlines()[-1])


def resident(which: str) -> int:
    """Bytes that this process has (VmRSS) or had at most (VmHWM). Not getrusage: its peak is
    inherited from the process that started this one."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) * 1024
    raise MissingError("/proc/self/status: this needs Linux")


def rise(work: Callable[[], Any]) -> int:
    """Bytes by which the peak of resident memory rises; for a process of its own."""
    before = resident("VmRSS")
    work()
    return max(1, resident("VmHWM") - before)
