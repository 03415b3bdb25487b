"""Runs the runs of a suite: several at a time, each in its own process.

A run that fails does not stop the others. Finished runs are kept and interrupted ones resume, so a
suite can be started again at any time.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from yuriiformer.comparison.definition import RunSpec
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.progress import RunProgress, SuiteDisplay
from yuriiformer.training.stop import EXIT_CODE, PARENT, Stopper

LOOK_EVERY = 0.3  # seconds


class Job(Protocol):
    """A run that was started."""

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""

    def stop(self) -> None:
        """Ask it to save and leave."""


Launch = Callable[[RunSpec, int], Job]


def command(run: RunSpec, data: Path, processes: int = 1, *, nodes: int = 1) -> list[str]:
    """The command that begins or resumes a run, with ``processes`` processes on each node."""
    paths = [os.path.abspath(path) for path in (run.config_file, data, run.folder.path)]
    train = ["train", "--config", paths[0], "--data", paths[1], "--out", paths[2], "--resume"]
    train += [] if run.init_from is None else ["--init-from", run.init_from]
    if processes * nodes == 1:
        return [sys.executable, "-m", "yuriiformer", *train]
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [sys.executable, *torchrun, "-m", "yuriiformer", *train]


def printed(run: RunSpec, data: Path, processes: int = 1) -> str:
    """The same for a shell, with the installed ``yurii``."""
    program = "yurii" if processes == 1 else "torchrun"
    return shlex.join([program, *command(run, data, processes)[3:]])


class LocalJob:
    """A run in a process on this machine."""

    def __init__(self, words: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | environment | {PARENT: str(os.getpid())},
                start_new_session=True,  # Ctrl-C goes to the suite, which passes it on once
            )

    def poll(self) -> int | None:
        return self.process.poll()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()


def on_this_machine(data: Path, gpus: Sequence[str] = (), processes: int = 1) -> Launch:
    """Starts runs on this machine; with ``gpus``, each slot uses its own."""

    def launch(run: RunSpec, slot: int) -> Job:
        device = {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}
        return LocalJob(command(run, data, processes), run.log, device)

    return launch


def carry_out(
    suite: SuiteFolder,
    runs: Sequence[RunSpec],
    launch: Launch,
    jobs: int,
    listener: SuiteDisplay,
    stopper: Stopper,
) -> list[RunProgress]:
    """Run what is not finished, ``jobs`` at a time, until all are or a signal comes."""
    seen = [RunProgress(run) for run in runs]
    for each in seen:
        each.look()
        if each.run.finished:
            each.end("finished")
    slots: dict[int, tuple[RunProgress, Job]] = {}
    while True:
        _collect(suite, slots, listener)
        if stopper.requested is None:
            _start(suite, seen, slots, launch, jobs, listener)
        else:
            for progress, job in slots.values():
                if progress.state == "running":
                    progress.state = "stopped"
                    job.stop()
        listener.show(seen)
        if not slots and (stopper.requested or not any(map(_waits, seen))):
            break
        time.sleep(LOOK_EVERY)
    for progress in filter(_waits, seen):
        progress.end("stopped")
    return seen


def _waits(progress: RunProgress) -> bool:
    return progress.state in ("waiting", "elsewhere")


def _collect(
    suite: SuiteFolder, slots: dict[int, tuple[RunProgress, Job]], listener: SuiteDisplay
) -> None:
    """Free the slots of runs that have ended."""
    for slot, (progress, job) in list(slots.items()):
        progress.look()
        code = job.poll()
        if code is not None:
            del slots[slot]
            _end(suite, progress, code, listener)


def _start(
    suite: SuiteFolder,
    seen: Sequence[RunProgress],
    slots: dict[int, tuple[RunProgress, Job]],
    launch: Launch,
    jobs: int,
    listener: SuiteDisplay,
) -> None:
    """Fill the free slots. A run that another process is training is waited for."""
    for progress in filter(_waits, seen):
        if progress.run.folder.busy:
            if progress.state == "waiting":
                progress.start("elsewhere")
                listener.say(f"{progress.run.name}: another process is training it; waiting")
            progress.look()
            continue
        if progress.run.finished:  # by that other process
            progress.end("finished")
            continue
        free = next((slot for slot in range(jobs) if slot not in slots), None)
        if free is None:
            return
        progress.start("running")
        suite.note_failure(progress.run, None)
        slots[free] = (progress, launch(progress.run, free))


def _end(suite: SuiteFolder, progress: RunProgress, code: int, listener: SuiteDisplay) -> None:
    run = progress.run
    if code == 0 and run.finished:
        progress.end("finished")
        suite.note_failure(run, None)
        return
    early = progress.state == "stopped" and code < 0  # the signal ended it before it could save
    if early or code == EXIT_CODE:
        progress.end("stopped")
        return
    said = why_it_failed(run.log, progress.logged, code)
    progress.end("failed", said)
    suite.note_failure(run, said)
    listener.say(f"{run.name} failed: {said}")


def why_it_failed(log: Path, start: int, code: int) -> str:
    """The signal that killed a process, or what it wrote into its log from byte ``start`` on."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return last_words(log, start) or f"exit code {code}"


def last_words(log: Path, start: int = 0) -> str:
    """The last error message of a log, from byte ``start`` on."""
    try:
        lines = log.read_bytes()[start:].decode("utf-8", "replace").splitlines()[-200:]
    except OSError:
        return ""
    said = [line.strip() for line in lines if line.strip()]
    ours = [line.removeprefix("yurii: ") for line in said if line.startswith("yurii: ")]
    return (ours or said or [""])[-1][:300]
