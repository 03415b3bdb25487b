"""``yurii evaluate SUITE``: every finished run once, resumed after a kill, in the report."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from tests.comparison.suites import SMALL
from tests.evaluation.items import made_up
from tests.launcher import yurii
from tests.training.runs import tales
from yuriiformer.cli.main import main
from yuriiformer.comparison import evaluating
from yuriiformer.evaluation.evaluate import is_evaluated
from yuriiformer.evaluation.local_tasks import PAPER_TASKS, parse_tasks

pytest.importorskip("lm_eval", reason="the harness is not installed")
RULES = ("gd-lie-trotter", "nesterov-lie-trotter")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two arms with two seeds; answers must fit into the context."""
    out = tmp_path_factory.mktemp("evaluating") / "suite"
    settings = [each for each in SMALL if not each.startswith("context")]
    words = ("suite", "--data", tales(), "--out", out, "--threads", "1", "--rules", *RULES)
    done = yurii([*words, "--seeds", "0,1", "--set", "steps=2", "context=96", *settings])
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def suite(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "suite")


@pytest.fixture
def tasks(tmp_path):
    return made_up(tmp_path / "tasks", items=26)  # 25 examples


def evaluate(suite, tasks, *more, names="arc_easy@0"):
    words = ("evaluate", suite, "--no-validation", "--tasks", names, "--tasks-data", tasks)
    return yurii([*words, *more])


def stamps(suite):
    return {path: path.stat().st_mtime_ns for path in suite.glob("runs/*/*/evaluation/*@*.json")}


@pytest.mark.slow
def test_every_run_once_and_again_only_what_is_missing(suite, tasks):
    done = evaluate(suite, tasks, "--jobs", "2", names="paper")
    assert done.returncode == 0, done.stderr
    assert "4 evaluated" in done.stdout
    first = stamps(suite)
    assert len(first) == 4 * len(PAPER_TASKS)
    for name in PAPER_TASKS.values():
        assert name in done.stdout
    assert "Nesterov+Lie–Trotter" in done.stdout
    assert "±" in done.stdout  # over seeds
    again = evaluate(suite, tasks, "--jobs", "2", names="paper")
    assert again.returncode == 0
    assert "4 had been evaluated" in again.stdout
    assert stamps(suite) == first
    run = suite / "runs" / RULES[1] / "seed-1"
    (run / "evaluation" / "arc_easy@0-best.json").unlink()  # as a kill before it leaves it
    lines = (run / "evaluation" / "cache.jsonl").read_text().splitlines(keepends=True)
    (run / "evaluation" / "cache.jsonl").write_text("".join(lines[:-3]) + lines[-3][:9])
    third = evaluate(suite, tasks, names="paper")
    assert "1 evaluated, 3 had been evaluated" in third.stdout
    changed = {path for path, when in stamps(suite).items() if first.get(path) != when}
    assert {path.parents[1] for path in changed} == {run}
    scores = json.loads(evaluate(suite, tasks, "--json", names="paper").stdout)
    assert len(scores["skipped"]) == 4
    assert len(scores["scores"][f"runs/{RULES[0]}/seed-0"]) == len(PAPER_TASKS)


def test_a_report_has_the_table_over_seeds(suite, tasks, tmp_path, capsys):
    assert evaluate(suite, tasks, "--limit", "3").returncode == 0
    out = tmp_path / "report"
    assert main(["report", str(suite), "--no-samples", "--no-figures", "--out", str(out)]) == 0
    text = (out / "tables" / "results-downstream.md").read_text()
    assert "ARC-Easy 0-shot" in text
    assert "first items only (--limit)" in text
    assert "GPT-2" not in text  # a part of the tasks has no figure of the paper
    assert "Downstream tasks" in (out / "report.html").read_text()
    assert main(["archive", str(suite), str(tmp_path / "kept")]) == 0
    words = ("report", tmp_path / "kept", "--no-samples", "--no-figures", "--out", tmp_path / "b")
    assert main([*map(str, words)]) == 0
    assert (tmp_path / "b" / "tables" / "results-downstream.md").read_text() == text


