"""Memory predicted on fake tensors, against real ones and against the process itself."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
import torch

import yuriiformer as yf
from benchmarks.plan_memory import SIZES, configuration, measured
from yuriiformer.config import Machine, Recipe, TrainConfig
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.methods import frugal
from yuriiformer.model.config import ModelConfig
from yuriiformer.training import memory
from yuriiformer.training.estimate import MemoryEstimate, largest
from yuriiformer.training.memory import (
    StepMemory,
    simulate_passes,
    simulate_update,
    update_memory,
)
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import MicroBatch, build_model, train_step


def config(rule: str = "nesterov-lie-trotter", *, recompute: bool = False, **sizes) -> TrainConfig:
    shape = {"n_layer": 3, "n_head": 2, "d_model": 32, "vocab_size": 96, "context": 48, **sizes}
    machine = Machine(micro_batch=4, recompute=recompute)
    return TrainConfig(ModelConfig(rule, **shape), Recipe(steps=5, sequences=16), machine=machine)


def simulate(given: TrainConfig, micro_batch: int, dtype, *, accumulates: bool) -> StepMemory:
    """One step, layer by layer."""
    passes = simulate_passes(given, micro_batch, dtype, accumulates=accumulates)
    return StepMemory(simulate_update(given, dtype), passes)


def real_peak(given: TrainConfig, micro_batch: int) -> float:
    """Of the second of two whole steps on real tensors, through the package's own `train_step`."""
    shape = (micro_batch, given.model.context)
    with Watcher() as watcher:
        model = build_model(given, seed=0)
        optimizer = Optimizer(model, given.recipe, torch.float32)
        for step in range(2):
            watcher.restart()
            ids = [torch.randint(given.model.vocab_size, shape) for _ in range(2)]
            batches = [MicroBatch((each, each.clone()), 0.5) for each in ids]
            team = Processes(0, 1, torch.device("cpu"))
            train_step(model, batches, optimizer, team, torch.float32, step)
            del ids, batches
    return watcher.peak


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("rule", ["hamiltonian"])
def test_fake_tensors_take_what_real_ones_do(rule, recompute):
    given = config(rule, recompute=recompute)
    predicted = simulate(given, 4, torch.float32, accumulates=True).peak
    # two micro-batches of tokens are there in a real step, and the step's small change
    assert predicted == pytest.approx(real_peak(given, 4), rel=0.02)


@pytest.mark.parametrize("recompute", [False, True])
def test_what_is_kept_against_what_autograd_saves(recompute):
    """Asked of autograd itself, by hooks; those do not see the streams that recomputing starts
    from: two a layer."""
    given = config(recompute=recompute, d_model=64)
    model, seen = build_model(given, seed=0), {}
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = tensor  # held, so that no address is used twice
        return tensor

    ids = torch.zeros(4, 48, dtype=torch.int64)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(ids, ids)
    saved = sum(t.untyped_storage().nbytes() for t in seen.values()) - ids.nbytes
    saved += 3 * 2 * (4 * 48 * 64 * 4) if recompute else 0
    kept = simulate_passes(given, 4, torch.float32, accumulates=True).kept
    assert kept == pytest.approx(saved, rel=0.02)


def exact(given: TrainConfig, micro_batch: int, dtype: torch.dtype) -> None:
    found = MemoryEstimate(given, dtype).at(micro_batch)
    whole = simulate(given, micro_batch, dtype, accumulates=True)
    assert (found.peak, found.passes.kept) == (whole.peak, whole.passes.kept)
    assert found.update == whole.update


@pytest.mark.parametrize(
    "rule", [pytest.param("gd-lie-trotter", marks=pytest.mark.slow), "hamiltonian"]
)
def test_the_peak_of_a_single_micro_batch_too(rule):
    """Without earlier gradients the largest moment may move from the blocks to the tables."""
    given = config(rule, n_layer=4)
    given = replace(given, recipe=replace(given.recipe, sequences=3))
    found = MemoryEstimate(given, torch.float32).at(3)
    assert found.peak == simulate(given, 3, torch.float32, accumulates=False).peak


@pytest.mark.parametrize("layers", [5, 6, 7])
def test_few_layers_tell_of_many_where_little_is_kept(monkeypatch, layers):
    monkeypatch.setattr(frugal, "LARGE", 0)
    memory._simulated_passes.cache_clear()
    exact(
        config("hamiltonian" if layers == 7 else "nesterov-lie-trotter", n_layer=layers),
        2,
        torch.float32,
    )
    memory._simulated_passes.cache_clear()


def test_few_layers_tell_of_many_exactly():
    exact(config("hamiltonian", n_layer=4, recompute=True), 3, torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(yf.rules)))
