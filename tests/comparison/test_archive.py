"""Archives: small, whole or named, and the same report from them as from the runs."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tests.comparison.studies import DATA, EQUAL, STUDY, begin, request, run_all, study_file
from tests.comparison.suites import SMALL
from tests.comparison.synthetic import configuration, falling, write_run
from tests.launcher import yurii
from tests.training.runs import small, tales
from yuriiformer.cli.main import main
from yuriiformer.cli.parsing import read_settings
from yuriiformer.comparison import archive
from yuriiformer.comparison.archive import (
    Entry,
    SuiteRecord,
    begin_from_archive,
    read_archive,
    read_suite,
    write_archive,
)
from yuriiformer.comparison.archived_run import pack_run, unpack_run
from yuriiformer.comparison.arms import ArmSpec
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.definition import Request
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.study import read_study
from yuriiformer.config import TrainConfig
from yuriiformer.errors import RunError
from yuriiformer.report.payload import Extras, payload
from yuriiformer.report.results import result_table
from yuriiformer.report.tables import json_data
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.runs.run import TaskScore, read_run
from yuriiformer.training.session import train

FINALS = {
    "gd": {0: 1.10, 1: 1.12, 2: 1.11},
    "momentum": {0: 1.02, 1: 1.05, 2: 1.03},
    "own": {0: 1.11, 1: 1.12, 2: 1.12},
}


def without_places(value):
    """Numbers and words, without where they were read from."""
    if isinstance(value, dict):
        return {k: without_places(v) for k, v in value.items() if k not in ("folder", "command")}
    return [without_places(v) for v in value] if isinstance(value, list) else value


def assert_same_report(suite, archive):
    """Cell by cell, number by number."""
    [runs], [kept] = collect([suite]), collect([archive])
    assert result_table(runs) == result_table(kept)
    assert without_places(json_data(runs)) == without_places(json_data(kept))
    assert runs.verdicts == kept.verdicts
    assert runs.remarks == kept.remarks
    return runs, kept


@pytest.mark.parametrize("metric", ["final", "exact", "best"])
def test_a_report_from_the_archive_is_the_report_from_the_runs(tmp_path, metric):
    suite = begin(tmp_path, f'metric = "{metric}"\n{STUDY}{EQUAL}')
    run_all(suite, FINALS, exact=metric == "exact")
    written = write_archive(read_suite(suite), tmp_path / "archive")
    assert (written.added, written.known, written.left) == (9, 0, 0)
    runs, kept = assert_same_report(suite.path, tmp_path / "archive")
    assert [verdict.verdict for verdict in kept.verdicts] == ["supported", "undecided"]
    assert all(kept.primary(each).n == 3 for each in kept.outcomes)
    pages = [without_places(payload([each], Extras())) for each in (runs, kept)]
    for page in pages:
        page.pop("data")  # the archive does not say where they stood
    assert pages[0] == pages[1]


def test_failed_diverged_and_unbegun_runs_are_told_of(tmp_path):
    suite = begin(tmp_path)
    run_all(suite, {"gd": FINALS["gd"], "momentum": {0: 1.0}})
    run_all(suite, {"own": {0: 1.0}}, val=lambda step: np.full_like(step, np.nan))
    specs = {spec.name: spec for spec in suite.runs()}
    config = TrainConfig.from_dict(read_settings(specs["momentum/seed-1"].config_file))
    write_run(specs["momentum/seed-1"].folder.path, config, val=falling(1.0, 20), until=5)
    suite.note_failure(specs["momentum/seed-1"], "killed by SIGKILL")
    suite.note_failure(specs["own/seed-1"], "no room")
    assert write_archive(read_suite(suite), tmp_path / "archive").left == 3
    assert_same_report(suite.path, tmp_path / "archive")
    [kept] = collect([tmp_path / "archive"])
    [verdict] = kept.verdicts
    assert (verdict.verdict, verdict.n) == ("undecided", 1)
    assert verdict.reason == "seeds of momentum failed or diverged"
    said = " ".join(kept.remarks)
    for words in (
        "momentum, seed 1 failed after step 5: killed by SIGKILL",
        "own, seed 0 ended with a loss that is not finite",
        "own, seed 1 failed before its first step: no room",
        "own, seed 2 has not begun",
    ):
        assert words in said


def test_an_archive_can_be_added_to(tmp_path):
    """By the same suite later, by seeds that were run elsewhere, by a study that has grown."""
    suite = begin(tmp_path)
    run_all(suite, {"gd": FINALS["gd"]})
    run_all(suite, {"own": {0: 1.1}}, until=3)
    archive = tmp_path / "archive"
    write_archive(read_suite(suite), archive)
    assert "own, seed 0 had not finished when it was archived." in collect([archive])[0].remarks
    elsewhere = begin(tmp_path / "elsewhere")
    run_all(elsewhere, {"momentum": FINALS["momentum"]})
    assert write_archive(read_suite(elsewhere), archive).added == 3
    suite.extend(request(read_study(study_file(tmp_path, STUDY + EQUAL))), "yurii suite")
    run_all(suite, FINALS)
    written = write_archive(read_suite(suite), archive)
    assert (written.added, written.known) == (3, 6)
    _, kept = assert_same_report(suite.path, archive)
    assert [verdict.late for verdict in kept.verdicts] == [False, True]


def test_scores_and_samples_that_came_later_are_added(tmp_path):
    """And what the archive has of another evaluation stays."""
    suite = begin(tmp_path)
    run_all(suite, FINALS)
    folder = tmp_path / "archive"
    record = read_suite(suite)
    write_archive(record, folder)
    score = TaskScore("arc_easy", "acc_norm", 0.25, 0.01, "best", 100, None)
    words = {
        "checkpoint": "best",
        "step": 20,
        "settings": {"temperature": 0.8, "top_k": 50, "seed": 0},
        "samples": [{"prompt": "Once", "text": " more", "ended": False}],
    }

    def archived(**more):
        first, *others = record.entries
        entries = [replace(first, run=replace(first.run, **more)), *others]
        written = write_archive(replace(record, entries=entries), folder)
        return written, read_archive(folder).entries[0].run

    for _ in range(2):  # in two steps, each of them kept
        assert archived(samples=words)[1].samples == words
    written, run = archived(scores={"arc_easy": score})
    assert (written.added, written.known) == (1, 8)
    assert (run.samples, run.scores) == (words, {"arc_easy": score})
    assert archived()[0].known == 9
    assert np.array_equal(run.curves.loss, record.entries[0].run.curves.loss)


def test_a_suite_begun_from_an_archive_lacks_only_what_the_archive_lacks(tmp_path):
    """Its report and what is late are those of a suite that was never lost."""
    kept = begin(tmp_path / "kept")
    run_all(kept, {"gd": FINALS["gd"], "momentum": {0: 1.02}})
    archive = tmp_path / "archive"
    write_archive(read_suite(kept), archive)
    again = SuiteFolder(tmp_path / "again" / "suite")
    begin_from_archive(again, archive, {**DATA, "folder": "/data/there"})
    for suite in (kept, again):
        suite.extend(request(read_study(study_file(tmp_path, STUDY + EQUAL))), "yurii suite")
        left = {run.name for run in suite.runs() if not run.finished}
        assert left == {f"own/seed-{n}" for n in range(3)} | {"momentum/seed-1", "momentum/seed-2"}
    run_all(kept, FINALS)
    run_all(again, {"own": FINALS["own"], "momentum": {1: 1.05, 2: 1.03}})
    written = write_archive(read_suite(again), archive)
    assert (written.added, written.known, written.left) == (5, 4, 0)
    assert_same_report(kept.path, again.path)
    assert [verdict.late for verdict in collect([again.path])[0].verdicts] == [False, True]
    assert_same_report(kept.path, archive)


def test_a_suite_begins_from_an_archive_of_its_own_data_only(tmp_path):
    suite = begin(tmp_path)
    run_all(suite, {"gd": {0: 1.1}})
    write_archive(read_suite(suite), tmp_path / "archive")
    other = SuiteFolder(tmp_path / "other")
    with pytest.raises(RunError, match="runs on other data"):
        begin_from_archive(other, tmp_path / "archive", {**DATA, "train_tokens": 7})
    assert not other.exists
    begin_from_archive(other, tmp_path / "archive", DATA)
    [file] = other.path.glob("archived/*/*.gz")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(RunError, match=r"seed-0.json.gz is damaged"):
        read_suite(other)


def test_an_archive_cannot_write_outside_the_suite(tmp_path):
    suite = begin(tmp_path)
    run_all(suite, {"gd": {0: 1.1}})
    write_archive(read_suite(suite), tmp_path / "archive")
    content = archive._load(tmp_path / "archive")
    content["runs"]["gd/seed-0"]["slug"] = "../../../outside"
    archive._save(tmp_path / "archive", content)
    with pytest.raises(RunError, match="must be the name of a file"):
        begin_from_archive(SuiteFolder(tmp_path / "a" / "b"), tmp_path / "archive", DATA)
    assert not list(tmp_path.glob("outside*"))


def test_the_suite_command_begins_from_an_archive(tmp_path):
    """Real runs: nothing that the archive has is trained again, and the same command resumes."""
    words = ["suite", "--data", tales(), "--threads", "1", "--set", "steps=4", *SMALL]
    words += ["--rules", "gd-lie-trotter", "--seeds"]
    assert yurii([*words, "0", "--out", tmp_path / "first"]).returncode == 0
    archive = tmp_path / "archive"
    assert yurii(["archive", tmp_path / "first", archive]).returncode == 0
    second = tmp_path / "second"
    for _ in range(2):
        done = yurii([*words, "0,1", "--archive", archive, "--out", second])
        assert done.returncode == 0, done.stderr
        assert f"runs in the archive {archive}: 1" in done.stdout
        assert "2 of 2 runs finished" in done.stdout
    assert [path.name for path in second.glob("runs/*/*")] == ["seed-1"]
    assert len(collect([second])[0].outcomes[0].arm.runs) == 2
    bad = {
        "begun without an archive": [archive, "--out", tmp_path / "first"],
        "it has no archive.json": [tmp_path, "--out", tmp_path / "third"],
    }
    for message, more in bad.items():
        done = yurii([*words, "0", "--archive", *more])
        assert done.returncode == 2
        assert message in done.stderr
    assert not (tmp_path / "third").exists()


def test_nothing_else_is_overwritten_or_mixed(tmp_path):
    suite = begin(tmp_path)
    run_all(suite, FINALS)
    archive = tmp_path / "archive"
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    with pytest.raises(RunError, match="holds something else than an archive"):
        write_archive(read_suite(suite), tmp_path / "notes")
    write_archive(read_suite(suite), archive)
    before = {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    other = begin(tmp_path / "other", STUDY.replace("steps = 20", "steps = 30"))
    run_all(other, FINALS)
    with pytest.raises(RunError, match=r"has another arm 'gd'|another study"):
        write_archive(read_suite(other), archive)
    twin = begin(tmp_path / "twin")
    run_all(twin, {**FINALS, "gd": {0: 1.3}})
    with pytest.raises(RunError, match="another run of 'gd', seed 0: its losses differ"):
        write_archive(read_suite(twin), archive)
    assert before == {path: path.read_bytes() for path in archive.rglob("*") if path.is_file()}
    assert not list(archive.rglob("*.part"))


def test_every_flipped_byte_is_noticed_and_named(tmp_path):
    suite = begin(tmp_path)
    run_all(suite, {label: {0: 1.0} for label in FINALS})
    archive = tmp_path / "archive"
    write_archive(read_suite(suite), archive)
    random = np.random.default_rng(0)
    for path in sorted(archive.rglob("*")):
        if not path.is_file():
            continue
        whole = path.read_bytes()
        places = set(random.integers(0, len(whole), 60).tolist()) | {0, len(whole) - 1}
        for place in places:
            other = whole[place] ^ int(random.integers(1, 256))
            if whole[place : place + 1].isspace():
                other = 9 if whole[place] != 9 else 32  # the JSON would mean the same
            path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
            with pytest.raises(RunError) as caught:
                read_archive(archive)
            assert path.name in str(caught.value)
            assert "\n" not in str(caught.value)
        path.write_bytes(whole[:-9])
        with pytest.raises(RunError, match="damaged"):
            read_archive(archive)
        path.write_bytes(whole)
    gone = archive / "runs" / "gd" / "seed-0.json.gz"
    gone.unlink()
    with pytest.raises(RunError, match="gd/seed-0"):
        read_archive(archive)
    assert write_archive(read_suite(suite), archive).added == 1  # the suite still has it
    read_archive(archive)


def test_large_runs_are_thinned_and_tell_the_same_table(tmp_path):
    """10,000 steps of 24 layers: at most 100 kB, and no cell changes."""
    suite = SuiteFolder(tmp_path / "suite")
    arms = []
    entries = []
    for label, rule, floor in (("a", "gd-lie-trotter", 1.1), ("b", "nesterov-lie-trotter", 1.0)):
        config = configuration(rule, steps=10_000, every=100, setting="openwebtext-medium")
        folder = tmp_path / label
        wander = {
            "mu": lambda s: np.float32(0.01 * np.sin(s / 300)),
            "beta": lambda s: np.float32(-0.1 * np.cos(s / 100)),
        }
        write_run(folder, config, val=falling(floor, 10_000), noise=0.1, coefficients=wander)
        arms.append(ArmSpec(label, label, config.model.rule))
        entries.append(Entry(label, label, 0, read_run(folder)))
    request = Request("openwebtext-medium", arms, [0], DATA)
    suite.extend(request, "")
    record = SuiteRecord(suite.path, suite.read(), entries)
    archive = tmp_path / "archive"
    write_archive(record, archive)
    for path in archive.rglob("*.gz"):
        assert path.stat().st_size < 100_000
    kept = {entry.slug: entry.run for entry in read_archive(archive).entries}
    for entry in entries:
        one, two = entry.run, kept[entry.slug]
        assert len(two.curves.step) < 2_000 < len(one.curves.step)
        for name in ("final", "best", "best_step", "train", "tokens_per_second", "step"):
            assert getattr(one, name) == getattr(two, name)
        assert np.array_equal(one.curves.val_loss, two.curves.val_loss)
        for step in one.curves.val_step:
            assert one.curves.seconds_at(step) == two.curves.seconds_at(step)
        assert one.curves.coefficients[-1:] == two.curves.coefficients[-1:]


def test_a_very_large_run_is_thinned_until_it_fits(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    config = configuration("nesterov-lie-trotter", steps=3_000, setting="openwebtext-medium")
    noise = {name: lambda _: random.standard_normal() for name in config.model.rule.coefficients}
    write_run(tmp_path / "run", config, val=falling(1.0, 3_000), noise=0.1, coefficients=noise)
    run = read_run(tmp_path / "run")
    whole = unpack_run(pack_run(run), tmp_path)
    monkeypatch.setattr("yuriiformer.comparison.archived_run.LARGEST", 60_000)
    packed = pack_run(run)
    assert len(packed) <= 60_000
    kept = unpack_run(packed, tmp_path)
    assert len(kept.curves.step) < len(whole.curves.step)
    assert len(kept.curves.coefficients) < len(whole.curves.coefficients)
    assert np.array_equal(kept.curves.val_loss, run.curves.val_loss)
    assert (kept.final, kept.best, kept.train) == (run.final, run.best, run.train)
    assert kept.curves.coefficients[-1] == whole.curves.coefficients[-1]
    assert pack_run(kept) == packed


def test_a_real_run_comes_back_to_the_bit(tmp_path, capsys):
    """From its archived configuration, on the same machine with the same threads."""
    config = small(steps=6)
    suite = SuiteFolder(tmp_path / "suite")
    arm = ArmSpec("nesterov", "nesterov", config.model.rule)
    suite.extend(Request("tales-tiny", [arm], [0], DATA), "")
    train(config, tales(), tmp_path / "run")
    entry = Entry("nesterov", "nesterov", 0, read_run(tmp_path / "run"))
    write_archive(SuiteRecord(suite.path, suite.read(), [entry]), tmp_path / "archive")
    shutil.rmtree(tmp_path / "suite")
    file = tmp_path / "archive" / "runs" / "nesterov" / "seed-0.json.gz"
    again = ["train", "--config", str(file), "--data", str(tales()), "--out"]
    assert main([*again, str(tmp_path / "again")]) == 0
    capsys.readouterr()

    def numbers(run):
        return [
            {k: v for k, v in record.items() if k != "timing"}
            for record in read_metrics(tmp_path / run / "metrics.jsonl")
        ]

    assert numbers("again") == numbers("run")
    kept = read_archive(tmp_path / "archive").entries[0].run
    assert kept.curves.coefficients == entry.run.curves.coefficients
    assert str(tmp_path) not in gzip.decompress(file.read_bytes()).decode()


def test_the_command(tmp_path, capsys):
    suite = begin(tmp_path)
    run_all(suite, FINALS)
    archive = str(tmp_path / "archive")
    assert main(["archive", str(suite.path), archive]) == 0
    assert "9 runs added" in capsys.readouterr().out
    assert main(["report", archive, "--no-figures", "--out", str(tmp_path / "report")]) == 0
    said = capsys.readouterr().out
    assert "supported     Momentum ends lower than gradient descent" in said
    data = json.loads((tmp_path / "report" / "tables" / "results.json").read_text())
    [hypothesis] = data["hypotheses"]
    assert {"claim", "verdict", "difference", "interval", "p", "late"} <= hypothesis.keys()
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Is it the momentum or the table?" in page
    for words in ([], [str(suite.path)], [str(tmp_path), archive]):
        assert main(["archive", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
