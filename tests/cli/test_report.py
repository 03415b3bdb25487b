"""``yurii report`` as it is called."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import yuriiformer as yf
from tests.comparison.papers import papers_suite
from tests.training.runs import small, tales
from yuriiformer.cli.main import main
from yuriiformer.comparison.paper import BEST, paper_claims
from yuriiformer.training.session import train

GD, NESTEROV = "gd-lie-trotter", "nesterov-lie-trotter"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two rules, two seeds, trained for a moment."""
    home = tmp_path_factory.mktemp("runs")
    for rule in (GD, NESTEROV):
        for seed in (0, 1):
            train(small(rule, seed=seed), tales(), home / f"{rule}-{seed}")
    return home


def report(capsys, *arguments):
    code = main(["report", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_report_of_loose_runs(runs, tmp_path, capsys):
    out = tmp_path / "out"
    code, said, _ = report(capsys, runs, "--out", out, "--no-figures")
    assert code == 0
    assert "Nesterov+Lie–Trotter" in said
    assert str(out / "report.html") in said
    assert (out / "report.html").stat().st_size > 50_000
    assert not (out / "figures").exists()
    rows = list(csv.DictReader((out / "tables" / "results.csv").read_text().splitlines()))
    assert len(rows) == 4
    data = json.loads((out / "tables" / "results.json").read_text())
    assert NESTEROV in json.dumps(data)
    assert "| Arm |" in (out / "tables" / "results.md").read_text()
    assert r"\toprule" in (out / "tables" / "results.tex").read_text()


def test_figures_in_the_formats_asked_for(runs, tmp_path, capsys):
    words = ("--out", tmp_path, "--no-samples", "--formats", "png", "svg")
    code, said, _ = report(capsys, runs / f"{GD}-0", *words)
    assert code == 0
    assert "figures" in said
    made = [path.name for path in (tmp_path / "figures").iterdir()]
    assert {"loss-curves.png", "loss-curves.svg", "ranking.png", "ranking.svg"} <= set(made)
    assert all(name.endswith((".png", ".svg", ".json")) for name in made)


def test_figures_are_drawn_when_asked_for(runs, tmp_path, capsys):
    words = (runs / f"{GD}-0", "--out", tmp_path, "--no-samples")
    code, said, _ = report(capsys, *words)
    assert code == 0
    assert "figures in" not in said
    assert not (tmp_path / "figures").exists()
    code, said, _ = report(capsys, *words, "--figures")
    assert code == 0
    assert said.index("report.html") < said.index(f"figures in {tmp_path / 'figures'}")
    made = [path.name for path in (tmp_path / "figures").iterdir()]
    assert {"loss-curves.png", "ranking.png", "made.json"} <= set(made)
    assert all(name.endswith((".png", ".json")) for name in made)


def test_kept_samples_need_no_torch(runs, tmp_path, capsys):
    words = ["report", str(runs / f"{NESTEROV}-0"), "--out", str(tmp_path)]
    _, said, _ = report(capsys, *words[1:])
    code = f"""
import sys
from yuriiformer.cli.main import main
assert main({words!r}) == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, encoding="utf-8"
    )
    sample = said.partition("temperature")[2].partition("tables in")[0]  # the table has its width
    assert sample.strip()
    assert sample in done.stdout


def test_samples_have_the_prompts_and_are_kept(runs, tmp_path, capsys):
    words = (
        runs / f"{GD}-0",
        "--out",
        tmp_path,
        "--no-figures",
        "--prompt",
        "Once",
        "--prompt",
        "There",
        "--max-new-tokens",
        "20",
    )
    _, said, _ = report(capsys, *words)
    assert "Once" in said
    made = json.loads((runs / f"{GD}-0" / "samples.json").read_text())
    assert [each["prompt"] for each in made["samples"]] == ["Once", "There"]
    stamp = (runs / f"{GD}-0" / "samples.json").stat().st_mtime_ns
    _, again, _ = report(capsys, *words)
    assert again == said
    assert (runs / f"{GD}-0" / "samples.json").stat().st_mtime_ns == stamp


def test_baseline_by_name(runs, tmp_path, capsys):
    words = (runs, "--out", tmp_path, "--no-figures", "--no-samples")
    _, plain, _ = report(capsys, *words)
    _, other, _ = report(capsys, *words, "--baseline", NESTEROV)
    assert plain != other
    code, _, error = report(capsys, *words, "--baseline", "nesterof-lie-trotter")
    assert code == 2
    assert "did you mean" in error


def test_unfinished_and_half_written(runs, tmp_path, capsys):
    shutil.copytree(runs, tmp_path / "runs")
    file = tmp_path / "runs" / f"{GD}-1" / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:5]) + lines[5][:20])
    code, said, _ = report(capsys, tmp_path / "runs", "--no-figures", "--no-samples")
    assert code == 0
    assert "seed 1 has 4 of 8 steps" in said
    assert (tmp_path / "runs" / "report" / "report.html").exists()
    file.write_text("".join(lines[:3]) + "half\n" + "".join(lines[3:]))
    code, _, error = report(capsys, tmp_path / "runs", "--no-figures", "--no-samples")
    assert code == 2
    assert "line 4 is damaged" in error


def test_a_run_without_checkpoint_or_data_has_no_sample(runs, tmp_path, capsys):
    shutil.copytree(runs / f"{GD}-0", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    code, said, _ = report(capsys, tmp_path / "run", "--no-figures")
    assert code == 0
    assert "no sample: " in said
    assert "no checkpoint yet" in said


def test_what_cannot_be_compared(runs, tmp_path, capsys):
    for change, words in (
        ({"data": {"train_sha256": "0" * 64}}, "trained on different data (train_sha256"),
        ({"config": {"validation": {"eval_sequences": 9, "eval_every": 4}}}, "other sequences"),
    ):
        other = tmp_path / words[:5]
        shutil.copytree(runs / f"{NESTEROV}-0", other)
        saved = json.loads((other / "config.json").read_text())
        for part, values in change.items():
            saved[part] |= values
        (other / "config.json").write_text(json.dumps(saved))
        code, _, error = report(capsys, runs / f"{GD}-0", other, "--out", tmp_path / "out")
        assert code == 2
        assert words in error
        assert str(other) in error
        assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_schedules_that_differ_are_stated(runs, tmp_path, capsys):
    config = small(NESTEROV, steps=4)
    train(replace(config, recipe=replace(config.recipe, muon_lr=0.01)), tales(), tmp_path / "short")
    words = (runs / f"{GD}-0", tmp_path / "short", "--out", tmp_path / "out", "--no-samples")
    code, said, _ = report(capsys, *words, "--no-figures")
    assert code == 0
    assert "steps 4 (baseline 8)" in said
    assert "muon_lr 0.01 (baseline 0.02)" in said
    assert "One seed" in said
    table = (tmp_path / "out" / "tables" / "results.md").read_text()
    assert "steps=4, muon\\_lr=0.01" in table


def test_the_same_run_twice(runs, tmp_path, capsys):
    one, copy = runs / f"{GD}-0", tmp_path / "copy"
    shutil.copytree(one, copy)
    words = ("--out", tmp_path / "out", "--no-samples", "--no-figures")
    code, said, _ = report(capsys, one, one, copy, *words)
    assert code == 0
    assert f"note: Left out: {one} (named twice), {copy} (the same run as {one})." in said
    assert "GD+Lie–Trotter ends at validation loss" in said
    assert "lowest" not in said
    assert "Left out: " in (tmp_path / "out" / "report.html").read_text()
    code, said, _ = report(capsys, runs, one, *words)
    assert code == 0
    assert f"Left out: {one} (named twice)." in said
    assert "Nesterov+Lie–Trotter" in said


def test_models_beside_runs_are_left_out(runs, tmp_path, capsys):
    shutil.copytree(runs / f"{GD}-0", tmp_path / "runs" / "run")
    export, model = tmp_path / "runs" / "export", tmp_path / "runs" / "model"
    assert main(["export", str(runs / f"{GD}-0"), str(export)]) == 0
    yf.save_model(yf.load_model(runs / f"{GD}-0" / "checkpoints" / "best"), model)
    capsys.readouterr()
    code, said, error = report(capsys, tmp_path / "runs", "--no-samples", "--no-figures")
    assert (code, error) == (0, "")
    left = f"{export} (a model, not a run), {model} (a model, not a run)"
    assert f"note: Left out: {left}." in said
    for alone in (export, model):
        code, _, error = report(capsys, alone)
        assert code == 2
        assert f"{str(alone)!r} is a model, not a run" in error
    shutil.rmtree(tmp_path / "runs" / "run")
    code, _, error = report(capsys, tmp_path / "runs")
    assert code == 2
    assert error.endswith(f"(archive.json). Left out: {left}.\n")


@pytest.mark.parametrize("make", [True, False])
def test_nothing_there(tmp_path, capsys, make):
    folder = tmp_path / "empty"
    if make:
        folder.mkdir()
    code, _, error = report(capsys, folder)
    assert code == 2
    assert ("nothing to report in" if make else "no folder") in error
    assert error.count("\n") == 1
    assert report(capsys)[0] == 2


def test_a_folder_that_cannot_be_written(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, _, error = report(capsys, runs, "--out", tmp_path / "file", "--no-samples")
    assert code == 2
    assert "is not a folder" in error


def papers_runs(folder, rules, **options):
    """Run folders of two of the paper's settings with its own numbers; only the last steps of
    records, so that they are short."""
    for setting, steps in (("tinystories-small", 10_000), ("openwebtext-small", 30_000)):
        papers_suite(folder / setting, setting, rules, steps=steps, every=100, **options)
    return folder


@pytest.mark.slow
def test_the_papers_artefacts_from_single_runs(tmp_path, capsys):
    """Two settings on two corpora at once, each recognised by its configuration and its data."""
    rules = ["gd-lie-trotter", "polyak-lie-trotter", "nesterov-lie-trotter"]
    folder = papers_runs(tmp_path / "runs", rules)
    code, _, error = report(capsys, folder, "--no-samples", "--no-figures")
    assert code == 2
    assert "trained on different data" in error
    words = (folder, "--paper", "--no-samples", "--no-figures", "--formats", "png")
    code, said, _ = report(capsys, *words, "--out", tmp_path / "out")
    assert code == 0
    assert "of the paper: 10 of 11 artefacts" in said  # no run was evaluated on tasks
    papers = tmp_path / "out" / "paper"
    table = (papers / "table-2-tinystories.md").read_text()
    assert "| Nesterov+Lie–Trotter | **1.078** | **1.090** | **0.896** |" in table
    assert "| GD+Euler | – | – | – |" in table
    index = (papers / "index.md").read_text()
    assert "in the paper around step 7,600" in index
    assert "yurii evaluate SUITE --tasks paper" in index
    assert (papers / "figure-5-nesterov-polyak.png").stat().st_size > 10_000
    assert "GD+Euler not run" in (papers / "claims.md").read_text()
    data = json.loads((tmp_path / "out" / "tables" / "results.json").read_text())
    presets = {each["preset"] for each in data["comparisons"]}
    assert presets == {"tinystories-small", "openwebtext-small"}
    asked = [claim for claim in paper_claims() if claim.setting in presets]
    of_losses = [claim for claim in asked if claim.metric == BEST]  # no run was evaluated on tasks
    assert len(data["claims"]) == len(of_losses) < len(asked)
    code, *_ = report(capsys, *words, "--out", tmp_path / "out")  # over itself
    assert code == 0


def test_the_paper_of_runs_that_are_not_its_own(runs, tmp_path, capsys):
    words = ("--paper", "--no-samples", "--no-figures", "--formats", "svg", "--out", tmp_path)
    code, said, _ = report(capsys, runs, *words)
    assert code == 0
    assert "of the paper: 2 of 11 artefacts" in said  # the blocks are of rules, not of runs
    assert "note: These runs stand for no setting of the paper" in said
    made = {path.name for path in (tmp_path / "paper").iterdir()}
    assert made == {"index.md", "tables.tex", "figure-1-blocks.svg", "figure-4-polyak-block.svg"}


def test_arms_and_smoothing_that_cannot_be(runs, tmp_path, capsys):
    words = (runs, "--no-samples", "--no-figures", "--out", tmp_path)
    code, _, error = report(capsys, *words, "--arms", "nesterof-lie-trotter")
    assert code == 2
    assert "--arms: no arm 'nesterof-lie-trotter' (did you mean" in error
    code, _, error = report(capsys, *words, "--smooth", "-1")
    assert code == 2
    assert "--smooth must be a number of steps from 0 on" in error
    code, _, error = report(capsys, *words, "--smooth", "200")
    assert code == 2
    assert "--smooth is for a figure of the paper: give --paper too" in error
