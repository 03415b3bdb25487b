"""No figure of the paper beside runs on other data, of another rule, size or part of a task,
without a remark or at all."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.comparison.papers import SIX, papers_row, papers_suite, run_with
from tests.comparison.synthetic import DATA, configuration
from yuriiformer.comparison.outcomes import Arm, compare_arms
from yuriiformer.comparison.paper import own_setting, paper_figure, paper_preset
from yuriiformer.methods.references import get_rule
from yuriiformer.report.downstream import downstream_table
from yuriiformer.report.paper_slots import paper_slots
from yuriiformer.report.paper_tables import paper_tables
from yuriiformer.report.payload import Extras, payload
from yuriiformer.report.results import result_table
from yuriiformer.report.tables import csv_text, json_text, markdown
from yuriiformer.report.tables_latex import latex
from yuriiformer.training.presets import preset

TINY, SMALL = "tinystories-small", "openwebtext-small"
STORIES = DATA["tinystories"]


def shown(comparison) -> bool:
    """Whether any output of a report has a figure of the paper."""
    columns = {column.key for column in result_table(comparison).columns}
    found = {
        "table": any(key.startswith("paper_") for key in columns),
        "latex": "the paper's figures" in latex(comparison),
        "json": any(
            arm["paper"] for arm in json.loads(json_text([comparison]))["comparisons"][0]["arms"]
        ),
        "claims": bool(comparison.claims),
        "paper's tables": any(each.papers for each in paper_tables(paper_slots([comparison]))),
    }
    tasks = downstream_table(comparison)
    if tasks is not None:
        found["tasks"] = "(paper " in markdown(tasks)
    assert len(set(found.values())) == 1, found  # all of them, or none
    return found["table"]


def remarks(comparison) -> str:
    return " ".join(payload([comparison], Extras())["remarks"])


def test_the_papers_own_without_a_remark(tmp_path):
    for setting in (TINY, SMALL):
        comparison = papers_suite(tmp_path / setting, setting, SIX)
        assert shown(comparison)
        assert "The paper's figures" not in remarks(comparison)


@pytest.mark.parametrize(
    ("facts", "there", "words"),
    [
        (
            {**STORIES, "val_tokens": 2_400_000},
            True,
            "nearly the same data only: TinyStories is split",
        ),
        (
            {**STORIES, "source": "tales"},
            False,
            "not shown: the data are not TinyStories (source: tales)",
        ),
        (
            {**STORIES, "train_tokens": 1_289_382},
            False,
            "not shown: the data are a part of TinyStories",
        ),
        (
            {k: STORIES[k] for k in ("train_tokens", "val_tokens")},
            True,
            "source of the data is not recorded",
        ),
        ({"train_tokens": 9, "val_tokens": 9}, False, "not shown: the data have 9 training tokens"),
    ],
)
def test_data(tmp_path, facts, there, words):
    comparison = papers_suite(tmp_path, TINY, SIX, facts=facts)
    assert shown(comparison) == there
    assert words in remarks(comparison)


def test_a_tokeniser_of_ones_own(tmp_path):
    comparison = papers_suite(tmp_path, SMALL)
    arms = []
    for arm in comparison.arms:
        run = arm.first
        saved = {**run.saved, "data": {**run.saved["data"], "tokenizer": "bpe:50257"}}
        arms.append(replace(arm, runs=[replace(run, saved=saved)]))
    other = compare_arms(arms, preset=SMALL)
    assert not shown(other)
    assert "the tokeniser is bpe:50257" in remarks(other)


def test_a_run_from_a_trained_model(tmp_path):
    comparison = papers_suite(tmp_path, SMALL, SIX[:2])
    arms = []
    for arm in comparison.arms:
        saved = {**arm.first.saved, "init": {"path": "x", "model": {"sha256": ""}, "rule": {}}}
        arms.append(replace(arm, runs=[replace(arm.first, saved=saved)]))
    other = compare_arms(arms, preset=SMALL)
    assert not shown(other)
    assert "began from a trained model" in remarks(other)


def test_an_arm_from_a_trained_model_beside_others(tmp_path):
    """Its row stays empty, although rule and configuration are the paper's."""
    comparison = papers_suite(tmp_path, SMALL, SIX[:2])
    plain, other = comparison.arms
    saved = {**other.first.saved, "init": {"path": "x", "model": {"sha256": ""}, "rule": {}}}
    other = replace(other, runs=[replace(other.first, saved=saved)])
    mixed = compare_arms([plain, other], preset=SMALL)
    rows = {row.arm_slug: row.cells for row in result_table(mixed).rows}
    assert rows[other.slug]["paper_final"].empty
    assert not rows[plain.slug]["paper_final"].empty
    assert {v.verdict for v in mixed.claims} == {"undecided"}