class Dies:
    """A job that is killed at once, or waits until it is stopped."""

    def __init__(self, words, log, environment):
        self.words, self.stopped = words, False
        log.parent.mkdir(parents=True, exist_ok=True)

    def poll(self):
        return -9

    def stop(self):
        self.stopped = True


def test_a_killed_evaluation_is_done_again(suite, tasks, monkeypatch):
    real = evaluating.LocalJob

    def start(words, log, environment):
        assert environment["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 2))
        killed = f"{RULES[0]}/seed-1" in words[4]
        return (Dies if killed else real)(words, log, environment)

    monkeypatch.setattr(evaluating, "LocalJob", start)
    words = ("--limit", "2", "--jobs", "2")
    done = evaluate(suite, tasks, *words)
    assert done.returncode == 1
    assert f"{RULES[0]}/seed-1 failed: killed by SIGKILL" in done.stderr
    assert "3 evaluated, 1 failed" in done.stdout
    monkeypatch.undo()
    again = evaluate(suite, tasks, *words)
    assert again.returncode == 0
    assert "1 evaluated, 3 had been evaluated" in again.stdout


def test_a_signal_stops_it(suite, tasks, monkeypatch):
    class Waits(Dies):
        def poll(self):
            return -15 if self.stopped else None

    started = []

    def start(words, log, environment):
        started.append(Waits(words, log, environment))
        os.kill(os.getpid(), 15)
        return started[-1]

    monkeypatch.setattr(evaluating, "LocalJob", start)
    done = evaluate(suite, tasks)
    assert done.returncode == 75
    assert "4 stopped: the same command resumes" in done.stdout
    assert len(started) == 1


def test_what_counts_as_evaluated(suite, tasks):
    assert evaluate(suite, tasks, "--limit", "2").returncode == 0
    run, specs = suite / "runs" / RULES[0] / "seed-0", parse_tasks(["arc_easy@0"])
    assert is_evaluated(run, "best", specs, 2, validation=False)
    assert not is_evaluated(run, "best", specs, None, validation=False)
    assert not is_evaluated(run, "best", specs, 2, validation=True)
    assert not is_evaluated(run, "final", specs, 2, validation=False)
    manifest = run / "checkpoints" / "best" / "manifest.json"
    data = json.loads(manifest.read_text())
    data["files"]["model.safetensors"]["sha256"] = "0" * 64  # the run has continued since
    manifest.write_text(json.dumps(data))
    assert not is_evaluated(run, "best", specs, 2, validation=False)


def test_runs_that_are_not_finished_are_left_out(suite, tasks):
    shutil.rmtree(suite / "runs" / RULES[0] / "seed-0" / "checkpoints" / "final")
    shutil.rmtree(suite / "runs" / RULES[0] / "seed-1")
    done = evaluate(suite, tasks, "--limit", "2")
    assert done.returncode == 0
    assert f"{RULES[0]}/seed-0 is left out: it has not finished" in done.stderr
    assert f"{RULES[0]}/seed-1 is left out: it has not begun" in done.stderr
    assert "2 evaluated, 2 left out" in done.stdout


def test_bad_input(suite, tasks, capsys):
    for more, words in (
        (("--jobs", "0"), "--jobs must be at least 1"),
        (("--out", "x"), "a suite's results stand in its runs"),
    ):
        assert main([*map(str, ("evaluate", suite, *more))]) == 2
        assert words in capsys.readouterr().err
    run = suite / "runs" / RULES[0] / "seed-0"
    assert main(["evaluate", str(run), "--jobs", "2"]) == 2
    assert "--jobs and --gpus are for a suite" in capsys.readouterr().err
    for arm in RULES:
        for seed in (0, 1):
            shutil.rmtree(suite / "runs" / arm / f"seed-{seed}" / "checkpoints")
    assert main(["evaluate", str(suite), "--no-validation", "--tasks", "paper"]) == 2
    assert "no finished run to evaluate" in capsys.readouterr().err
