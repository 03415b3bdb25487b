"""What a plan says of a model that devices share, and the largest presets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import yuriiformer as yf
from tests.launcher import FORKS
from tests.training.fakes import fake_step
from yuriiformer.config import Machine, Recipe, TrainConfig
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.run import count_parameters, stored_bytes
from yuriiformer.errors import ConfigError
from yuriiformer.methods.catalog import standard
from yuriiformer.model.config import ModelConfig
from yuriiformer.planning import hours
from yuriiformer.planning.devices import Device, find_device
from yuriiformer.planning.plan import Circumstances, Plan, make_plan
from yuriiformer.planning.text import plan_page
from yuriiformer.training.estimate import MemoryEstimate, smallest
from yuriiformer.training.presets import preset

LARGE = Device("large", "a large one", 1e12, 1e12, 1e14, 1e15)


def config(**changes) -> TrainConfig:
    shape = {"n_layer": 4, "n_head": 2, "d_model": 64, "vocab_size": 512, "context": 32}
    base = TrainConfig(
        ModelConfig("nesterov-lie-trotter", **shape),
        Recipe(steps=5, sequences=16),
        machine=Machine(micro_batch=2),
    )
    return base.with_(**changes)


def test_stored_bytes_are_divided_but_for_vectors():
    given = config()
    whole, half, many = (stored_bytes(given, shards) for shards in (1, 2, 10_000))
    vectors = 4 * (count_parameters(given.model).norms + count_parameters(given.model).coefficients)
    assert half.weights == vectors + (whole.weights - vectors) / 2
    assert half.gradients == vectors + (whole.gradients - vectors) / 2
    assert many.weights < vectors + 4 * 64 * 64  # a row of each matrix and table


def test_a_plan_shares_the_model():
    """Memory falls, and what travels is told by what it is."""
    alone = make_plan(config(), Circumstances(LARGE))
    ddp, fsdp = (
        make_plan(config(parallel=kind), Circumstances(LARGE, gpus=8)) for kind in ("ddp", "fsdp")
    )
    hsdp = make_plan(config(parallel="fsdp", shard_group=4), Circumstances(LARGE, gpus=8))
    assert (ddp.shards, fsdp.shards, hsdp.shards) == (1, 8, 4)
    assert ddp.memory.update.weights == alone.memory.update.weights
    assert fsdp.memory.peak < hsdp.memory.peak < ddp.memory.peak
    assert alone.time.reduced_a_step == alone.time.gathered_a_step == 0
    trained, muon = 4 * alone.parameters.all, 2 * 4 * 12 * 64**2
    assert ddp.time.reduced_a_step == pytest.approx(2 * 7 / 8 * trained)
    # Each of four shapes has four matrices: an owner for each, and an empty place for the others.
    assert ddp.time.gathered_a_step == 7 * muon / 4
    assert ddp.time.weights_a_step == 0
    # Of a sharded model: gradients are only scattered, Muon's rows go to an owner and back.
    assert fsdp.time.reduced_a_step == pytest.approx(7 / 8 * trained, rel=0.05)
    assert fsdp.time.gathered_a_step == pytest.approx(2 * 7 / 8 * muon / 8)
    tables = 4 * 2 * (512 + 32) * 64
    assert fsdp.time.weights_a_step == pytest.approx(7 / 8 * (2 * muon + tables))
    # The four owners of each shape are of one copy: the other one sends as much.
    assert hsdp.time.gathered_a_step == (2 * 3 / 4 + 1) * muon / 4
    page = plan_page(hsdp)
    assert "8 (sharing the model by 4, 2 copies) x a large one" in page
    assert "of weights" in page
    assert fsdp.disk == ddp.disk == alone.disk  # a checkpoint is the whole model, in any files


def test_auto_is_what_fits():
    whole = MemoryEstimate(config(), torch.bfloat16, 4).at(2).peak
    room = (0.9 * whole + Device.FIXED) / (1 - Device.SHARE)
    assert make_plan(config(), Circumstances(LARGE, gpus=4)).shards == 1
    tight = make_plan(config(), Circumstances(replace(LARGE, memory=room), gpus=4))
    assert tight.shards == 4
    alone = make_plan(config(), Circumstances(replace(LARGE, memory=room)))
    assert not alone.fit.fits
    assert f"with --parallel fsdp on {alone.fit.fewest} devices or more" in plan_page(alone)


def test_the_fewest_devices_against_trying_all():
    given = config(vocab_size=4096)

    def peak(count: int) -> float:
        estimate = MemoryEstimate(given, torch.float32, count, count)
        return estimate.at(min(2, estimate.own)).peak

    peaks = {count: peak(count) for count in range(1, 17)}
    assert peaks[1] > peaks[2] > peaks[4] > peaks[16]
    for room in (peaks[16] - 1, peaks[16], peaks[3], peaks[2] + 1, peaks[1]):
        fit = [count for count, size in peaks.items() if size <= room]
        assert smallest(given, torch.float32, 2, room) == (fit[0] if fit else None)


def test_a_group_that_does_not_divide_the_gpus():
    with pytest.raises(ConfigError, match="--shard-group 3 does not divide 8 GPUs"):
        make_plan(config(parallel="fsdp", shard_group=3), Circumstances(LARGE, gpus=8))


@pytest.mark.parametrize(("name", "billions"), [("1b", (0.9, 1.2)), ("7b", (6.2, 7.0))])
def test_presets_of_scale(name, billions):
    """Their shape, and what the planner says of them on 64 devices."""
    given = preset(name, "nesterov-lie-trotter")
    assert (given.model.oracles, given.model.context) == ("modern", 4096)
    assert billions[0] < count_parameters(given.model).paper / 1e9 < billions[1]
    tokens = given.tokens_per_step * given.recipe.steps
    assert tokens / count_parameters(given.model).paper == pytest.approx(20, rel=0.1)
    plan = make_plan(given.with_(parallel="fsdp"), Circumstances(find_device("h100"), gpus=64))
    assert plan.fit.fits
    assert plan.memory.peak < find_device("h100").usable
    assert 1 < plan.time.seconds / 3600 < 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["1b", "7b"])
def test_every_standard_rule_at_scale(name):
    """Memory and hours of each, beside gradient descent: a table and a stream more at most. The
    FLOPs differ by little. ``hamiltonian`` does not compute the last block's MLP. With recomputing,
    gradient descent alone does not compute the last product of each MLP again: its result is only
    added to X, and the backward pass does not read it."""
    where = Circumstances(find_device("h100"), gpus=64)
    plans = {rule: make_plan(preset(name, rule).with_(parallel="fsdp"), where) for rule in standard}
    base = plans["gd-lie-trotter"]
    for rule, plan in plans.items():
        assert plan.fit.fits, rule
        assert base.memory.peak * 0.9 < plan.memory.peak < 2.5 * base.memory.peak, rule
        assert plan.time.seconds == pytest.approx(base.time.seconds * _more_work(plan), rel=0.005)
        assert plan.fit.fewest is not None
        assert plan.fit.fewest <= 64


def _more_work(plan: Plan) -> float:
    """Of a token's forward and backward pass, times gradient descent's."""
    model, again = plan.config.model, plan.config.machine.recompute
    mlp, flops = 2 * plan.parameters.mlp, model_work(model, recompute=again).total.both
    base = model_work(replace(model, rule="gd-lie-trotter"), recompute=again)
    less = 3 * mlp / model.n_layer if model.rule.name == "hamiltonian" else 0.0
    assert flops == pytest.approx(base.total.both - less, rel=1e-6)
    more = mlp / 3 if again and model.rule.uses_velocity else 0.0  # a product of three, once
    if less:
        more -= again * mlp / model.n_layer  # and nothing of that MLP is computed again
    return 1 + (more - less) / (base.total.both + base.recomputed)


def note_step(path: str, name: str, rule: str, size: int, shards: int) -> None:
    """In a warm process, because it plays a process of many."""
    found = fake_step(preset(name, rule), torch.bfloat16, size, shards)
    numbers = {
        n: getattr(found, n) for n in ("rest", "passes", "update", "largest", "sent", "shapes")
    }
    with open(path, "w") as file:
        json.dump({**numbers, "dtypes": [str(each) for each in found.dtypes]}, file)


def pace(given: TrainConfig, size: int, shards: int) -> hours.Pace:
    model = given.model
    parts = model_work(model), count_parameters(model)
    device, micro = find_device("h100"), given.machine.micro_batch
    return hours.Pace(given, *parts, device, torch.bfloat16, size, micro, shards)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rule", "size", "shards"),
    [
        *(("7b", rule, 64, 64) for rule in standard),
        ("1b", "gd-lie-trotter", 8, 8),
        ("1b", "hamiltonian", 64, 8),
        ("7b", "nesterov-lie-trotter", 8, 8),
    ],
)
def test_a_step_of_full_size_on_fake_tensors(tmp_path, name, rule, size, shards):
    """FSDP's own code, one process of many, without memory, at the preset's whole depth. What it
    holds between steps is the planner's to the byte, the peak of the passes within 2 %. The peak of
    the update is planned up to 5 % higher: of the process that has most in each of Muon's turns. No
    tensor is as large as the model. The largest is a table, which is gathered whole."""
    path = tmp_path / "found"
    process = FORKS.Process(target=note_step, args=(str(path), name, rule, size, shards))
    process.start()
    process.join()
    assert process.exitcode == 0
    found = json.loads(path.read_text())
    given = preset(name, rule)
    planned = MemoryEstimate(given, torch.bfloat16, size, shards).at(given.machine.micro_batch)
    assert planned.passes.peak + planned.update.optimizer == pytest.approx(
        found["passes"], rel=0.02
    )
    stored = planned.update
    assert found["rest"] == pytest.approx(
        stored.weights + stored.gradients + stored.optimizer, abs=1024
    )
    assert found["update"] <= stored.peak + 1024 < 1.05 * found["update"]
    one = given.with_(sequences=size * given.machine.micro_batch)
    sent = hours._sent(pace(one, size, shards))
    assert found["sent"]["weights"] == pytest.approx(sent["weights_a_step"], rel=0.005)
    assert found["sent"]["gradients"] == pytest.approx(sent["reduced_a_step"], rel=0.005)
    assert found["sent"]["muon"] == pytest.approx(sent["gathered_a_step"], rel=0.1)
    parts = count_parameters(given.model)
    tables = 4 * (parts.token_table + parts.start_tables)
    block = 4 * (parts.attention + parts.mlp) / given.model.n_layer
    assert found["largest"] <= max(tables, block)
    assert found["largest"] < 0.2 * stored_bytes(given).weights
    with torch.device("meta"):
        model = yf.YuriiFormer(given.model, seed=None)
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    assert found["shapes"] == shapes
    assert found["dtypes"] == ["torch.float32"]
