"""Runs that are killed or stopped again and again end with the bits of one that never was."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.training.runs import (
    command,
    file_number,
    finish,
    losses,
    metrics,
    outcome,
    small,
    started,
    steps_done,
    stopped_at,
    tales,
    wait_for,
    weights,
    whole_run,
)
from yuriiformer.training.session import train


def test_the_same_seed_gives_the_same_bits(tmp_path):
    for name, seed in (("one", 0), ("other", 1)):
        train(small(seed=seed), tales(), tmp_path / name)
    assert outcome(tmp_path / "one") == outcome(whole_run())
    assert weights(tmp_path / "one") != weights(tmp_path / "other")
    assert weights(tmp_path / "one") != weights(tmp_path / "one", "last.previous")


class Kills:
    """kill -9 at random moments of runs into one folder, and what each of them hit."""

    def __init__(self, words: list[str], out: Path, steps: int, start: float, whole: float) -> None:
        self.words, self.out, self.steps = words, out, steps
        self.start, self.whole = start, whole  # seconds until training begins, and in all
        self.reached: list[int] = []  # steps done at each kill
        self.training = self.saving = 0

    def kill_one(self, generator: random.Random) -> bool:
        """Start or resume, and kill; False if the run was finished before."""
        path = self.out / "metrics.jsonl"
        before = file_number(path)  # the file is written anew when a run resumes
        early = generator.random() < 0.2
        with started(self.words, self.out.with_name("log")) as process:
            if early:
                time.sleep(generator.uniform(0.0, self.start))
            elif wait_for(lambda: file_number(path) not in (None, before), process):
                time.sleep(generator.uniform(0.0, 0.4 * (self.whole - self.start)))
            if process.poll() is None:
                process.kill()
            if process.wait() != -signal.SIGKILL:
                assert process.returncode == 0, self.out.with_name("log").read_text()
                return False
        self.reached.append(steps_done(self.out))
        began = file_number(path) not in (None, before)
        self.training += began and 0 < self.reached[-1] < self.steps
        self.saving += any(self.out.glob("checkpoints/*.part"))
        return True

    def enough(self, wanted: int) -> bool:
        """So many, at least half of them in mid-training and one while a checkpoint was written."""
        return len(self.reached) >= wanted and 2 * self.training >= wanted and self.saving > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "seed"), [("nesterov-lie-trotter", 0), ("hamiltonian", 1), ("gd-lie-trotter", 2)]
)
def test_killed_at_many_moments(tmp_path, rule, seed):
    steps, wanted, generator = 60, 7, random.Random(seed)
    whole, out = tmp_path / "whole", tmp_path / "out"
    began = time.monotonic()
    with started(command(whole, "--rule", rule, steps=steps), tmp_path / "whole.log") as process:
        wait_for(lambda: steps_done(whole) >= 0, process)
        start = time.monotonic() - began
        assert process.wait() == 0, (tmp_path / "whole.log").read_text()
    words = command(out, "--rule", rule, "--resume", steps=steps)
    kills = Kills(words, out, steps, start, time.monotonic() - began)
    while not kills.enough(wanted):
        assert len(kills.reached) < 5 * wanted
        if not kills.kill_one(generator):
            assert outcome(out) == outcome(whole)
            shutil.rmtree(out)
    done = finish(words)
    assert "Traceback" not in done.stderr
    assert outcome(out) == outcome(whole)
    assert [record["step"] for record in metrics(out)] == list(range(steps + 1))


@pytest.mark.slow
def test_stopped_many_times(tmp_path):
    """SIGTERM at random moments: each time exit code 75, and nothing lost."""
    steps, generator, stops = 40, random.Random(3), []
    finish(command(tmp_path / "whole", steps=steps))
    out = tmp_path / "out"
    path = out / "metrics.jsonl"
    while len(stops) < 4:
        before = file_number(path)
        words = command(out, "--resume", steps=steps)
        with started(words, tmp_path / "log") as process:
            wait_for(lambda before=before: file_number(path) not in (None, before), process)
            time.sleep(generator.uniform(0.0, 0.3))
            process.terminate()
            code = process.wait()
        assert code == 75, (tmp_path / "log").read_text()
        stops.append(stopped_at(tmp_path / "log"))
        assert stops[-1] - steps_done(out) in (0, 1)  # 1: its validation is still to be done
    assert stops == sorted(stops)
    assert 0 < stops[-1] < steps
    finish(command(out, "--resume", steps=steps))
    assert outcome(out) == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_from_one_process_to_two_and_back(tmp_path):
    """Another number of processes continues with the same batches: losses agree up to rounding."""
    steps = 40
    whole, out = tmp_path / "whole", tmp_path / "out"
    finish(command(whole, steps=steps))
    stops = []
    for processes, least in ((0, 8), (2, 20)):
        words = command(out, "--resume", steps=steps, processes=processes)
        with started(words, tmp_path / "log") as process:
            wait_for(lambda least=least: steps_done(out) >= least, process)
            process.terminate()
            process.wait()
        stops.append(stopped_at(tmp_path / "log"))
        if processes:
            said = (tmp_path / "log").read_text()
            assert "note: processes was 1 and is now 2" in said
            assert f"resuming from step {stops[0]}" in said
    assert 8 <= stops[0] < 20 <= stops[1] < steps
    finish(command(out, "--resume", steps=steps))
    expected = losses(whole)
    assert [each[0] for each in losses(out)] == [each[0] for each in expected]
    for found, wanted in zip(losses(out), expected, strict=True):
        assert found == pytest.approx(wanted, abs=1e-5)
    # Up to the first stop there was but one process: the same to the bit.
    assert metrics(out)[: stops[0]] == metrics(whole)[: stops[0]]
