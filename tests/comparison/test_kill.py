"""A suite killed at any moment and started again ends as one that was not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.comparison.suites import command, results, run
from tests.launcher import Warm, yurii

pytestmark = pytest.mark.slow
RULES = ("gd-lie-trotter", "nesterov-lie-trotter")
MORE = ("--jobs", "2", "--seeds", "0,1")
STEPS = 40


def children(pid: int) -> list[int]:
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def records(suite: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in suite.glob("runs/*/*/metrics.jsonl"))


def until(process: Warm, suite: Path, more: int) -> None:
    """Wait until the suite's runs have written so many records more, or it has ended."""
    first, deadline = records(suite), time.monotonic() + 200
    while process.poll() is None and records(suite) < first + more:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_killed_and_started_again(tmp_path):
    """Alone, or together with its runs."""
    whole = yurii(command(tmp_path / "whole", *MORE, steps=STEPS, rules=RULES))
    assert whole.returncode == 0, whole.stderr
    chance, out = random.Random(0), tmp_path / "killed"
    kills = {"suite": 0, "everything": 0}
    for attempt in range(100):
        words = command(out, *MORE, steps=STEPS, rules=RULES)
        with (tmp_path / "log").open("ab") as log:
            process = Warm(words, stdout=log, stderr=log, env=os.environ)
        until(process, out, chance.randrange(8, 30))
        if process.poll() is not None:
            assert process.returncode == 0, (tmp_path / "log").read_text()[-2000:]
            break
        runs = children(process.pid) if attempt % 2 else []
        process.kill()
        process.wait()
        for each in runs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        kills["everything" if attempt % 2 else "suite"] += 1
    assert min(kills.values()) >= 3, kills
    assert results(out) == results(tmp_path / "whole")


def test_runs_end_with_a_suite_that_is_killed(tmp_path):
    """They are asked to save by the system; the next start waits for those that still do."""
    out = tmp_path / "s"
    words = command(out, "--jobs", "2", steps=4000, rules=RULES)
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    files = [out / "runs" / rule / "seed-0" / "metrics.jsonl" for rule in RULES]
    deadline = time.monotonic() + 200
    while not all(file.exists() and file.read_text().count("\n") > 3 for file in files):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    runs = children(process.pid)
    assert len(runs) == 2
    process.kill()
    process.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in runs):
        assert time.monotonic() < deadline + 100
        time.sleep(0.1)
    for rule in RULES:
        log = (out / "logs" / rule / "seed-0.log").read_text()
        assert "stopped and saved at step" in log


def test_all_the_papers_rules_in_one_suite(tmp_path):
    done = yurii(command(tmp_path / "s", "--jobs", "2", "--rules", "paper", steps=12))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "17 of 17 runs finished" in done.stdout


def test_the_local_executor_of_submitit(tmp_path):
    out = tmp_path / "s"
    words = command(
        out, "--jobs", "2", "--executor", "submitit", "--cluster.kind", "local", rules=RULES
    )
    done = run(words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 runs finished" in done.stdout
    assert list((out / "jobs").glob("*_submitted.pkl"))
    plain = yurii(command(tmp_path / "plain", "--jobs", "2", rules=RULES))
    assert plain.returncode == 0
    assert results(out) == results(tmp_path / "plain")
    bad = "bad: rule=gd-lie-trotter muon_lr=1e5 adamw_lr=1e5 clip=0 warmup=0"
    failed = run([*words, "--arm", bad])
    assert failed.returncode == 1
    assert "failed: bad/seed-0" in failed.stdout
    assert "not finite" in failed.stdout