@pytest.mark.parametrize(
    "rule",
    ["nesterov-lie-trotter+V=zero", "nesterov-lie-trotter+fixed", "nesterov-lie-trotter+mu=0.5"],
)
def test_a_varied_rule(tmp_path, rule):
    """Also if it keeps the paper's name: its row stays empty, the others have theirs."""
    own = get_rule(rule)
    run = run_with(tmp_path / "a", SMALL, rule, papers_row(SMALL, "nesterov-lie-trotter"))
    borrowed = own.vary(name="nesterov-lie-trotter", label="Nesterov+Lie–Trotter")
    config = run.config.with_(rule=borrowed)
    saved = {**run.saved, "config": config.to_dict()}
    plain = papers_suite(tmp_path / "b", SMALL, SIX[:2])
    arm = Arm("varied", "varied", [replace(run, saved=saved)])
    comparison = compare_arms([*plain.arms, arm], preset=SMALL)
    assert comparison.arms[-1].rule.name == "nesterov-lie-trotter"
    rows = {row.arm_slug: row.cells for row in result_table(comparison).rows}
    assert rows["varied"]["paper_final"].empty
    assert not rows["gd-euler"]["paper_final"].empty
    table = next(t for t in paper_tables(paper_slots([comparison])) if t.title == "Table 3")
    assert [item.text for item in table.ours.rows[-1]] == ["Nesterov+Lie–Trotter", "–", "–"]


def test_another_size_or_length(tmp_path):
    """The setting is the whole configuration: another one has no figures at all."""
    config = preset(TINY, "gd-euler")
    run = run_with(tmp_path / "a", TINY, "gd-euler", papers_row(TINY, "gd-euler"))
    saved = {"config": config.to_dict(), "data": {**STORIES, "tokenizer": "gpt2"}}
    for change in ({"n_layer": 11}, {"d_model": 96, "n_head": 6}, {"steps": 500}, {"context": 512}):
        assert paper_preset(config.with_(**change)) is None
        other = {**saved, "config": config.with_(**change).to_dict()}
        assert own_setting(replace(run, saved=other)) is None
    assert own_setting(replace(run, saved=saved)) == TINY
    elsewhere = {**saved, "data": {**STORIES, "source": "tales"}}
    assert own_setting(replace(run, saved=elsewhere)) is None


def test_runs_of_another_size_are_drawn_with_a_remark(tmp_path):
    comparison = papers_suite(tmp_path, TINY, SIX)
    other = replace(comparison, preset=None)  # what `collect` finds of short runs
    assert not shown(other)
    slots = paper_slots([other])
    assert list(slots.filled) == [TINY]
    [said] = slots.remarks(TINY)
    assert said.startswith(
        "tinystories-small: Not the paper's setting, whose values are in brackets"
    )
    assert "steps 200 (10000)" in said
    tables = {each.title: each for each in paper_tables(slots)}
    assert tables["Table 2"].ours is not None
    assert tables["Table 2"].remarks == [said]
    assert "arxiv" not in csv_text(other).lower()


def test_runs_on_other_data_stand_for_nothing(tmp_path):
    comparison = papers_suite(tmp_path, TINY, SIX[:2], facts={**STORIES, "source": "tales"})
    slots = paper_slots([comparison])
    assert slots.filled == {}
    assert "stand for no setting of the paper (source of the data: tales)" in slots.left[0]
    assert not any(each.ours for each in paper_tables(slots))
    assert all("No runs of" in each.remarks[0] for each in paper_tables(slots))


@pytest.mark.parametrize("change", [{"limit": 100, "items": 100}, {"checkpoint": "final"}])
def test_a_part_of_a_task_and_another_checkpoint(tmp_path, change):
    comparison = papers_suite(tmp_path, SMALL, SIX[:3])
    assert "(paper 29.9)" in markdown(downstream_table(comparison))
    assert "GPT-2 124M (released), as the paper quotes it" in markdown(downstream_table(comparison))
    arms = []
    for arm in comparison.arms:
        scores = {name: replace(s, **change) for name, s in arm.first.scores.items()}
        arms.append(replace(arm, runs=[replace(arm.first, scores=scores)]))
    other = compare_arms(arms, preset=SMALL)
    text = markdown(downstream_table(other))
    assert "paper" not in text
    table = next(t for t in paper_tables(paper_slots([other])) if t.title == "Table 4")
    assert {item.text for row in table.ours.rows for item in row[1:]} == {"–"}
    assert any("are left out" in remark for remark in table.remarks)


def test_figures_are_there_to_be_shown():
    """The check of the checks: the paper does have figures of these rules."""
    assert all(paper_figure(SMALL, name) for name in SIX)
    assert paper_preset(configuration("gd-euler")) is None
