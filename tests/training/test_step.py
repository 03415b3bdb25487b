"""A step of training equals the longhand step, however the batch is cut or shared out."""

from __future__ import annotations

import os
import socket

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import yuriiformer as yf
from tests.training.reference import Longhand
from yuriiformer.config import Machine, Recipe, TrainConfig, Validation
from yuriiformer.data.store import TokenStore
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import Batches, train_step

CPU = torch.device("cpu")
SEQUENCES, STEPS = 16, 3


def config(rule: str, micro_batch: int, clip: float = 1.0) -> TrainConfig:
    return TrainConfig(
        yf.ModelConfig(rule, n_layer=2, n_head=2, d_model=8, vocab_size=32, context=6),
        Recipe(steps=10, warmup=2, sequences=SEQUENCES, clip=clip),
        Validation(eval_every=0),
        Machine(micro_batch=micro_batch),
    )


def corpus(folder) -> TokenStore:
    tokens = np.random.default_rng(0).integers(32, size=4000).astype("<u2")
    for split in ("train", "val"):
        tokens.tofile(folder / f"{split}.bin")
    return TokenStore.open(folder)


def trained(store: TokenStore, settings: TrainConfig, team: Processes) -> tuple[dict, list[float]]:
    """The weights after some steps in float64, and the losses."""
    model = yf.YuriiFormer(settings.model, seed=3).double()
    optimizer = Optimizer(model, settings.recipe, torch.float64, team.group)
    module = model if team.group is None else DistributedDataParallel(model)
    batches = Batches(store, settings, team)
    losses = [
        train_step(module, batches.training(step), optimizer, team, torch.float32, step).loss
        for step in range(STEPS)
    ]
    return {name: p.detach() for name, p in model.named_parameters()}, losses


def longhand(store: TokenStore, settings: TrainConfig) -> tuple[dict, list[float]]:
    """The same with the whole batch at once and every formula written out."""
    model = yf.YuriiFormer(settings.model, seed=3).double()
    live = {name: p for name, p in model.named_parameters() if p.requires_grad}
    order = yf.BatchOrder(len(store.train), 6, SEQUENCES, seed=0)
    reference = Longhand(live, steps=10, warmup=2)
    losses = []
    for step in range(STEPS):
        inputs, targets = store.sequences("train", order.starts(step), 6)
        loss = model(torch.tensor(inputs), torch.tensor(targets))
        gradients = torch.autograd.grad(loss, list(live.values()))
        reference.step(step, dict(zip(live, gradients, strict=True)), clip=settings.recipe.clip)
        losses.append(loss.item())
        with torch.no_grad():
            for name, p in live.items():
                p.copy_(reference.weights[name])
    return {name: p.detach() for name, p in model.named_parameters()}, losses


def assert_same(got: tuple[dict, list[float]], expected: tuple[dict, list[float]]) -> None:
    assert got[1] == pytest.approx(expected[1], rel=1e-12)
    for name, weight in expected[0].items():
        torch.testing.assert_close(got[0][name], weight, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("clip", [1.0, 0.05])
@pytest.mark.parametrize("accumulation", [1, 2, 8])
@pytest.mark.parametrize("rule", ["gd-lie-trotter", "nesterov-lie-trotter", "hamiltonian"])
def test_one_process(tmp_path, rule, accumulation, clip):
    store = corpus(tmp_path)
    settings = config(rule, SEQUENCES // accumulation, clip)
    assert_same(trained(store, settings, Processes(0, 1, CPU)), longhand(store, settings))


def test_uneven_micro_batches(tmp_path):
    store = corpus(tmp_path)
    settings = config("nesterov-lie-trotter", 5)
    assert_same(trained(store, settings, Processes(0, 1, CPU)), longhand(store, settings))


def test_clipping_binds_and_comes_after_accumulation(tmp_path):
    """Clipping each micro-batch would give another gradient; here the two are told apart."""
    store = corpus(tmp_path)
    norms = []
    for clip in (1e9, 0.05):
        settings = config("gd-lie-trotter", 2, clip)
        model = yf.YuriiFormer(settings.model, seed=3).double()
        optimizer = Optimizer(model, settings.recipe, torch.float64)
        batches = Batches(store, settings, Processes(0, 1, CPU)).training(0)
        result = train_step(model, batches, optimizer, Processes(0, 1, CPU), torch.float32, 0)
        left = torch.stack([p.grad.norm() for p in optimizer.parameters]).norm().item()
        norms.append((result.grad_norm, left))
    assert norms[0][0] == norms[0][1] == norms[1][0]
    assert norms[1][1] == pytest.approx(0.05, rel=1e-4)


def _process(rank: int, size: int, port: int, folder: str, rule: str, micro: int, out: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    team = Processes(rank, size, CPU, dist.group.WORLD)
    result = trained(TokenStore.open(folder), config(rule, micro), team)
    torch.save(result, f"{out}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("size", "rule", "micro"),
    [
        (2, "nesterov-lie-trotter", 8),  # accumulation 1
        (2, "hamiltonian", 4),  # 2, with frozen parameters
        pytest.param(2, "nesterov-lie-trotter", 1, marks=pytest.mark.slow),  # 8
        pytest.param(3, "nesterov-lie-trotter", 2, marks=pytest.mark.slow),  # shares of 6, 5, 5
        pytest.param(4, "nesterov-lie-trotter", 4, marks=pytest.mark.slow),
    ],
)
def test_several_processes(tmp_path, size, rule, micro):
    store = corpus(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = (size, port, str(tmp_path), rule, micro, str(tmp_path))
    mp.start_processes(_process, arguments, nprocs=size, start_method="forkserver")
    expected = longhand(store, config(rule, micro))
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(size)]
    for result in results:
        assert_same(result, expected)
        for name, weight in result[0].items():
            assert torch.equal(weight, results[0][0][name])  # no process drifts from the others
