"""Arms beside a baseline: speed-up, panels, remarks, and what may not be compared."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest

from tests.comparison.synthetic import arm, configuration, write_run, write_suite
from tests.training.runs import small, tales
from yuriiformer.comparison.outcomes import Arm, compare_arms
from yuriiformer.comparison.statistics import paired, summary
from yuriiformer.costs.run import RunCosts
from yuriiformer.errors import RunError
from yuriiformer.methods.catalog import paper, standard
from yuriiformer.runs.run import read_run
from yuriiformer.training.session import train

GD, NESTEROV, VERLET = "gd-lie-trotter", "nesterov-lie-trotter", "verlet-ama"


def outcome(comparison, slug):
    return next(each for each in comparison.outcomes if each.arm.slug == slug)


def straight(start, end, steps):
    return lambda step: start + (end - start) * step / steps


def test_what_synthetic_runs_hold_is_what_training_writes(tmp_path):
    """The tests below, and those of tables and figures, rest on it."""
    config = small(steps=4, eval_every=2)
    train(config, tales(), tmp_path / "real")
    write_run(tmp_path / "made", config, val=lambda step: 5 - step)
    real, made = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in ("real", "made")
    )
    assert real.keys() == made.keys()
    for part in ("data", "resolved", "plan", "versions"):
        assert real[part].keys() == made[part].keys()
    assert list(made["plan"]) == [each.name for each in fields(RunCosts)]
    assert real["config"]["recipe"] == made["config"]["recipe"]
    records = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("real", "made")
    ]
    for one, two in zip(*records, strict=True):
        assert list(one) == list(two)
        assert one["step"] == two["step"]
        assert one.get("tokens") == two.get("tokens")
        assert one.get("lr", {}).keys() == two.get("lr", {}).keys()
        assert one.get("timing", {}).keys() == two.get("timing", {}).keys()
        shapes = [
            {k: len(v) for k, v in each.get("coefficients", {}).items()} for each in (one, two)
        ]
        assert shapes[0] == shapes[1]


def test_numbers_of_a_run(tmp_path):
    """Overfits: lowest at step 60 of 100."""
    config = configuration(NESTEROV, steps=100, every=20)
    write_run(
        tmp_path,
        config,
        val=lambda s: 2 + abs(s - 60) / 100,
        train=lambda s: 3 - s / 100,
        speed=491_520,
    )
    run = read_run(tmp_path)
    assert (run.status, run.step) == ("finished", 100)
    assert (run.final, run.best, run.best_step, run.train) == (2.4, 2.0, 60, 2.0)
    assert run.tokens_per_second == 491_520
    assert run.curves.seconds_at(50) == 50
    assert run.reached(2.4) == 20
    assert run.reached(1.9) is None


def test_speedup_by_hand(tmp_path):
    """The baseline falls to 1 at step 100; the arm is there at step 40, at half the speed."""
    base = arm(tmp_path, GD, {0: 0, 1: 0}, val=straight(3, 1, 100), speed=2000)
    fast = arm(tmp_path, NESTEROV, {0: 0, 1: 0}, val=straight(3, 1, 40), speed=1000)
    found = outcome(compare_arms([base, fast]), NESTEROV)
    assert (found.speedup_steps.reached, found.speedup_steps.n) == (2, 2)
    assert found.speedup_steps.ratio == pytest.approx(2.5)
    assert found.speedup_time.ratio == pytest.approx(1.25)
    itself = outcome(compare_arms([base, fast]), GD)
    assert itself.speedup_steps.ratio == 1


def test_speedup_over_the_seeds_that_get_there(tmp_path):
    base = arm(tmp_path, GD, {0: 0, 1: 0, 2: 0}, val=straight(3, 1, 100))
    runs = []
    for seed, end in enumerate((0.5, 1.5, 0.5)):
        config = configuration(NESTEROV, seed=seed)
        write_run(tmp_path / f"n{seed}", config, val=straight(3, end, 100))
        runs.append(read_run(tmp_path / f"n{seed}"))
    found = outcome(compare_arms([base, Arm("N", "n", runs)]), "n").speedup_steps
    assert (found.reached, found.n) == (2, 3)
    assert found.ratio == pytest.approx(100 / 80)
    slow = arm(tmp_path, VERLET, {0: 2.0, 1: 2.0, 2: 2.0})
    found = outcome(compare_arms([base, slow]), VERLET).speedup_steps
    assert (found.reached, found.n, found.ratio) == (0, 3, None)


def test_panels():
    arms = {
        name: Arm(name, name, [type("R", (), {"rule": rule})()]) for name, rule in paper.items()
    }
    assert {name for name, each in arms.items() if each.standard} == set(standard)


def test_best_and_final_are_of_finished_runs_only(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0, 1: 1.1, 2: 1.2})
    part = arm(tmp_path, NESTEROV, {0: 0.9, 1: 1.0, 2: 0.1}, until={2: 90})
    found = outcome(compare_arms([base, part]), NESTEROV)
    assert found.final.n == found.best.n == found.train.n == found.difference.n == 2
    assert found.difference.mean == pytest.approx(-0.1)
    assert found.final.mean == pytest.approx(0.95, abs=0.01)
    assert part.runs[2].best < 0.2  # it is known, but not compared
    assert "seed 2 has 90 of 100 steps" in " ".join(compare_arms([base, part]).remarks)


def test_a_run_that_failed(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0, 1: 1.1})
    bad = arm(tmp_path, NESTEROV, {0: 0.9, 1: 1.0}, until={1: 37})
    place = bad.runs[1].folder
    (place / "nonfinite.json").write_text('{"step": 37}')
    bad = Arm(bad.label, bad.slug, [bad.runs[0], read_run(place)])
    comparison = compare_arms([base, bad])
    assert bad.runs[1].status == "failed"
    assert outcome(comparison, NESTEROV).difference.n == 1
    assert any("seed 1 failed after step 37" in remark for remark in comparison.remarks)


def test_nothing_finished(tmp_path):
    arms = [arm(tmp_path, name, {0: 1.0}, until={0: 50}) for name in (GD, NESTEROV)]
    comparison = compare_arms(arms)
    assert comparison.ranked() == []
    assert all(each.final.mean is None for each in comparison.outcomes)
    assert not any("One seed" in remark for remark in comparison.remarks)


def test_losses_that_are_not_finite(tmp_path):
    nan = arm(tmp_path, GD, {0: 1.0}, val=lambda s: np.where(s > 50, np.nan, 3 - s / 100))
    other = arm(tmp_path, NESTEROV, {0: 1.0}, val=lambda s: np.where(s > 50, np.inf, 3 - s / 100))
    for each in (nan, other):
        assert each.first.final is None
        assert each.first.best == 2.5
    assert compare_arms([nan, other]).ranked() == []


def test_statistics_are_those_of_the_values(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV, VERLET], seeds=4)
    base = comparison.baseline.values("final")
    for each in comparison.outcomes:
        values = each.arm.values("final")
        assert each.final == summary(list(values.values()))
        wanted = paired(values, base)
        assert (each.difference.mean, each.difference.p) == (wanted.mean, wanted.p)
    ps = [outcome(comparison, name).difference for name in (NESTEROV, VERLET)]
    assert max(d.p_holm for d in ps) >= max(d.p for d in ps)
    assert min(d.p_holm for d in ps) == pytest.approx(2 * min(d.p for d in ps))
    assert outcome(comparison, GD).difference.p_holm is None


def test_schedules_that_differ_are_stated(tmp_path):
    base = arm(tmp_path, GD, {0: 1.0})
    longer = arm(tmp_path, NESTEROV, {0: 0.9}, steps=150, recipe={"muon_lr": 0.01})
    comparison = compare_arms([base, longer])
    assert outcome(comparison, NESTEROV).arm.differs == {
        "steps": (100, 150),
        "muon_lr": (0.02, 0.01),
    }
    said = " ".join(comparison.remarks)
    assert "steps 150 (baseline 100)" in said
    assert "muon_lr 0.01 (baseline 0.02)" in said
    assert "One seed" in said
    assert not outcome(comparison, GD).arm.differs


def test_which_arm_is_the_baseline(tmp_path):
    arms = [arm(tmp_path, name, {0: 1.0}) for name in (NESTEROV, GD, VERLET)]
    assert compare_arms(arms).baseline.slug == GD
    assert compare_arms(arms, baseline=VERLET).baseline.slug == VERLET
    assert compare_arms(arms, baseline=arms[0].label).baseline.slug == NESTEROV
    assert compare_arms(arms[::2]).baseline.slug == NESTEROV
    with pytest.raises(RunError, match="did you mean 'verlet-ama'"):
        compare_arms(arms, baseline="verlet-am")
