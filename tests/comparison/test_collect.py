"""Which runs become which arms."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.comparison.synthetic import configuration, falling, write_run
from yuriiformer.comparison.arms import ArmSpec
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.definition import Request
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.errors import RunError
from yuriiformer.methods.references import get_rule

INIT = {"path": "x", "model": {"sha256": ""}, "rule": {}}
GD, NESTEROV, OWN = "gd-lie-trotter", "nesterov-lie-trotter", "verlet-ama"


def put(folder, rule=GD, seed=0, final=1.0, data="a corpus", **recipe):
    config = configuration(rule, seed=seed, steps=20, **recipe)
    return write_run(folder, config, val=falling(final, 20), data=data)


def suite(path, *arms, preset="tinystories-small", seeds=(0, 1), common=None):
    specs = [ArmSpec(label, label, get_rule(rule)) for label, rule in arms]
    data = {"train_sha256": "0", "folder": "/data"}
    request = Request(preset, specs, seeds, data, common or {"steps": 20, "eval_every": 10}, 1)
    runs = SuiteFolder(path).extend(request, "yurii suite")
    for run in runs:
        config = json.loads(run.config_file.read_text())
        rule = get_rule(dict(arms)[run.label])
        begun = configuration(rule, seed=run.seed, steps=20, setting=preset)
        assert config["recipe"] == begun.to_dict()["recipe"]
    return runs


def fill(runs, finals):
    for run in runs:
        rule = json.loads(run.config_file.read_text())["model"]["rule"]["name"]
        config = configuration(rule, seed=run.seed, steps=20)
        write_run(run.folder.path, config, val=falling(finals[run.label], 20))


def test_loose_runs_are_arms_by_all_but_their_seed(tmp_path):
    for seed in (2, 0, 1):
        put(tmp_path / f"gd{seed}", seed=seed)
        put(tmp_path / f"n{seed}", NESTEROV, seed=seed)
    put(tmp_path / "fast", NESTEROV, seed=0, muon_lr=0.5)
    (comparison,) = collect([tmp_path])
    assert [(arm.label, [run.seed for run in arm.runs]) for arm in comparison.arms] == [
        ("GD+Lie–Trotter", [0, 1, 2]),  # in the catalogue's order
        ("Nesterov+Lie–Trotter, muon_lr=0.5", [0]),
        ("Nesterov+Lie–Trotter, muon_lr=0.02", [0, 1, 2]),
    ]
    assert comparison.baseline.rule.name == GD
    assert comparison.preset is None  # 20 steps are not the paper's


def test_the_machine_makes_no_arm(tmp_path):
    put(tmp_path / "one", seed=0)
    other = configuration(GD, seed=1, steps=20)
    other = replace(other, machine=replace(other.machine, threads=7, micro_batch=2))
    write_run(tmp_path / "two", other, val=falling(1.0, 20))
    (comparison,) = collect([tmp_path])
    assert len(comparison.arms) == 1


def test_the_papers_own_settings_are_known(tmp_path):
    config = configuration(GD, steps=10_000, every=100)
    write_run(tmp_path / "run", config, val=falling(1.0, 10_000), until=5)
    (comparison,) = collect([tmp_path / "run"])
    assert comparison.preset == "tinystories-small"


def test_a_suite_has_its_labels_and_what_has_not_begun_is_said(tmp_path):
    runs = suite(tmp_path, ("plain", GD), ("Yurii's", NESTEROV), ("later", OWN))
    fill([run for run in runs if run.label != "later"], {"plain": 1.0, "Yurii's": 0.9})
    folder = SuiteFolder(tmp_path)
    (late,) = [run for run in runs if run.label == "later" and run.seed == 1]
    folder.note_failure(late, "the disk is full")
    (comparison,) = collect([tmp_path])
    assert [arm.label for arm in comparison.arms] == ["plain", "Yurii's"]
    assert "later, seed 0 has not begun." in comparison.remarks
    assert "later, seed 1 failed before its first step: the disk is full." in comparison.remarks
    folder.note_failure(late, None)
    assert folder.failures() == {}


def test_suites_of_one_preset_are_one_comparison(tmp_path):
    fill(suite(tmp_path / "a", ("plain", GD)), {"plain": 1.0})
    fill(suite(tmp_path / "b", ("fast", NESTEROV)), {"fast": 0.9})
    (comparison,) = collect([tmp_path / "a", tmp_path / "b"])
    assert [arm.slug for arm in comparison.arms] == ["plain", "fast"]
    (same,) = collect([tmp_path])
    assert [arm.slug for arm in same.arms] == ["plain", "fast"]


def test_sizes_are_comparisons_of_their_own(tmp_path):
    for preset in ("openwebtext-small", "openwebtext-medium"):
        for run in suite(tmp_path / preset, ("plain", GD), preset=preset):
            config = configuration(GD, seed=run.seed, steps=20, setting=preset)
            write_run(run.folder.path, config, val=falling(1.0, 20))
    found = collect([tmp_path / "openwebtext-small", tmp_path / "openwebtext-medium"])
    assert [each.name for each in found] == ["openwebtext-small", "openwebtext-medium"]


def test_one_label_for_two_things(tmp_path):
    fill(suite(tmp_path / "a", ("x", GD)), {"x": 1.0})
    fill(suite(tmp_path / "b", ("x", NESTEROV)), {"x": 1.0})
    with pytest.raises(RunError, match="both called 'x' but have different"):
        collect([tmp_path])


def test_what_is_there_twice_counts_once(tmp_path):
    """The run that is further is kept, wherever it is."""
    fill(suite(tmp_path / "a", ("x", GD), seeds=(0,)), {"x": 1.0})
    fill(suite(tmp_path / "b", ("x", GD), seeds=(0, 1)), {"x": 1.0})
    config = configuration(GD, seed=0, steps=20)
    first, again = (tmp_path / name / "runs" / "x" / "seed-0" for name in "ab")
    write_run(first, config, val=falling(1.0, 20), until=10)
    (comparison,) = collect([tmp_path])
    assert [run.folder for run in comparison.arms[0].runs] == [again, again.with_name("seed-1")]
    assert comparison.remarks.count(f"Left out: {first} (the same run as {again}).") == 1
    (comparison,) = collect([tmp_path / "b", tmp_path / "b", again])
    assert [run.step for run in comparison.arms[0].runs] == [20, 20]


def test_refusals(tmp_path):
    put(tmp_path / "one")
    put(tmp_path / "two", NESTEROV, data="another corpus")
    with pytest.raises(RunError, match=r"one .*two were trained on different data \(train_sha256"):
        collect([tmp_path])
    (tmp_path / "begun").mkdir()
    suite(tmp_path / "begun" / "s", ("x", GD))
    with pytest.raises(RunError, match="no run has begun"):
        collect([tmp_path / "begun"])
    (tmp_path / "two" / "config.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=r"two/config.json is damaged"):
        collect([tmp_path])


def test_a_suite_keeps_its_threads_and_extends(tmp_path):
    first = suite(tmp_path, ("a", GD), seeds=(0,))
    request = Request(
        "tinystories-small",
        [ArmSpec("a", "a", get_rule(GD)), ArmSpec("b", "b", get_rule(NESTEROV))],
        (0, 1),
        {"train_sha256": "0", "folder": "/moved"},
        {"steps": 20, "eval_every": 10},
        threads=5,
        baseline="b",
    )
    more = SuiteFolder(tmp_path).extend(request, "yurii suite more")
    assert [run.name for run in more] == ["a/seed-0", "b/seed-0", "a/seed-1", "b/seed-1"]
    saved = SuiteFolder(tmp_path).read()
    assert (saved["threads"], saved["baseline"], saved["seeds"]) == (1, "b", [0, 1])
    assert json.loads(more[3].config_file.read_text())["machine"]["threads"] == 1
    assert first[0] in SuiteFolder(tmp_path).runs()
    with pytest.raises(RunError, match="other data"):
        SuiteFolder(tmp_path).extend(replace(request, data={"train_sha256": "1"}), "x")


def test_kept_apart_one_preset_may_be_run_on_several_data(tmp_path):
    """Suites, and single runs: without ``apart`` it is an error, with it a comparison for each."""
    for name, data in (("one", "stories"), ("two", "pages"), ("three", "stories")):
        for run in suite(tmp_path / name, ("plain", GD), (name, NESTEROV), seeds=(0,)):
            rule = GD if run.label == "plain" else NESTEROV
            put(run.folder.path, rule, final=1.0, data=data)
    for name, data in (("alone", "stories"), ("other", "pages")):
        put(tmp_path / name, OWN, data=data)
    folders = [tmp_path / name for name in ("one", "two", "three", "alone", "other")]
    with pytest.raises(RunError, match="trained on different data"):
        collect(folders)
    found = collect(folders, apart=True)
    assert {each.name: [arm.label for arm in each.arms] for each in found} == {
        "tinystories-small": ["plain", "one", "three"],
        "tinystories-small, two": ["plain", "two"],
        "runs": ["PRK-Verlet (AMA)"],
        "runs, single runs": ["PRK-Verlet (AMA)"],
    }


def test_a_run_from_a_trained_model_is_no_seed_of_the_others(tmp_path):
    """Nor is it the same run as the one with its configuration and its seed."""
    for name, seed in (("plain", 0), ("tuned", 0), ("more", 1)):
        put(tmp_path / name, seed=seed)
    for name in ("tuned", "more"):
        file = tmp_path / name / "config.json"
        saved = {**json.loads(file.read_text()), "init": INIT}
        file.write_text(json.dumps(saved))
    (comparison,) = collect([tmp_path])
    assert {arm.label: [run.folder.name for run in arm.runs] for arm in comparison.arms} == {
        "GD+Lie–Trotter": ["plain"],
        "GD+Lie–Trotter, from a trained model": ["tuned", "more"],
    }
    assert not any("Left out" in remark for remark in comparison.remarks)
