"""The data of the page: true to the runs, small, and plain."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.comparison.synthetic import arm, falling
from yuriiformer.comparison.outcomes import compare_arms
from yuriiformer.display.page import for_json, page_html
from yuriiformer.report.headline import headline
from yuriiformer.report.payload import PAGE, Extras, payload

GD, NESTEROV, POLYAK = "gd-lie-trotter", "nesterov-lie-trotter", "polyak-lie-trotter"


def page(comparison, **extras):
    return payload([comparison], Extras(**extras))


def test_curves_are_the_runs(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0, 1: 1.2}, steps=400, noise=0.1)
    other = arm(tmp_path, NESTEROV, {0: 0.8, 1: 1.1}, steps=400)
    data = page(compare_arms([base, other]))
    json.dumps(data, allow_nan=False)
    shown, second = data["groups"][0]["arms"]
    run = base.runs[1].curves
    assert shown["runs"][1]["curves"]["val"]["step"] == run.val_step.tolist()
    assert shown["runs"][1]["curves"]["val"]["loss"] == pytest.approx(run.val_loss, rel=1e-5)
    mean = (base.runs[0].curves.val_loss + base.runs[1].curves.val_loss) / 2
    assert shown["curves"]["val"]["loss"] == pytest.approx(mean, rel=1e-5)
    raw = shown["runs"][0]["curves"]["train"]["0"]["loss"]
    assert min(raw) == pytest.approx(base.runs[0].curves.loss.min(), rel=1e-5)
    assert max(raw) == pytest.approx(base.runs[0].curves.loss.max(), rel=1e-5)
    assert list(shown["curves"]["train"]) == ["0", "10"]  # 50 steps are too many for 400
    expected = other.runs[0].curves.val_loss - base.runs[0].curves.val_loss
    expected = (expected + other.runs[1].curves.val_loss - base.runs[1].curves.val_loss) / 2
    assert second["difference"]["mean"] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert shown["difference"] is None
    time = second["curves"]["time"]
    assert time["seconds"][-1] == pytest.approx(other.runs[0].curves.seconds[-1], rel=1e-3)
    assert [each["arm"] for each in data["groups"][0]["ranking"]] == [NESTEROV, GD]


def test_coefficients_are_the_first_seeds(tmp_path):
    found = arm(
        tmp_path,
        NESTEROV,
        {3: 1.0},
        steps=1000,
        every=5,
        coefficients={"mu": lambda step: step / 1e5},
    )
    shown = page(compare_arms([found]))["groups"][0]["arms"][0]["coefficients"]
    assert shown["steps"][0] == 0
    assert shown["steps"][-1] == 1000
    assert len(shown["steps"]) <= 60
    assert set(shown["values"]) == set(found.rule.coefficients)
    last = found.runs[0].curves.coefficients[-1][1]["mu"]
    assert shown["values"]["mu"][-1] == pytest.approx(last, rel=1e-5)
    none = page(compare_arms([arm(tmp_path, GD, {0: 1.0})]))
    assert none["groups"][0]["arms"][0]["coefficients"] is None


def test_what_is_not_finite_is_null(tmp_path):
    def broken(step):
        return np.where(step > 50, np.nan, 1.0)

    found = arm(tmp_path, GD, {0: 1.0}, val=broken, train=broken)
    data = page(compare_arms([found]))
    json.dumps(data, allow_nan=False)
    assert data["groups"][0]["arms"][0]["curves"]["val"]["loss"][-1] is None
    numbers = {"a": (float("inf"), np.int64(3), np.float64(1 / 3))}
    assert for_json(numbers, digits=6) == {"a": [None, 3, 0.333333]}
    assert for_json(numbers) == {"a": [None, 3, 1 / 3]}


def test_samples_commands_and_hostile_labels(tmp_path):
    label = "</script><b>&"
    found = arm(tmp_path, GD, {0: 1.0}, label=label)
    samples = {str(found.first.folder): ([{"prompt": "Once", "text": " upon"}], "best")}
    data = page(compare_arms([found]), samples=samples, commands=[("the runs", "yurii suite")])
    shown = data["groups"][0]["arms"][0]
    assert shown["samples"][0]["text"] == " upon"
    assert shown["samples_note"] == "best"
    assert shown["command"].startswith("yurii train --config ")
    assert shown["diagram"].lstrip().startswith("<?xml")
    assert data["commands"] == [{"what": "the runs", "command": "yurii suite"}]
    assert label not in page_html(PAGE, data)


def test_an_unfinished_comparison(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0}, until={0: 30})
    other = arm(tmp_path, NESTEROV, {0: 1.0}, until={0: 0})
    data = page(compare_arms([base, other]))
    assert data["headline"] == ["No run has finished yet: curves are shown as far as they go."]
    assert data["groups"][0]["ranking"] == []
    assert data["groups"][0]["arms"][0]["runs"][0]["status_text"] == "30 of 100 steps"


def said(*arms, **options):
    return " ".join(headline(compare_arms(arms, **options)))


def test_the_headline_claims_what_the_seeds_bear_out(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0, 1: 1.1, 2: 1.2})
    clear = arm(tmp_path, NESTEROV, {0: 0.9, 1: 1.001, 2: 1.1})
    noise = arm(tmp_path, POLYAK, {0: 0.9, 1: 1.25, 2: 1.2})
    text = said(base, clear, noise)
    assert text.startswith("Nesterov+Lie–Trotter ends lowest: validation loss 1.00")
    assert "0.100 below GD+Lie–Trotter (95 % interval −0.101 to −0.098, p < 0.001" in text
    assert "Nesterov+Lie–Trotter ends below GD+Lie–Trotter by more than chance explains" in text
    assert "Polyak+Lie–Trotter cannot be told from GD+Lie–Trotter: with 3 seeds" in text
    assert "reaches the baseline's best loss in 90 % of the baseline's steps" not in said(base)
    two = said(base, noise)
    assert "more than chance explains" not in two
    one = said(arm(tmp_path / "1", GD, {0: 1.0}), arm(tmp_path / "1", NESTEROV, {0: 0.9}))
    assert "(one seed: no interval exists, and chance is not excluded)" in one
    assert "more than chance" not in one
    worse = said(base, arm(tmp_path / "w", NESTEROV, {0: 1.1, 1: 1.2, 2: 1.3001}))
    assert "GD+Lie–Trotter ends lowest" in worse
    assert "Nesterov+Lie–Trotter ends above GD+Lie–Trotter by more than chance" in worse


def test_an_arm_beside_its_own_copy(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0, 1: 1.1})
    twin = arm(tmp_path, GD, {0: 1.0, 1: 1.1}, slug="twin", label="twin")
    comparison = compare_arms([base, twin])
    assert comparison.outcomes[1].difference.mean == 0
    assert comparison.outcomes[1].difference.p_holm == 1
    assert "twin cannot be told from GD+Lie–Trotter" in said(base, twin)


def test_the_curve_of_a_falling_loss_is_what_it_says():
    curve = falling(1.0, 100)
    assert curve(np.array([100.0]))[0] == pytest.approx(1.0, abs=2e-3)


def test_nothing_is_claimed_of_an_arm_that_lost_seeds(tmp_path):
    """The seeds that are left may be the lucky ones."""
    base = arm(tmp_path, GD, {0: 1.0, 1: 1.1, 2: 1.2})
    lucky = arm(tmp_path, NESTEROV, {0: 0.5, 1: 0.6})
    lost = arm(
        tmp_path / "lost", NESTEROV, {2: 1.0}, val=lambda step: np.where(step > 50, np.inf, 2)
    )
    both = type(lucky)(lucky.label, lucky.slug, [*lucky.runs, *lost.runs])
    text = said(base, both)
    assert text.startswith("GD+Lie–Trotter ends lowest")
    assert "Nesterov+Lie–Trotter failed or diverged with some seeds; nothing is claimed" in text
    comparison = compare_arms([base, both])
    assert any("seed 2 ended with a loss that is not finite" in each for each in comparison.remarks)
    rows = page(comparison)["groups"][0]["table"]["rows"]
    assert rows[1]["cells"]["seeds"]["text"] == "2/3"
    assert not rows[1]["cells"]["final"].get("bold")
    assert rows[0]["cells"]["final"]["bold"]


def test_other_seeds_are_ranked_by_what_is_common(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0, 1: 2.0})
    easy = arm(tmp_path, NESTEROV, {0: 1.1})  # worse on the one seed that both have
    comparison = compare_arms([base, easy])
    assert [each.arm.slug for each in comparison.ranked()] == [GD, NESTEROV]
    assert any("Arms have other seeds" in each for each in comparison.remarks)
    assert "GD+Lie–Trotter ends lowest" in said(base, easy)


def test_no_validation_is_said(tmp_path):
    found = arm(tmp_path, GD, {0: 1.0}, every=0)
    assert headline(compare_arms([found]))[0].startswith("No finished run has a validation loss")
