"""A whole plan: hours, traffic and disk against sums done by hand, and devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import tiny
from yuriiformer.config import Machine, Recipe, TrainConfig, Validation
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.traffic import fused_bytes, traffic
from yuriiformer.model import oracles as registry
from yuriiformer.model.device import machine_memory
from yuriiformer.planning.devices import Device, Timing, find_device, known_devices, time_step
from yuriiformer.planning.plan import Circumstances, make_plan
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.saving import Saver

FIXED = Device.FIXED
ALONE = Processes(0, 1, torch.device("cpu"))
LARGE = Device("large", "a large one", 100e9, 1e12, 1e13, 1e14)


def config(rule: str = "nesterov-lie-trotter", **machine) -> TrainConfig:
    model = yf.ModelConfig(rule, n_layer=2, n_head=2, d_model=16, vocab_size=40, context=32)
    return TrainConfig(
        model,
        Recipe(steps=25, sequences=12),
        Validation(eval_every=10, eval_sequences=6),
        Machine(**{"micro_batch": 4, **machine}),
    )


def test_hours_by_hand():
    given = config()
    plan = make_plan(given, Circumstances(LARGE, gpus=2, mfu=0.5))
    work = model_work(given.model).total
    # X Xᵀ, A A, and B X: 4 r² c + 2 r³, five times, for qkv, out, up, down of two layers
    shapes = [(16, 48), (16, 16), (16, 64), (16, 64)] * 2
    muon = sum(5 * (4 * r * r * c + 2 * r**3) for r, c in shapes)
    rate = 2 * 1e14 * 0.5
    training = 25 * (12 * 32 * work.both + muon) / rate
    assert plan.time.training_seconds == pytest.approx(training)
    validated = [step for step in range(26) if step % 10 == 0 or step == 25]  # as the loop does
    assert len(validated) == 4
    seconds = len(validated) * 6 * 32 * work.forward / rate
    assert plan.time.validation_seconds == pytest.approx(seconds)
    assert plan.time.seconds == pytest.approx(training + seconds)
    assert plan.precision == "bfloat16"
    trained = sum(p.numel() for p in tiny_model(given).parameters() if p.requires_grad)
    assert plan.time.reduced_a_step == 4 * trained  # of two, each sends half, twice


def tiny_model(given: TrainConfig) -> yf.YuriiFormer:
    return yf.YuriiFormer(given.model, seed=None)


def test_recomputing_takes_longer_and_less_room():
    plain, again = (make_plan(config(recompute=r), Circumstances(LARGE)) for r in (False, True))
    work = model_work(config().model, recompute=True)
    share = (work.total.both + work.recomputed) / work.total.both
    assert 1.1 < share < 1.34
    muon = plain.muon_flops
    assert muon == again.muon_flops
    both = 12 * 32 * work.total.both
    ratio = again.time.training_seconds / plain.time.training_seconds
    assert ratio == pytest.approx((share * both + muon) / (both + muon))
    assert again.memory.passes.kept < 0.5 * plain.memory.passes.kept


def test_a_timed_step_gives_the_hours():
    where = Circumstances(LARGE, timing=Timing(passes=2.0, update=1.0))
    time = make_plan(config(), where).time
    assert time.measured
    assert time.training_seconds == 25 * (3 * 2.0 + 1.0)  # three micro-batches of 4
    work = model_work(config().model).total
    muon = 25 * 5 * 2 * sum(4 * 16 * 16 * c + 2 * 16**3 for c in (48, 16, 64, 64))
    assert time.mfu == pytest.approx((25 * 12 * 32 * work.both + muon) / (175 * 1e14))
    # four validations of six sequences, forward only, at the speed of the passes
    forward = 2.0 / 4 * work.forward / work.both
    assert time.validation_seconds == pytest.approx(4 * 6 * forward)
    assert time.more_seconds is None  # it is in what was measured


def test_a_timed_step_has_what_it_recomputes():
    """The same seconds, whatever was done in them; and none of it counted twice."""
    where = Circumstances(LARGE, timing=Timing(passes=2.0, update=1.0))
    plain, again = (make_plan(config(recompute=r), where).time for r in (False, True))
    assert plain.training_seconds == again.training_seconds
    assert again.mfu > plain.mfu


@pytest.mark.parametrize(("gpus", "largest"), [(1, 12), (7, 2)])
def test_the_largest_share_sets_the_pace(gpus, largest):
    time = make_plan(config(), Circumstances(LARGE, gpus=gpus, mfu=0.5)).time
    work = model_work(config().model).total
    muon = 5 * 2 * sum(4 * 16 * 16 * c + 2 * 16**3 for c in (48, 16, 64, 64))
    seconds = 25 * (largest * 32 * work.both + muon / gpus) / (1e14 * 0.5)
    assert time.training_seconds == pytest.approx(seconds)
    assert time.uneven == (12 % gpus > 0)
    # Of two layers: six GPUs compute a matrix, and one the two smallest. All send as much.
    most = 16 * 48 + 2 * 16 * 16 + 2 * 16 * 64
    assert time.gathered_a_step == 2 * most * (gpus - 1)  # bfloat16


def test_what_a_rule_moves_in_hours():
    plan = make_plan(config(), Circumstances(LARGE))
    rule, base = plan.against.rule, plan.against.baseline
    times = 25 * 3  # steps, micro-batches of 4
    more = plan.time.more_seconds
    assert more.fused == pytest.approx(times * (rule.fused_bytes - base.fused_bytes) / 1e12)
    assert more.as_it_is > more.fused > 0
    own = make_plan(config("gd-lie-trotter"), Circumstances(LARGE)).time.more_seconds
    assert (own.as_it_is, own.fused) == (0, 0)


@pytest.mark.parametrize("micro", [4, 12])
def test_the_parts_of_memory_add_up(micro):
    """Also where the one micro-batch of a step begins without gradients."""
    found = make_plan(config(micro_batch=micro), Circumstances(LARGE)).to_dict()["memory"]
    parts = ("weights", "gradients_at_peak", "optimizer", "kept", "temporary")
    assert found["in_passes"]
    assert sum(found[part] for part in parts) == found["peak"]
    assert min(found[part] for part in parts) >= 0
    assert (found["gradients_at_peak"] == 0) == (micro == 12)


def test_timing_a_real_step():
    found = time_step(config(), 4, torch.float32)
    assert 0 < found.passes < 20
    assert 0 < found.update < 20


def test_what_does_not_fit():
    plain = make_plan(config(), Circumstances(LARGE)).to_dict()["memory"]
    assert plain["fits"]
    assert plain["largest_micro_batch"] == 12
    just = (plain["peak"] + FIXED + 1) / 0.92
    tight = make_plan(config(), Circumstances(replace(LARGE, memory=just))).to_dict()["memory"]
    assert tight["fits"]
    assert tight["largest_micro_batch"] == 4
    less = (plain["peak"] + FIXED - 1) / 0.92
    over = make_plan(config(), Circumstances(replace(LARGE, memory=less))).to_dict()["memory"]
    assert not over["fits"]
    assert over["largest_micro_batch"] == 3
    assert over["largest_with_recompute"] > 4
    none = make_plan(config(), Circumstances(replace(LARGE, memory=FIXED))).to_dict()["memory"]
    assert (none["largest_micro_batch"], none["largest_with_recompute"]) == (0, 0)


@pytest.mark.parametrize(
    ("rule", "tensors"),
    [
        # X + attn read by mlp: 2 in, 1 out; X + mlp: 2 in, 1 out; sums only: forward and backward
        ("gd-lie-trotter", 2 * (2 + 1) + 2 * (2 + 1)),
        # X and V in, X + mu V out; then V, attn, X in and V, X, X + mu V out; then V, mlp, X in
        # and V, X out; all of it needs its inputs again
        ("nesterov-lie-trotter", (3 * 2 + 2 * 1) + (3 * 3 + 2 * 3) + (3 * 3 + 2 * 2)),
    ],
)
def test_fused_traffic_by_hand(rule, tensors):
    model = tiny(rule).config
    program = model.rule.programs(3)[0]
    size = 5 * 12 * 16 * 4
    assert fused_bytes(model, program, 5, torch.float32) == tensors * size


@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_traffic_of_gradient_descent_by_hand(oracles):
    """What the oracles move, and six tensors for each sum: two read, one written, and as much for
    the two gradients that meet."""
    model = tiny("gd-lie-trotter", oracles).config
    found = traffic(model, 5, torch.float32)
    assert found.other == pytest.approx(found.fused, rel=0.01)
    twice = traffic(replace(model, n_layer=6), 5, torch.float32)
    assert twice.products == 2 * found.products
    assert twice.other == 2 * found.other


def test_fusing_never_moves_more():
    for rule in ("polyak-euler", "imex2-ln-attn-mlp", "gd-normalized"):
        found = traffic(tiny(rule, d_model=64).config, 3, torch.bfloat16)
        assert found.fused < found.other


def test_gradient_descent_costs_nothing_beyond_itself():
    found = make_plan(config("gd-lie-trotter"), Circumstances(LARGE)).against
    assert all(value == 0 for name, value in vars(found).items() if name.startswith("extra"))
    other = make_plan(config("verlet-ama"), Circumstances(LARGE)).against
    assert other.extra_flops > 0
    assert other.extra_bytes_eager > other.extra_bytes_fused > 0


def test_the_roofline_by_hand():
    """Where nothing but the rate, or nothing but the bandwidth, is in the way."""
    slow = make_plan(config(), Circumstances(replace(LARGE, bfloat16=1.0))).against.rule
    assert slow.eager_seconds == pytest.approx(slow.flops)
    thin = make_plan(config(), Circumstances(replace(LARGE, bandwidth=1.0))).against.rule
    assert thin.eager_seconds == pytest.approx(thin.products_bytes + thin.other_bytes)
    work = model_work(config().model)
    assert slow.flops == pytest.approx(4 * 32 * (work.total.both - work.output.both))


def test_disk_as_a_run_reserves_it(tmp_path):
    given = config()
    disk = make_plan(given, Circumstances(LARGE, tokens=(900, 1000))).disk
    model = tiny_model(given)
    saver = Saver(tmp_path, model, Optimizer(model, given.recipe), ALONE, {})
    whole, alone = saver.bytes_needed()
    assert disk.checkpoint == pytest.approx(whole, rel=1e-3)
    assert disk.model == alone
    assert disk.needed == pytest.approx(3 * whole + 3 * alone, rel=1e-3)
    assert disk.data == 2000


@pytest.mark.parametrize(
    ("gpus", "mfu", "words"),
    [(0, 0.4, "at least 1"), (13, 0.4, "--gpus 12 or fewer"), (1, 0.0, "mfu"), (1, 1.5, "mfu")],
)
def test_circumstances_that_cannot_be(gpus, mfu, words):
    with pytest.raises(yf.YuriiError, match=words):
        make_plan(config(), Circumstances(LARGE, gpus=gpus, mfu=mfu))


def test_devices():
    assert len(known_devices()) >= 12
    for device in known_devices().values():
        assert 10e9 < device.memory < 300e9
        assert 0.1e12 < device.bandwidth < 10e12
        assert 5e12 < device.float32 < 200e12
        assert device.bfloat16 is None or 1.5 < device.bfloat16 / device.float32 < 40
    peaks = {
        name: (find_device(name).bfloat16, find_device(name).memory)
        for name in ("h200", "h100", "a100-80", "l4", "mi300x")
    }
    assert peaks == {  # dense, not "with sparsity"
        "h200": (989e12, 141e9),
        "h100": (989e12, 80e9),
        "a100-80": (312e12, 80e9),
        "l4": (121e12, 24e9),
        "mi300x": (1307e12, 192e9),
    }
    assert find_device("t4").dtype("auto") == torch.float32
    assert find_device("h200").dtype("auto") == torch.bfloat16
    assert find_device("h200").dtype("float32") == torch.float32
    with pytest.raises(yf.YuriiError, match="no bfloat16"):
        find_device("v100").dtype("bfloat16")
    with pytest.raises(yf.YuriiError, match="did you mean 'h200'"):
        find_device("h20")


def test_memory_of_a_container(tmp_path: Path):
    info, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    info.write_text("MemTotal:       16384 kB\nMemFree: 1 kB\n")
    limit.write_text("max\n")
    assert machine_memory((str(limit),), str(info)) == 16 * 2**20
    limit.write_text(f"{2**20}\n")
    assert machine_memory((str(limit), str(tmp_path / "none")), str(info)) == 2**20


class Peeking(torch.nn.Linear):
    """An oracle that asks for a value."""

    def __init__(self, config: yf.ModelConfig) -> None:
        super().__init__(config.d_model, config.d_model)

    def forward(self, Y, context):
        return super().forward(Y) if Y.sum().item() < 1e9 else Y


class Plain(Peeking):
    def forward(self, Y, context):
        return torch.nn.Linear.forward(self, Y)


def test_somebodys_oracles(monkeypatch):
    monkeypatch.setattr(registry, "_PAIRS", dict(registry._PAIRS))
    for name, attention in (("plain", Plain), ("peeking", Peeking)):
        pair = registry.OraclePair(attention, Plain, lambda c: torch.nn.LayerNorm(c.d_model))
        registry.register_oracles(name, pair)
    given = config()
    own = replace(given, model=replace(given.model, oracles="plain"))
    work = make_plan(own, Circumstances(LARGE)).work
    assert work.projections == work.mlp
    assert work.mlp.forward == 2 * 2 * 16**2
    assert work.scores.forward == 0
    with pytest.raises(yf.YuriiError, match="cannot be counted without running"):
        make_plan(replace(own, model=replace(own.model, oracles="peeking")), Circumstances(LARGE))
