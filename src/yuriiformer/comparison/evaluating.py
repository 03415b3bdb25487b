"""Evaluates the finished runs of a suite, several at a time, each in a process of its own.

Results stand in the runs' folders, where the report finds them. A run that has all results of its
checkpoint is skipped; one whose evaluation was killed is done again, and what it had answered is
in its cache.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from yuriiformer.comparison.definition import RunSpec
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.running import LOOK_EVERY, Job, LocalJob, why_it_failed
from yuriiformer.errors import RunError
from yuriiformer.evaluation.evaluate import is_evaluated
from yuriiformer.evaluation.local_tasks import TaskSpec
from yuriiformer.files import take_lock
from yuriiformer.sizes import cores
from yuriiformer.training.stop import Stopper


@dataclass(frozen=True)
class Asked:
    """What to measure of every run; ``flags`` ask ``yurii evaluate`` for the same."""

    tasks: Sequence[TaskSpec]
    checkpoint: str
    limit: int | None
    validation: bool
    flags: Sequence[str]
    gpus: Sequence[str] = ()

    def done(self, run: RunSpec) -> bool:
        folder = run.folder.path
        return is_evaluated(
            folder, self.checkpoint, self.tasks, self.limit, validation=self.validation
        )


@dataclass
class Ended:
    """Runs by name: those evaluated now, those that were already, those that failed, those that a
    signal stopped, those that cannot be evaluated."""

    evaluated: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, list[str]]:
        return dict(vars(self))

    @property
    def text(self) -> str:
        words = {
            "evaluated": "evaluated",
            "skipped": "had been evaluated",
            "failed": "failed",
            "stopped": "stopped: the same command resumes",
            "left_out": "left out",
        }
        told = [f"{len(names)} {words[key]}" for key, names in self.counts.items() if names]
        return ", ".join(told) or "nothing to evaluate"


def evaluate_runs(suite: SuiteFolder, asked: Asked, jobs: int, stopper: Stopper) -> Ended:
    """Evaluate every finished run of a suite; a run that fails does not stop the others. One
    evaluation at a time; training may continue meanwhile."""
    ended = Ended()
    busy = f"another process is evaluating the suite {suite.path}"
    with take_lock(suite.path / ".evaluating", busy):
        waiting = []
        for run in suite.runs():
            missing = _missing(run)
            if missing:
                ended.left_out.append(run.name)
                _say(f"{run.name} is left out: {missing}")
            elif asked.done(run):
                ended.skipped.append(run.name)
            else:
                waiting.append(run)
        if not waiting and not ended.skipped:
            raise RunError(f"{suite.path} has no finished run to evaluate: train it first")
        _carry_out(waiting, asked, jobs, stopper, ended)
    return ended


def _missing(run: RunSpec) -> str:
    """Why a run cannot be evaluated; empty if it can."""
    if not run.folder.exists:
        return "its model is not archived" if run.archived.exists() else "it has not begun"
    return "" if run.finished else "it has not finished"


def _carry_out(
    waiting: list[RunSpec], asked: Asked, jobs: int, stopper: Stopper, ended: Ended
) -> None:
    slots: dict[int, tuple[RunSpec, Job, int]] = {}
    while waiting or slots:
        for slot, (run, job, logged) in list(slots.items()):
            code = job.poll()
            if code is not None:
                del slots[slot]
                _end(run, code, logged, asked, stopper, ended)
        if stopper.requested is not None:
            for _, job, _ in slots.values():
                job.stop()
            ended.stopped += [run.name for run in waiting]
            waiting = []
        for slot in [slot for slot in range(jobs) if slot not in slots][: len(waiting)]:
            run = waiting.pop(0)
            log = _log(run)
            logged = log.stat().st_size if log.exists() else 0
            slots[slot] = (run, _start(run, asked, jobs, slot), logged)
            _say(f"{run.name}: evaluating")
        time.sleep(LOOK_EVERY)


def _start(run: RunSpec, asked: Asked, jobs: int, slot: int) -> Job:
    folder = os.path.abspath(run.folder.path)
    words = [sys.executable, "-m", "yuriiformer", "evaluate", folder]
    environment = {"OMP_NUM_THREADS": str(max(1, cores() // jobs))}
    if asked.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = asked.gpus[slot % len(asked.gpus)]
    words += ["--checkpoint", asked.checkpoint, *asked.flags]
    return LocalJob(words, _log(run), environment)


def _log(run: RunSpec) -> Path:
    return run.log.with_name(f"seed-{run.seed}-evaluation.log")


def _end(
    run: RunSpec, code: int, logged: int, asked: Asked, stopper: Stopper, ended: Ended
) -> None:
    if code == 0 and asked.done(run):
        ended.evaluated.append(run.name)
        _say(f"{run.name}: evaluated")
    elif stopper.requested is not None:
        ended.stopped.append(run.name)
    else:
        ended.failed.append(run.name)
        said = why_it_failed(_log(run), logged, code)
        _say(f"{run.name} failed: {said} (all of it: {_log(run)})")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
