"""One configuration, asked for in every place that shows a cost: they say the same."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
import torch

import yuriiformer as yf
from tests.training.runs import small, tales
from yuriiformer.cli.main import main
from yuriiformer.comparison.outcomes import Arm, compare_arms
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.run import count_parameters, run_costs
from yuriiformer.methods.drawing.listing import extra_small
from yuriiformer.planning.devices import find_device
from yuriiformer.planning.plan import Circumstances, make_plan
from yuriiformer.report.results import result_table
from yuriiformer.runs.run import read_run
from yuriiformer.training.initial import fill_vocabulary
from yuriiformer.training.memory import simulate_update
from yuriiformer.training.presets import preset
from yuriiformer.training.session import train


@pytest.mark.parametrize(
    ("rule", "recompute"),
    [
        ("gd-lie-trotter", False),
        pytest.param("nesterov-lie-trotter", True, marks=pytest.mark.slow),
        pytest.param("verlet-ama", False, marks=pytest.mark.slow),
        ("verlet-ama", True),
    ],
)
def test_every_place_says_the_same(tmp_path, capsys, rule, recompute):
    """Training, its configuration file, the report, the planner, the model; and for one of them
    what ``--dry-run`` and ``yurii plan`` print."""
    store = yf.TokenStore.open(tales())
    config = fill_vocabulary(small(rule, steps=2, eval_every=2), store)
    config = replace(config, machine=replace(config.machine, recompute=recompute))
    costs = run_costs(config, len(store.train))
    tokens = (len(store.train), len(store.train) + len(store.val))
    planned = make_plan(config, Circumstances(find_device("h200"), tokens=tokens))
    train(config, tales(), tmp_path / "run")
    run = read_run(tmp_path / "run")
    comparison = compare_arms([Arm("a", "a", [run])])
    [outcome], [row] = comparison.outcomes, result_table(comparison).rows
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["plan"]
    work = model_work(config.model, recompute=recompute)
    per_token = work.total.both + work.recomputed

    assert kept == json.loads(json.dumps(asdict(costs)))
    # FLOPs
    assert costs.flops / costs.tokens == pytest.approx(per_token)
    assert planned.training_flops == pytest.approx(costs.flops)
    assert run.flops_a_token == outcome.flops_a_token == pytest.approx(per_token)
    assert row.cells["flops_a_token"].value == pytest.approx(per_token)
    # epochs
    assert planned.epochs == pytest.approx(config.recipe.steps / costs.steps_per_epoch)
    # parameters
    counted = count_parameters(config.model)
    model = yf.YuriiFormer(config.model)
    assert counted.all == costs.all_parameters == sum(p.numel() for p in model.parameters())
    assert counted.paper == costs.parameters == planned.parameters.paper
    assert counted.paper == model.num_parameters() == outcome.parameters
    assert counted.start_tables == costs.start_tables == outcome.start_tables
    # weights, gradients, optimiser: counted, and as the real step on fake tensors has them
    simulated = simulate_update(config, torch.float32)
    assert planned.memory.update == simulated
    assert (costs.weights, costs.optimizer) == (simulated.weights, simulated.optimizer)
    if (rule, recompute) == ("verlet-ama", True):
        _what_a_person_reads(tmp_path, capsys, costs, counted)


@pytest.mark.parametrize("rule", ["gd-table", "nesterov-lie-trotter", "verlet-ama"])
def test_what_a_rule_adds(rule):
    """`yurii rules` counts it from the equations, the plan from the model."""
    config = preset("tinystories-small", rule).with_(vocab_size=50304)
    model = count_parameters(config.model)
    plain = count_parameters(replace(config.model, rule="gd-lie-trotter"))
    assert model.beyond(plain) == extra_small(config.model.rule).total


def _what_a_person_reads(tmp_path, capsys, costs, counted):
    saved = tmp_path / "run" / "config.json"
    flags = ["--config", str(saved), "--data", str(tales())]
    capsys.readouterr()
    assert main(["train", *flags, "--dry-run"]) == 0
    dry = capsys.readouterr().out
    assert main(["plan", *flags, "--device", "cpu"]) == 0
    # rates and times are measured anew; counts are not
    texts = [_counts(text) for text in (dry, capsys.readouterr().out)]
    assert texts[0] == texts[1]
    assert f"{costs.flops:.2e}" in dry
    assert f"{counted.paper:,}" in dry


def _counts(page: str) -> str:
    """The sections of a plan without what was timed."""
    names = ("Parameters", "Work", "Memory", "Disk")
    return "\n\n".join(part.strip() for part in page.split("\n\n") if part.startswith(names))
