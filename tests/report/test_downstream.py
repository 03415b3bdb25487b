"""The table of downstream tasks: what is read, what is bold, what stands beside."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.comparison.synthetic import arm
from yuriiformer.comparison import outcomes
from yuriiformer.report.downstream import downstream_latex, downstream_table
from yuriiformer.report.payload import Extras, payload
from yuriiformer.report.tables import markdown, terminal_table
from yuriiformer.runs.run import read_run, read_scores

GD, NESTEROV, POLYAK = "gd-lie-trotter", "nesterov-lie-trotter", "polyak-lie-trotter"


def put(run, task, value, stderr=0.005, *, checkpoint="best", limit=None, sha="1"):
    folder = run.folder / "evaluation"
    folder.mkdir(exist_ok=True)
    name = task.partition("@")[0]
    scores = {"acc": {"value": 0.1, "stderr": 0.1}, "acc_norm": {"value": value, "stderr": stderr}}
    manifest = run.folder / "checkpoints" / checkpoint / "manifest.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(json.dumps({"files": {"model.safetensors": {"sha256": sha}}}))
    about = {
        "checkpoint": checkpoint,
        "sha256": sha,
        "limit": limit,
        "items": {name: limit or 1000},
        "items_there": {name: 1000},
    }
    data = {"task": task, **about, "scores": {name: scores}}
    (folder / f"{task}-{checkpoint}-{limit}.json").write_text(json.dumps(data))


def compare(arms, **options):
    """With the results that were put there since the runs were read."""
    fresh = [replace(arm, runs=[read_run(run.folder) for run in arm.runs]) for arm in arms]
    return outcomes.compare_arms(fresh, **options)


def cells(table, slug):
    (row,) = [row for row in table.rows if row.arm_slug == slug]
    return {key: cell.text for key, cell in row.cells.items()}


def test_bold_are_the_top_two_with_ties(tmp_path):
    """The paper's own column: 41.2 first, and two tied for second at 41.1."""
    values = {GD: 0.394, NESTEROV: 0.4112, POLYAK: 0.4108, "nesterov-euler": 0.412}
    arms = [arm(tmp_path, rule, {0: 1.0}) for rule in values]
    for each, value in zip(arms, values.values(), strict=True):
        put(each.runs[0], "arc_easy@0", value, 0.01)
    table = downstream_table(compare(arms))
    bold = {row.arm_slug: row.cells["arc_easy@0"].bold for row in table.rows if row.arm_slug}
    assert bold == {GD: False, NESTEROV: True, POLYAK: True, "nesterov-euler": True}
    assert cells(table, GD)["arc_easy@0"] == "39.4 ± 1.0"
    assert "GPT-2 124M (released)" in markdown(table)
    assert "39.5" in terminal_table(table)


def test_seeds_give_an_interval_and_the_paper_stands_beside(tmp_path):
    options = {"setting": "openwebtext-small", "steps": 30_000, "every": 100, "until": {0: 3, 1: 3}}
    base = arm(tmp_path, GD, {0: 3.0, 1: 3.0}, **options)
    put(base.runs[0], "hellaswag@10", 0.30)
    put(base.runs[1], "hellaswag@10", 0.32)
    table = downstream_table(compare([base], preset="openwebtext-small"))
    # t(0.975, 1) = 12.706, spread 0.01414 / sqrt(2) = 1 %
    assert cells(table, GD)["hellaswag@10"] == "31.0 ± 12.7 (paper 30.0)"
    assert [column.title for column in table.columns] == ["Arm", "HellaSwag 10-shot"]
    assert "31.5" in terminal_table(table)  # the released GPT-2


def test_which_result_counts(tmp_path):
    (run,) = arm(tmp_path, GD, {0: 1.0}).runs
    put(run, "hellaswag@0", 0.9, checkpoint="final")
    put(run, "hellaswag@0", 0.5, limit=10)
    put(run, "hellaswag@0", 0.4, limit=100)
    assert read_scores(run.folder)["hellaswag@0"].value == 0.4
    put(run, "hellaswag@0", 0.3)
    assert read_scores(run.folder)["hellaswag@0"].value == 0.3
    put(run, "arc_easy@0", 0.7, sha="2")  # the best model is another by now
    assert read_scores(run.folder)["hellaswag@0"].value == 0.9  # of the final one, which is not
    put(run, "arc_easy@0", 0.7, sha="1")
    assert sorted(read_scores(run.folder)) == ["arc_easy@0", "hellaswag@0"]
    (run.folder / "evaluation" / "arc_easy@0-best-None.json").unlink()
    (run.folder / "evaluation" / "validation-best.json").write_text('{"protocol": {}}')
    (run.folder / "evaluation" / "torn.json").write_text('{"task": "hell')
    assert list(read_scores(run.folder)) == ["hellaswag@0"]


def test_the_page_and_latex_have_it(tmp_path):
    base, other = arm(tmp_path, GD, {0: 1.0}), arm(tmp_path, NESTEROV, {0: 1.0})
    assert payload([compare([base, other])], Extras())["groups"][0]["tables_extra"] == []
    put(other.runs[0], "my_task@3", 0.25, stderr=None)
    comparison = compare([base, other])
    (extra,) = payload([comparison], Extras())["groups"][0]["tables_extra"]
    assert extra["rows"][0]["cells"]["my_task@3"]["value"] == pytest.approx(25.0)
    assert len(extra["rows"]) == 1  # only what was evaluated; no reference knows this task
    text = downstream_latex(downstream_table(comparison))
    assert r"my\_task@3" in text
    assert r"\bottomrule" in text


def test_what_was_asked_otherwise_is_not_compared(tmp_path):
    base, other = arm(tmp_path, GD, {0: 1.0}), arm(tmp_path, NESTEROV, {0: 1.0})
    put(base.runs[0], "arc_easy@0", 0.4)
    put(other.runs[0], "arc_easy@0", 0.5, limit=10)
    table = downstream_table(compare([base, other]))
    assert not any(cell.bold for row in table.rows for cell in row.cells.values())
    assert any("are not compared" in note for note in table.footnotes)


def test_perplexities_are_no_accuracies(tmp_path):
    (run,) = arm(tmp_path, GD, {0: 1.0}).runs
    put(run, "wikitext", 0.5)
    (path,) = (run.folder / "evaluation").glob("wikitext*")
    data = json.loads(path.read_text())
    data["scores"] = {"wikitext": {"word_perplexity": {"value": 35.0, "stderr": None}}}
    path.write_text(json.dumps(data))
    assert read_scores(run.folder) == {}
