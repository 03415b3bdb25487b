"""Suites as they are run: finished runs kept, failures apart, what is asked for extended."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import signal

import pytest

from tests.comparison.suites import command, definition, results
from tests.launcher import yurii
from tests.training.runs import started, steps_done, tales, wait_for
from yuriiformer.cli.main import main
from yuriiformer.comparison.archive import read_archive
from yuriiformer.comparison.definition import RunSpec
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.progress import RunProgress, SuiteDisplay, overall
from yuriiformer.comparison.running import carry_out, last_words
from yuriiformer.training.stop import Stopper

RULES = ("gd-lie-trotter", "nesterov-lie-trotter")
EXPLODES = (
    "--arm",
    "explodes: rule=gd-lie-trotter muon_lr=1e5 adamw_lr=1e5 clip=0 warmup=0",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A suite of two rules and one seed, run once."""
    out = tmp_path_factory.mktemp("suite") / "s"
    done = yurii(command(out, "--jobs", "2", rules=RULES))
    assert done.returncode == 0, done.stderr
    return out, done


def test_a_suite_runs_and_says_what_came_out(finished):
    out, done = finished
    assert "2 of 2 runs finished" in done.stdout
    assert "GD+Lie–Trotter" in done.stdout
    assert f"yurii report {out}" in done.stdout
    for rule in RULES:
        assert f"{rule}/seed-0 begins" in done.stderr
        assert f"{rule}/seed-0 finished: validation loss" in done.stderr
        assert (out / "runs" / rule / "seed-0" / "checkpoints" / "final").is_dir()
    assert definition(out)["threads"] == 1


