"""Small runs, in this process or in processes of their own, and what they leave behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.launcher import PROCESS, Warm
from tests.training.corpora import corpus
from yuriiformer.config import TrainConfig
from yuriiformer.data.prepare import Settings
from yuriiformer.errors import RunError
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.training.presets import preset
from yuriiformer.training.session import train

RULE = "nesterov-lie-trotter"
SECONDS = 300  # to wait for what must come; a test that waits so long has failed


@cache
def tales() -> Path:
    """A small one, of bytes, for all tests of this process."""
    return corpus(300, Settings("bytes", val_fraction=0.1))


def small(
    rule: str = RULE, *, steps: int = 8, eval_every: int = 4, seed: int = 0, **output: Any
) -> TrainConfig:
    """A run of a second: uneven micro-batches, checkpoints at other steps than validations."""
    base = preset("tales-tiny", rule)
    return replace(
        base,
        model=replace(base.model, d_model=32, context=32),
        recipe=replace(base.recipe, steps=steps, sequences=8, seed=seed),
        validation=replace(base.validation, eval_every=eval_every, eval_sequences=8),
        machine=replace(
            base.machine,
            device="cpu",
            micro_batch=3,
            threads=1,
            compile="off",
            precision="float32",
        ),
        output=replace(base.output, **{"save_every": 3, "tensorboard": False, **output}),
    )


@cache
def whole_run() -> Path:
    """What `small` leaves undisturbed, for all tests of this process; they only read it."""
    _homes.append(tempfile.TemporaryDirectory(prefix="yurii-whole-"))
    out = Path(_homes[-1].name) / "run"
    train(small(), tales(), out)
    return out


_homes: list[tempfile.TemporaryDirectory] = []


def command(
    out: Path, *more: str, steps: int, processes: int = 0, elastic: tuple[str, ...] = ()
) -> list[str]:
    """``yurii train``, alone or (``processes``) under torchrun."""
    flags = {
        "--data": tales(),
        "--out": out,
        "--steps": steps,
        "--sequences": 8,
        "--micro-batch": 3,
        "--eval-every": 5,
        "--eval-sequences": 8,
        "--save-every": 3,
        "--threads": 1,
        "--device": "cpu",
        "--precision": "float32",
        "--compile": "off",
    }
    words = [str(word) for pair in flags.items() for word in pair]
    train = ["-m", "yuriiformer", "train", *words, "--no-tensorboard", *more]
    return [sys.executable, *(torchrun(processes, *elastic) if processes else []), *train]


def torchrun(processes: int, *elastic: str) -> list[str]:
    """The words that start so many processes on a free port."""
    run = ["-m", "torch.distributed.run", "--standalone"]
    return [*run, "--nproc-per-node", str(processes), *elastic]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def finish(words: list[str], code: int = 0, **limits: int) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    with tempfile.TemporaryDirectory(prefix="yurii-log-") as home:
        log, errors = Path(home, "out"), Path(home, "err")
        with started(words, log, errors, **limits) as process:
            process.wait(SECONDS)
        done = subprocess.CompletedProcess(
            words, process.returncode, log.read_text(), errors.read_text()
        )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@contextmanager
def started(
    words: list[str], log: Path, errors: Path | None = None, **limits: int
) -> Iterator[subprocess.Popen[bytes] | Warm]:
    """A command under way, its words going to files; ended with the block at the latest. What needs
    no torchrun is in a warm process."""
    start = Warm if words[: len(PROCESS)] == PROCESS else subprocess.Popen
    with (
        log.open("wb") as out,
        nullcontext(out) if errors is None else errors.open("wb") as err,
        start(words, stdout=out, stderr=err, env=environment(), **limits) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()  # torchrun ends its workers
                try:
                    process.wait(60)  # to those that do not listen it gives half a minute
                except subprocess.TimeoutExpired:
                    process.kill()


def wait_for(
    true: Callable[[], bool], process: subprocess.Popen[bytes] | Warm | None = None
) -> bool:
    """Until something is so; False if the process ended before."""
    deadline = time.monotonic() + SECONDS
    while not true():
        if process is not None and process.poll() is not None:
            return true()
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)
    return True


def steps_done(out: Path) -> int:
    """The last step on record; -1 before the first."""
    try:
        records = read_metrics(out / "metrics.jsonl")
    except (FileNotFoundError, RunError):
        return -1
    return records[-1]["step"] if records else -1


def stopped_at(log: Path) -> int:
    """The step that a stopped run says it was saved at."""
    found = re.search(r"stopped and saved at step (\d+).*--resume continues it", log.read_text())
    assert found, log.read_text()
    return int(found[1])


def file_number(path: Path) -> int | None:
    """Another number for each file that has borne the name while the one before it was there."""
    return path.stat().st_ino if path.exists() else None


def metrics(out: Path) -> list[dict[str, Any]]:
    """All records, without what differs from run to run."""
    found = read_metrics(out / "metrics.jsonl")
    return [{key: value for key, value in each.items() if key != "timing"} for each in found]


def losses(out: Path) -> list[tuple[int, float, float]]:
    """Step, loss and validation loss of each record (0 where there is none)."""
    return [(r["step"], r.get("loss", 0.0), r.get("val_loss", 0.0)) for r in metrics(out)]


def weights(out: Path, name: str = "final") -> bytes:
    """All bytes of them, in one file or several."""
    files = sorted((out / "checkpoints" / name).glob("model*.safetensors"))
    assert files
    return b"".join(path.read_bytes() for path in files)


def outcome(out: Path) -> dict[str, Any]:
    """All that two equal runs must have in common."""
    best = (out / "checkpoints" / "best" / "manifest.json").read_bytes()
    return {
        "final": weights(out),
        "best": weights(out, "best"),
        "best manifest": best,
        "metrics": metrics(out),
        "folders": sorted(path.name for path in (out / "checkpoints").iterdir()),
    }


def workers(agent: int) -> dict[int, int]:
    """Process ids of torchrun's workers, by rank."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "environ").read_bytes().split(b"\0") if parent == agent else []
        except (OSError, ValueError, IndexError):
            continue
        ranks = [int(word[5:]) for word in words if word.startswith(b"RANK=")]
        found.update({rank: int(folder.name) for rank in ranks})
    return found


class StopRun(BaseException):
    """Stands for whatever may stop a run; an ordinary error would only cost it the listener."""


class StopAt:
    """A listener that ends a run, without saving, once a step is done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def record(self, record):
        if record["step"] == self.step:
            raise StopRun

    def close(self) -> None:
        pass
