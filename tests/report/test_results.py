"""The table of results: what it says, what it sets in bold, what it leaves out."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from tests.comparison.synthetic import arm, write_suite
from yuriiformer.comparison.outcomes import Speedup, compare_arms
from yuriiformer.comparison.paper import FOOTNOTE
from yuriiformer.methods.catalog import paper
from yuriiformer.report.cells import NONE, lowest
from yuriiformer.report.curves import styles
from yuriiformer.report.results import COLUMNS, result_table

GD, NESTEROV, VERLET = "gd-lie-trotter", "nesterov-lie-trotter", "verlet-ama"


def cells(comparison):
    return {row.arm_slug: row.cells for row in result_table(comparison).rows}


def flat(folder, finals, rule=GD, **options):
    """An arm with exactly these losses throughout."""
    return [
        arm(
            folder,
            rule,
            {0: 0.0},
            slug=slug,
            label=slug,
            val=lambda s, v=value: v + 0 * s,
            **options,
        )
        for slug, value in finals.items()
    ]


def test_a_table_of_three_seeds(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV, VERLET])
    found = cells(comparison)
    assert re.fullmatch(r"1\.\d{3} ± 0\.\d{3}", found[GD]["final"].text)
    assert found[GD]["difference"].text == "baseline"
    text = found[NESTEROV]["difference"].text
    assert re.fullmatch(r"−0\.\d{3} \[−0\.\d{3}, −0\.\d{3}\]", text)
    assert float(found[NESTEROV]["p"].text) < 0.05
    assert float(found[NESTEROV]["detectable"].text) > 0
    assert found[NESTEROV]["seeds"].text == "3/3"
    assert found[NESTEROV]["parameters"].text == "123.6 M"
    assert found[NESTEROV]["start_tables"].text == "38.6 M"
    assert found[GD]["start_tables"].text == NONE
    assert found[VERLET]["calls"].text == "2 + 1"
    assert found[GD]["tokens_per_second"].text == "100,000"
    assert re.fullmatch(r"1\.\d\d ×", found[NESTEROV]["speedup_steps"].text)


def test_values_are_the_outcomes(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV])
    for each, found in zip(comparison.outcomes, result_table(comparison).rows, strict=True):
        assert found.cells["final"].value == each.final.mean
        assert found.cells["best"].value == each.best.mean
        assert found.cells["difference"].value == each.difference.mean
        half = (each.final.high - each.final.low) / 2
        assert found.cells["final"].text == f"{each.final.mean:.3f} ± {half:.3f}"


def test_one_seed_has_no_interval_and_says_so_only_when_asked(tmp_path):
    found = cells(write_suite(tmp_path, [GD, NESTEROV], seeds=1))
    assert re.fullmatch(r"1\.\d{3}", found[GD]["final"].text)
    assert re.fullmatch(r"−0\.\d{3}", found[NESTEROV]["difference"].text)
    assert found[NESTEROV]["p"].text == found[NESTEROV]["detectable"].text == NONE
    assert "no interval" in found[GD]["final"].help


def test_what_is_not_there_is_a_dash(tmp_path):
    arms = [
        arm(tmp_path, GD, {0: 1.0, 1: 1.0}, until={0: 50, 1: 50}),
        arm(tmp_path, NESTEROV, {0: 1.0, 1: 1.0}),
    ]
    found = cells(compare_arms(arms))
    for key in ("final", "best", "best_step", "train"):
        assert found[GD][key].text == NONE
        assert found[GD][key].value is None
    for key in ("difference", "p", "speedup_steps", "speedup_time"):
        assert found[NESTEROV][key].text == NONE
    assert found[GD]["seeds"].text == "0/2"
    assert "seed 0: unfinished" in found[GD]["seeds"].help


def test_the_bold_rule_in_each_panel_with_ties_at_the_printed_precision(tmp_path):
    arms = [
        *flat(tmp_path, {"a": 1.0794, "b": 1.0786, "c": 1.0796}),
        *flat(tmp_path, {"d": 1.05, "e": 1.06}, rule=VERLET),
    ]
    comparison = compare_arms(arms)
    # 1.079, 1.079 and 1.080: the first two are the same as printed.
    assert lowest(comparison.outcomes, "final") == {"a", "b", "d"}
    found = cells(comparison)
    for metric in ("final", "best", "train"):
        assert {slug for slug in found if found[slug][metric].bold} == {"a", "b", "d"}
    assert not any(
        cell.bold for key, cell in found["a"].items() if key not in ("final", "best", "train")
    )


def test_an_unfinished_arm_is_not_bold(tmp_path):
    arms = flat(tmp_path, {"a": 1.2, "b": 1.3})
    arms += flat(tmp_path, {"c": 0.5}, until={0: 50})
    assert lowest(compare_arms(arms).outcomes, "final") == {"a"}


def test_speedups_in_words(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV])
    last = comparison.outcomes[1]
    for found, text in (
        (Speedup(3, 3, 1.312), "1.31 ×"),
        (Speedup(2, 3, 1.2), "1.20 × (2 of 3 seeds)"),
        (Speedup(0, 3, None), "not reached"),
        (Speedup(0, 0, None), NONE),
    ):
        changed = replace(last, speedup_time=found)
        one = replace(comparison, outcomes=[comparison.outcomes[0], changed])
        assert cells(one)[NESTEROV]["speedup_time"].text == text


def test_small_numbers_are_not_shown_as_zero(tmp_path):
    arms = [
        arm(tmp_path, GD, {0: 1.0, 1: 1.0001, 2: 1.0}),
        arm(tmp_path, NESTEROV, {0: 0.9, 1: 0.9, 2: 0.90001}),
    ]
    found = cells(compare_arms(arms))
    assert found[GD]["final"].text.endswith("± <0.001")
    assert found[NESTEROV]["p"].text == "<0.001"
    assert found[NESTEROV]["detectable"].text == "<0.001"


def test_a_difference_of_nothing_has_no_sign(tmp_path):
    found = cells(compare_arms(flat(tmp_path, {"a": 1.0, "b": 0.99999})))
    assert found["b"]["difference"].text == "0.000"


def test_the_papers_figures_stand_beside_ours(tmp_path):
    comparison = write_suite(tmp_path, list(paper), seeds=1)
    table = result_table(comparison)
    found = cells(comparison)
    assert found[NESTEROV]["paper_final"].text == "1.090"
    assert found[NESTEROV]["paper_best"].text == "1.078"
    assert found[NESTEROV]["paper_train"].text == "0.896"
    unclear = found["imex2-ln-mlp-attn"]["paper_final"]
    assert unclear.text == "1.104 / 1.084 †"
    assert unclear.help == FOOTNOTE
    assert table.footnotes == (FOOTNOTE,)
    keys = [column.key for column in table.columns]
    assert keys.index("paper_final") == keys.index("final") + 1


def test_only_the_papers_runs_are_set_beside_its_figures(tmp_path):
    plain = arm(tmp_path, GD, {0: 1.0})
    deeper = arm(tmp_path, NESTEROV, {0: 1.0}, recipe={"muon_lr": 0.01})
    found = cells(compare_arms([plain, deeper], preset="tinystories-small"))
    assert found[GD]["paper_final"].text == "1.114"
    assert found[NESTEROV]["paper_final"].text == NONE
    assert found[NESTEROV]["differs"].text == "muon_lr=0.01"
    assert found[NESTEROV]["differs"].help == "Baseline: muon_lr=0.02."
    assert result_table(compare_arms([plain], preset="tinystories-small")).footnotes == ()


@pytest.mark.parametrize("setting", ["openwebtext-small", "tales-tiny"])
def test_columns_that_are_empty_are_left_out(tmp_path, setting):
    comparison = write_suite(tmp_path, [GD, NESTEROV], seeds=1, setting=setting)
    keys = [column.key for column in result_table(comparison).columns]
    want = [c.key for c in COLUMNS if not c.optional]
    if setting.startswith("openwebtext"):
        assert {"paper_final", "paper_best"} <= set(keys)
        assert "paper_train" not in keys
    else:
        assert keys == want
    assert all(set(row.cells) == set(keys) for row in result_table(comparison).rows)


def test_the_payload_of_a_page(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV, VERLET])
    data = result_table(comparison).to_payload()
    json.dumps(data, allow_nan=False)
    assert set(data) == {"columns", "rows"}
    for column in data["columns"]:
        assert set(column) == {"key", "title", "help", "numeric", "lower_is_better", "drop"}
        assert column["help"]
    assert [row["arm"] for row in data["rows"]] == [GD, NESTEROV, VERLET]
    final = data["rows"][1]["cells"]["final"]
    assert final["bold"] is True
    assert isinstance(final["value"], float)


def test_styles_begin_with_the_baseline(tmp_path):
    comparison = write_suite(tmp_path, [VERLET, GD, NESTEROV], seeds=1)
    assert styles(comparison) == {VERLET: 1, GD: 0, NESTEROV: 2}