def test_the_same_command_again_changes_nothing(finished):
    out, _ = finished
    before = results(out)
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/*/metrics.jsonl")}
    for words in (command(out, rules=RULES), [*command(out)[:4], "--out", str(out)]):
        again = yurii(words)
        assert again.returncode == 0, again.stderr
        assert "was finished already" in again.stderr
    assert results(out) == before
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}


@pytest.fixture(scope="module")
def extended(finished, tmp_path_factory):
    """The same with two arms more, of which the first fails."""
    out = tmp_path_factory.mktemp("extended") / "s"
    shutil.copytree(finished[0], out)
    done = yurii(command(out, *EXPLODES, "--arm", "twin: rule=gd-lie-trotter"))
    return out, done


def test_runs_can_begin_from_a_model_of_their_seed(finished, tmp_path):
    model, out = finished[0] / "runs" / RULES[0] / "seed-{seed}", tmp_path / "s"
    words = command(out, "--init-from", str(model), rules=["nesterov-gated"])
    done = yurii(words)
    assert done.returncode == 0, done.stderr
    config = json.loads((out / "runs" / "nesterov-gated" / "seed-0" / "config.json").read_text())
    assert config["init"]["path"] == str(model).format(seed=0)
    again = yurii([*command(out)[:4], "--out", str(out)])  # it knows the model
    assert again.returncode == 0, again.stderr
    other = yurii(command(out, rules=["nesterov-gated"]))
    assert "begin from" in other.stderr
    assert other.returncode == 2
    assert yurii(["archive", out, tmp_path / "a"]).returncode == 0
    [run] = [entry.run for entry in read_archive(tmp_path / "a").entries]
    assert run.saved["init"]["loss_before"] == config["init"]["loss_before"]
    assert "path" not in run.saved["init"]
    assert str(model.parent) not in (tmp_path / "a" / "archive.json").read_text()
    lost = command(tmp_path / "t", "--archive", str(tmp_path / "a"), "--init-from", str(model))
    again = yurii([*lost, "--rules", "nesterov-gated"])
    assert again.returncode == 0, again.stderr


def test_seeds_share_batches_and_start(extended):
    """What is paired: the same loss before training wherever two rules start alike, and the same
    data, so two arms of one rule under two labels are equal to the bit."""
    out, _ = extended
    found = results(out, "[!e]*")  # not of the one that fails
    assert found["runs/twin/seed-0"] == found["runs/gd-lie-trotter/seed-0"]
    assert found["runs/twin/seed-0"] != found["runs/nesterov-lie-trotter/seed-0"]
    assert [arm["slug"] for arm in definition(out)["arms"]] == [*RULES, "explodes", "twin"]
    assert "twin" in definition(out)["commands"][-1]


def test_a_run_that_fails_does_not_stop_the_others(extended):
    out, done = extended
    assert done.returncode == 1
    assert "failed: explodes/seed-0: " in done.stdout
    assert "not finite" in done.stdout
    assert "1 of 2 runs finished, 1 failed" in done.stdout
    assert "twin/seed-0 finished" in done.stderr
    assert list(SuiteFolder(out).failures()) == ["explodes/seed-0"]
    again = yurii(command(out, *EXPLODES))
    assert again.returncode == 1  # tried again, and it fails again
    assert "explodes/seed-0 begins" in again.stderr or "explodes/seed-0 resumes" in again.stderr


def test_an_arm_cannot_change_under_its_name(finished):
    out, _ = finished
    for more, words in (
        (("--arm", "nesterov-lie-trotter: rule=gd-lie-trotter"), "another configuration (rule"),
        (("--arm", "Nesterov+Lie–Trotter: rule=gd-euler"), "two arms are called"),
        (("--rules", "gd-lie-trotter", "--preset", "cpu-tinystories"), "with the preset"),
    ):
        refused = yurii(command(out, *more))
        assert refused.returncode == 2
        assert words in refused.stderr
        assert refused.stderr.count("\n") == 1
    refused = yurii(command(out, steps=9, rules=RULES))
    assert "steps 8 -> 9" in refused.stderr


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """The commands of a suite of two seeds, printed, and given one after the other."""
    out = tmp_path_factory.mktemp("by_hand") / "s"
    done = yurii(command(out, "--print-commands", "--seeds", "0,1", rules=RULES))
    assert done.returncode == 0
    assert not (out / "runs").exists()
    lines = done.stdout.splitlines()
    for line in lines:
        assert yurii(shlex.split(line)[1:]).returncode == 0, line
    return out, lines


def test_commands_are_printed_and_work(by_hand):
    out, lines = by_hand
    assert len(lines) == 4
    assert all(line.startswith("yurii train --config ") for line in lines)
    rest = yurii(command(out, "--seeds", "0,1", rules=RULES))
    assert rest.returncode == 0
    for rule in RULES:
        for seed in (0, 1):
            assert f"{rule}/seed-{seed} was finished already" in rest.stderr
    several = yurii(
        command(out, "--print-commands", "--processes", "2", "--seeds", "0", rules=RULES)
    )
    assert several.stdout.startswith(
        "torchrun --standalone --nproc-per-node=2 -m yuriiformer train"
    )


def test_seeds_can_be_added_to_what_is_there(finished, by_hand, tmp_path):
    out = tmp_path / "copy"
    shutil.copytree(finished[0], out)
    alone = [*command(out)[:4], "--out", str(out)]
    more = yurii([*alone, "--seeds", "0,1"])
    assert more.returncode == 0, more.stderr
    for rule in RULES:
        assert f"{rule}/seed-0 was finished already" in more.stderr
    # Run together, added later or given by hand: the same runs, to the bit.
    assert results(out) == results(by_hand[0])
    for words in (["--set", "steps=3"], ["--preset", "cpu-tinystories"], ["--baseline", "x"]):
        refused = yurii([*alone, *words])
        assert refused.returncode == 2
        assert "needs --rules or --arm" in refused.stderr
    from tests.training.corpora import tales as others

    refused = yurii([*alone, "--data", str(others())])
    assert refused.returncode == 2
    assert "other data" in refused.stderr


def test_only_one_suite_at_a_time(finished):
    out, _ = finished
    with SuiteFolder(out).taken():
        refused = yurii([*command(out)[:4], "--out", str(out)])
        more = yurii(command(out, "--arm", "late: rule=gd-euler"))
    assert "another process is running the suite" in refused.stderr
    assert refused.returncode == more.returncode == 2
    assert "late" not in [arm["slug"] for arm in definition(out)["arms"]]


def test_a_damaged_definition_is_named(tmp_path):
    (tmp_path / "suite.json").write_text('{"format": 1, "arms": [{}]}')
    refused = yurii([*command(tmp_path)[:4], "--out", str(tmp_path)])
    assert refused.returncode == 2
    assert "suite.json is damaged" in refused.stderr


def test_a_signal_stops_all_and_they_go_on(tmp_path):
    out, log, errors = (tmp_path / name for name in ("s", "out", "err"))
    folders = [RunSpec(rule, rule, 0, out, 400).folder for rule in RULES]
    with started(command(out, "--jobs", "2", steps=400, rules=RULES), log, errors) as process:
        assert wait_for(lambda: all(steps_done(folder.path) > 5 for folder in folders), process)
        process.send_signal(signal.SIGINT)
        assert process.wait(200) == 75, errors.read_text()
    assert "the same command resumes" in log.read_text()
    for folder in folders:
        assert not folder.busy
        last = json.loads((folder.checkpoints / "last" / "manifest.json").read_text())
        assert last["about"]["step"] >= 5
    assert not SuiteFolder(out).failures()


def test_a_run_is_a_process_of_its_own(tmp_path, monkeypatch, capsys):
    """A real one, which here goes no further than to torch, as that takes seconds."""
    (tmp_path / "torch.py").write_text("raise SystemExit('no torch today')")
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    out = tmp_path / "s"
    assert main(command(out, rules=RULES[:1])[3:]) == 1
    name = f"{RULES[0]}/seed-0"
    assert f"failed: {name}: no torch today" in capsys.readouterr().out
    assert SuiteFolder(out).failures() == {name: "no torch today"}
    assert "no torch today" in (out / "logs" / f"{name}.log").read_text()


class _Job:
    def __init__(self, codes):
        self.codes, self.stopped = list(codes), False

    def poll(self):
        return self.codes.pop(0) if self.codes else 0

    def stop(self):
        self.stopped = True


def test_no_more_jobs_than_asked_for(tmp_path, monkeypatch):
    """The number of runs at a time, whatever their order of ending."""
    monkeypatch.setattr("yuriiformer.comparison.running.LOOK_EVERY", 0.001)
    runs = [RunSpec(f"a{i}", f"a{i}", 0, tmp_path, 5) for i in range(7)]
    active, most = set(), []

    class Job(_Job):
        def __init__(self, name, rounds):
            super().__init__([None] * rounds)
            self.name = name
            active.add(name)
            most.append(len(active))

        def poll(self):
            code = super().poll()
            if code is not None:
                active.discard(self.name)
            return code

    def launch(run, slot):
        assert slot < 3
        return Job(run.name, 1 + hash(run.name) % 4)

    display = SuiteDisplay(io.StringIO())
    ended = carry_out(SuiteFolder(tmp_path), runs, launch, 3, display, Stopper())
    assert max(most) == 3
    assert len(most) == 7
    # Exit code 0, but no final model: that is no success.
    assert [each.state for each in ended] == ["failed"] * 7
    assert ended[0].said == "exit code 0"
    assert set(SuiteFolder(tmp_path).failures()) == {each.name for each in runs}


def test_a_run_that_is_killed_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr("yuriiformer.comparison.running.LOOK_EVERY", 0.001)
    suite, runs = SuiteFolder(tmp_path), [RunSpec("a", "a", 0, tmp_path, 5)]
    runs[0].log.parent.mkdir(parents=True)
    runs[0].log.write_text("step 3/5 loss 2.0\n")
    seen = []

    def launch(run, slot):
        seen.append(dict(suite.failures()))
        return _Job([None, -9])

    display = SuiteDisplay(io.StringIO())
    for _ in range(2):
        (ended,) = carry_out(suite, runs, launch, 1, display, Stopper())
        assert (ended.state, ended.said) == ("failed", "killed by SIGKILL")
        assert suite.failures() == {"a/seed-0": "killed by SIGKILL"}
    assert seen == [{}, {}]  # while it runs again, it has not failed


def test_last_words(tmp_path):
    log = tmp_path / "log"
    assert last_words(log) == ""
    log.write_text("step 1\nyurii: the disk is full\nTraceback\n  File x\n\n")
    assert last_words(log) == "the disk is full"
    log.write_text("step 1\nKilled\n\n")
    assert last_words(log) == "Killed"


def test_progress_follows_a_run_that_cuts_its_records(tmp_path):
    spec = RunSpec("a", "a", 0, tmp_path, 100)
    spec.folder.path.mkdir(parents=True)
    file = spec.folder.metrics_file
    each = RunProgress(spec)
    each.start("running")
    file.write_text(
        '{"step": 1, "loss": 3.0, "timing": {"tokens_per_second": 10}}\n{"step": 2, "lo'
    )
    each.look()
    assert (each.step, each.loss, each.speed) == (1, 3.0, 10.0)
    with file.open("a") as more:
        more.write('ss": 2.5, "val_loss": 2.0}\n')
    each.look()
    assert (each.step, each.loss, each.val_loss, each.best) == (2, 2.5, 2.0, 2.0)
    part = tmp_path / "part"
    part.write_text('{"step": 1, "loss": 9.0}\n')
    part.rename(file)
    each.look()
    assert each.step == 1
    with file.open("a") as more:
        more.write('{"step": 2, "val_loss": 2.0}\n{"step": 3, "val_loss": "nan"}\n')
    each.look()
    assert str(each.val_loss) == "nan"  # not the one before
    assert each.best == 2.0
    each.end("finished")
    assert overall([each]) == "1 of 1 runs finished"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--seeds", ""), "--seeds needs at least one"),
        (("--jobs", "99"), "more than this machine's"),
        (("--jobs", "0"), "at least 1"),
        (("--grid", "muon_lr=1,2", "--rules"), "nothing to compare"),
        (("--rules", "nesterov"), "unknown rule 'nesterov'"),
        (("--rules", "gd-euler", "--baseline", "verlet-ama"), "is no arm; there are gd-euler"),
        (("--rules", "gd-euler", "--preset", "huge"), "unknown preset 'huge'"),
        (("--rules", "gd-euler", "--no-wait"), "--executor submitit"),
        (("--rules", "gd-euler", "--data", "nowhere"), "no prepared data in 'nowhere'"),
    ],
)
def test_bad_input_is_one_line(tmp_path, more, words, capsys):
    arguments = ["suite", "--data", str(tales()), "--out", str(tmp_path / "s"), *more]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "s").exists()


def test_out_is_needed(capsys):
    assert main(["suite", "--rules", "gd-euler"]) == 2
    assert "--out is needed" in capsys.readouterr().err
