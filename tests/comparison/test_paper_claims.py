"""The paper's claims in words: each is supported by runs that agree, contradicted by those that do
not, and undecided where runs are missing."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.comparison.papers import papers_row, papers_suite
from yuriiformer.comparison.outcomes import compare_arms
from yuriiformer.comparison.paper import paper_claims, paper_downstream, paper_presets
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.methods.catalog import paper
from yuriiformer.report.headline import claims_sentence, claims_table, verdict_lines
from yuriiformer.report.payload import Extras, payload
from yuriiformer.report.tables import json_text, markdown

ODD = ("tinystories-small", "nesterov-euler", "polyak-euler")  # the paper's own table says no
SENTENCES = Path(__file__).parents[1] / "fixtures" / "paper_sentences.toml"
SEEDS, SPREAD = (0, 1, 2), 1e-4


def rows(setting, *, turned=False):
    """The paper's numbers with the odd pair put right; or all orders turned round."""
    found = {}
    for name in {
        rule for c in paper_claims() if c.setting == setting for rule in (c.arm, c.against)
    }:
        row = papers_row(setting, name) | (paper_downstream(setting, name) or {})
        if (setting, name) == ODD[:2]:
            row["best"] = 1.0985
        row["final"] = row["best"]  # else the turned one's Final would be its Best
        found[name] = {k: (60.0 if "@" in k else 4.0) - v if turned else v for k, v in row.items()}
    return found


def suite(folder, setting, **options):
    own = rows(setting, **options)
    return papers_suite(folder, setting, list(own), seeds=SEEDS, spread=SPREAD, rows=own)


def test_the_table():
    claims = paper_claims()
    assert len({(c.setting, c.metric, frozenset((c.arm, c.against))) for c in claims}) == len(
        claims
    )
    for claim in claims:
        assert claim.setting in paper_presets()
        assert {claim.arm, claim.against} <= set(paper)
        assert claim.says
        assert claim.where
        assert claim.direction in ("lower", "higher")
        assert claim.metric == "best" or claim.metric in PAPER_TASKS
    assert {c.setting for c in claims} == set(paper_presets())


def test_the_words_stand_where_they_are_said_to_stand():
    """Every part of a quotation is in one of its places, and every place has a part."""
    sentences = tomllib.loads(SENTENCES.read_text(encoding="utf-8"))
    for claim in paper_claims():
        parts = claim.says.split(" … ")
        places = [place for place in claim.where.split(", ") if not place.startswith("Table")]
        held = {place: {part for part in parts if part in sentences[place]} for place in places}
        assert set().union(*held.values()) == set(parts), claim
        assert all(held.values()), claim


def test_what_the_papers_own_numbers_say():
    """They agree with every claim but one, and that one says so."""
    for claim in paper_claims():
        if claim.metric == "best":
            one, two = (papers_row(claim.setting, n)["best"] for n in (claim.arm, claim.against))
        else:
            one, two = (
                paper_downstream(claim.setting, n)[claim.metric] for n in (claim.arm, claim.against)
            )
        agrees = one < two if claim.direction == "lower" else one > two
        assert agrees == ((claim.setting, claim.arm, claim.against) != ODD), claim
        assert bool(claim.note) == (not agrees)


@pytest.mark.parametrize("setting", paper_presets())
def test_runs_that_agree_and_runs_that_contradict(tmp_path, setting):
    expected = [claim for claim in paper_claims() if claim.setting == setting]
    for turned, word in ((False, "supported"), (True, "contradicted")):
        comparison = noisy(suite(tmp_path / word, setting, turned=turned))
        assert [v.hypothesis for v in sorted_as(comparison.claims, expected)] == expected
        wrong = [v for v in comparison.claims if v.verdict != word]
        assert not wrong
        assert (
            claims_sentence(comparison)
            == f"Of {len(expected)} claims of the paper: {len(expected)} {word}."
        )


def sorted_as(verdicts, claims):
    return sorted(verdicts, key=lambda verdict: claims.index(verdict.hypothesis))


def noisy(comparison):
    """The same comparison, its losses and accuracies moved by a little that is not the same for
    all seeds: a difference without any spread would have no t."""
    arms = []
    for place, arm in enumerate(comparison.arms):
        runs = []
        for run in arm.runs:
            shift = 1e-6 * ((3 * run.seed + 5 * place) % 7 - 3)
            curves = replace(run.curves, val_loss=run.curves.val_loss + shift)
            scores = {t: replace(s, value=s.value + shift) for t, s in run.scores.items()}
            runs.append(replace(run, curves=curves, scores=scores))
        arms.append(replace(arm, runs=runs))
    return compare_arms(arms, name=comparison.name, preset=comparison.preset)


def test_one_seed_and_missing_arms_decide_nothing(tmp_path):
    comparison = papers_suite(
        tmp_path, "tinystories-small", ["gd-lie-trotter", "nesterov-lie-trotter"]
    )
    assert {v.verdict for v in comparison.claims} == {"undecided"}
    by = {(v.hypothesis.arm, v.hypothesis.against): v for v in comparison.claims}
    there = by["nesterov-lie-trotter", "gd-lie-trotter"]
    assert there.reason == "one seed: no interval exists"
    assert there.difference == pytest.approx(1.078 - 1.106)
    assert by["nesterov-lie-trotter", "gd-euler"].reason == "GD+Euler not run"
    assert by["nesterov-euler", "polyak-euler"].reason.startswith(
        "Nesterov+Euler and Polyak+Euler not run; the paper's own Table 2"
    )


def test_other_data_and_varied_rules_are_not_judged(tmp_path):
    other = {"facts": {"source": "tales", "train_tokens": 1000, "val_tokens": 100}}
    comparison = papers_suite(tmp_path / "a", "openwebtext-small", **other)
    assert comparison.claims == []
    assert claims_table(comparison) is None
    assert claims_sentence(comparison) == ""


def test_where_they_are_shown(tmp_path):
    comparison = papers_suite(tmp_path, "openwebtext-medium", seeds=SEEDS, spread=SPREAD)
    text = markdown(claims_table(comparison))
    assert "| Claim | Verdict | Difference | p (Holm) | Where | Family | Remark |" in text
    assert "Nesterov+Lie–Trotter is higher than GD+Lie–Trotter in HellaSwag 10-shot" in text
    assert "Section 5.3, Table 4" in text
    data = json.loads(json_text([comparison]))["claims"]
    assert len(data) == len(comparison.claims)
    assert {"claim", "verdict", "difference", "interval", "p", "where", "says"} <= set(data[0])
    page = payload([comparison], Extras())
    assert "The paper's claims" in [t["title"] for t in page["groups"][0]["tables_extra"]]
    assert any("claims of the paper" in line for line in page["headline"])
    assert verdict_lines(comparison.claims)[0].startswith(comparison.claims[0].verdict)