def test_few_layers_tell_of_many_exactly_for_every_rule(number):
    """Each with one of both pairs of oracles, both precisions, with or without recomputing."""
    rule, oracles = list(yf.rules)[number], ("paper", "modern")[number % 2]
    dtype = (torch.bfloat16, torch.float32)[number // 2 % 2]
    exact(config(rule, n_layer=5, oracles=oracles, recompute=number % 3 == 0), 5, dtype)


def test_updates_of_rules_that_share_their_matrices():
    for rule in ("nesterov-lie-trotter", "gd-tied", "hamiltonian"):
        given = config(rule, n_layer=2)
        assert update_memory(given, torch.float32) == simulate_update(given, torch.float32)


def test_few_chunks_of_the_loss_tell_of_many(monkeypatch):
    """Seven chunks, the last of them smaller."""
    given = config(vocab_size=2**18, n_layer=1, d_model=8, context=50)
    few = memory._simulated_passes.__wrapped__(given, 17, torch.bfloat16, accumulates=True)
    from contextlib import nullcontext

    monkeypatch.setattr(memory, "_few_chunks", nullcontext)
    assert memory._simulated_passes.__wrapped__(given, 17, torch.bfloat16, accumulates=True) == few


def test_bytes_by_name():
    """Weights, gradients and moments of known size: 4, 4, 4 (Muon) or 8 bytes a parameter."""
    given = config("gd-lie-trotter")
    found = simulate_update(given, torch.float32)
    matrices = 3 * 12 * 32**2
    rest = (96 + 48) * 32 + 7 * 32
    assert found.weights == found.gradients == 4 * (matrices + rest)
    assert found.optimizer == 4 * matrices + 8 * rest + 4 * 9  # and nine counts of steps
    step = simulate(given, 4, torch.float32, accumulates=True)
    assert step.temporary >= 0
    assert step.peak >= found.weights + found.gradients + found.optimizer + step.passes.kept


def test_accumulating_holds_the_gradient():
    """A first micro-batch makes the gradients while what was kept goes: the peak is lower."""
    given = config(d_model=64)
    first, later = (
        simulate_passes(given, 2, torch.float32, accumulates=each).peak for each in (False, True)
    )
    gradients = simulate_update(given, torch.float32).gradients
    assert 0.5 * gradients < later - first <= gradients


def test_a_storage_counts_once_and_until_it_goes():
    with Watcher() as watcher:
        one = torch.ones(1000)
        view = one.view(10, 100)[2:]
        assert watcher.alive == 4000
        two = one + 1
        assert (watcher.alive, watcher.peak) == (8000, 8000)
        del one
        assert watcher.alive == 8000  # its view is there
        del view
        assert watcher.alive == 4000
        watcher.restart()
        two.add_(1.0)
        assert watcher.other == 8000  # read and written
        assert (watcher.alive, watcher.peak) == (4000, 4000)


@pytest.mark.parametrize("seed", range(8))
def test_the_largest_that_fits_against_trying_all(seed):
    draw = random.Random(seed)
    for _ in range(40):
        lines = [(draw.uniform(0, 100), draw.uniform(0.1, 9)) for _ in range(draw.randint(1, 4))]
        most, room = draw.randint(1, 60), draw.uniform(0, 300)

        def peak(m: int, lines=lines) -> float:
            return max(start + slope * m for start, slope in lines)

        asked: list[int] = []

        def asking(m: int, peak=peak, asked=asked) -> float:
            asked.append(m)
            return peak(m)

        expected = max([m for m in range(1, most + 1) if peak(m) <= room], default=0)
        found = largest(asking, room, most, draw.randint(1, 70))
        assert found == expected
        assert found in (0, *asked)
        assert found + 1 in (*asked, most + 1)  # and the next one up does not fit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "recompute"), [*product(list(SIZES)[:-1], [False, True]), (list(SIZES)[-1], False)]
)
def test_the_process_takes_what_was_predicted(size, recompute):
    """Resident memory of real steps, in a process of its own."""
    given = configuration(size, "nesterov-lie-trotter", recompute=recompute)
    micro = given.machine.micro_batch
    predicted = simulate(given, micro, torch.float32, accumulates=True).peak
    taken = measured(size, "nesterov-lie-trotter", recompute=recompute)
    assert predicted == pytest.approx(taken, rel=0.15)


def test_no_machine_holds_what_is_planned():
    """The paper's medium model at a micro-batch beyond this machine: no memory is taken."""
    given = yf.preset("openwebtext-medium", "nesterov-lie-trotter")
    given = replace(given, machine=replace(given.machine, micro_batch=480))
    assert MemoryEstimate(given, torch.bfloat16).at(480).peak > 400e9
