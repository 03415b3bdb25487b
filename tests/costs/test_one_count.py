"""One configuration, asked for in every place that shows a cost: they say the same."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace

import pytest
import torch

import yuriiformer as yf
from tests.training.runs import small, tales
from yuriiformer.comparison.outcomes import Arm, compare
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.parameters import count_parameters
from yuriiformer.costs.plan import make_plan
from yuriiformer.planning import plan as planning
from yuriiformer.planning.devices import find_device
from yuriiformer.report.results import result_table
from yuriiformer.runs.run import read_run
from yuriiformer.training.corpus import fill_vocabulary
from yuriiformer.training.display import plan_text
from yuriiformer.training.session import train


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("rule", ["gd-lie-trotter", "nesterov-lie-trotter", "verlet-ama"])
def test_every_place_says_the_same(tmp_path, rule, recompute):
    store = yf.TokenStore.open(tales())
    config = fill_vocabulary(small(rule, steps=2, eval_every=2), store)
    config = replace(config, machine=replace(config.machine, recompute=recompute))
    costs = make_plan(config, store, 1, torch.float32)
    where = planning.Circumstances(
        find_device("h200"), tokens=(len(store.train), len(store.train) + len(store.val))
    )
    planned = planning.make_plan(config, where)
    train(config, tales(), tmp_path / "run")
    run = read_run(tmp_path / "run")
    [outcome] = compare([Arm("a", "a", [run])]).outcomes
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["plan"]
    work = model_work(config.model, recompute=recompute)
    per_token = work.total.both + work.recomputed

    assert kept == json.loads(json.dumps(asdict(costs)))
    # FLOPs
    assert costs.flops / costs.tokens == pytest.approx(per_token)
    assert planned["flops"]["training"] == pytest.approx(costs.flops)
    assert run.flops_a_token == outcome.flops_a_token == pytest.approx(per_token)
    [row] = result_table(compare([Arm("a", "a", [run])])).rows
    assert row.cells["flops_a_token"].value == pytest.approx(per_token)
    # epochs
    assert planned["run"]["epochs"] == pytest.approx(config.recipe.steps / costs.steps_per_epoch)
    # parameters
    counted = count_parameters(config.model)
    model = yf.YuriiFormer(config.model)
    assert counted.all == costs.all_parameters == sum(p.numel() for p in model.parameters())
    assert counted.paper == costs.parameters == planned["parameters"]["paper"]
    assert counted.paper == model.num_parameters() == outcome.parameters
    assert counted.start_tables == costs.start_tables == outcome.start_tables
    # weights, gradients, optimiser
    memory = planned["memory"]
    assert memory["weights"] == costs.weights
    assert memory["gradients"] == costs.gradients
    assert memory["optimizer"] == pytest.approx(costs.optimizer, rel=0.01)  # and step counts
    # and what a person reads
    resolved = {"device": "cpu", "dtype": "float32", "compiled": False}
    text = plan_text(config, costs, resolved)
    assert re.search(rf"parameters +{costs.parameters:,}", text)
    assert f"{costs.flops:.2e}" in text
