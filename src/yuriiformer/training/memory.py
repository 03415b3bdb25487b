"""The memory of a training step, found without allocating any: the package's own step on fake
tensors.

Every storage is followed from the operation that makes it until it is freed. So the peak is that of
the code that will run, and stays so when that code changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from yuriiformer.config import Machine, TrainConfig
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.costs.run import count_parameters, stored_bytes
from yuriiformer.model import loss
from yuriiformer.model.model import YuriiFormer
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import MicroBatch, accumulate, build_model

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Passes:
    """Bytes of a micro-batch's forward and backward pass. ``kept`` is what the forward pass keeps
    for the backward pass, with the loss's own buffers. The three peaks are those of the forward
    pass, of the backward pass through the blocks, and of the backward pass through the tables. They
    include the weights, and the gradients if these exist from the beginning (``held``)."""

    kept: float
    peaks: tuple[float, float, float]
    held: bool = True

    @property
    def peak(self) -> float:
        return max(self.peaks)

    def further(self, other: Passes, times: int) -> Passes:
        """On the line through both, ``times`` the way from this one."""
        line = [a + times * (b - a) for a, b in zip(self.peaks, other.peaks, strict=True)]
        kept = self.kept + times * (other.kept - self.kept)
        return Passes(kept, (line[0], line[1], line[2]), self.held)


@dataclass(frozen=True)
class Update:
    """Bytes of the end of a step: clipping, Muon, AdamW. All of them are in ``peak``."""

    weights: float
    gradients: float
    optimizer: float
    peak: float


@dataclass(frozen=True)
class StepMemory:
    """The memory of one process, in a step that is not the first."""

    update: Update
    passes: Passes

    @property
    def peak(self) -> float:
        return max(self.passes.peak + self.update.optimizer, self.update.peak)

    @property
    def in_passes(self) -> bool:
        """Whether the peak is in the forward and backward pass, and not in the update."""
        return self.passes.peak + self.update.optimizer >= self.update.peak

    @property
    def gradients(self) -> float:
        """At the peak: if a step has one micro-batch, there are none before its backward pass."""
        return 0.0 if self.in_passes and not self.passes.held else self.update.gradients

    @property
    def temporary(self) -> float:
        """At the peak, beside what has a name."""
        named = self.update.weights + self.gradients + self.update.optimizer
        return self.peak - named - (self.passes.kept if self.in_passes else 0.0)


def simulate_passes(
    config: TrainConfig,
    micro_batch: int,
    dtype: torch.dtype,
    *,
    accumulates: bool,
    sharded: bool = False,
) -> Passes:
    """Forward and backward pass of full sequences.

    ``accumulates``: the gradients of earlier micro-batches (or the buckets that several processes
    share) are there already when the forward pass begins. ``sharded``: the blocks' matrices come
    in the precision of the products, as they are gathered, and weights and gradients are left out.
    """
    machine = Machine(
        recompute=config.machine.recompute, stream_precision=config.machine.stream_precision
    )
    # All that the passes depend on: configurations that differ in the rest share the simulation.
    alone = TrainConfig(config.model, machine=machine)
    return _simulated_passes(alone, micro_batch, dtype, accumulates=accumulates, sharded=sharded)


@cache
def _simulated_passes(
    config: TrainConfig,
    micro_batch: int,
    dtype: torch.dtype,
    *,
    accumulates: bool,
    sharded: bool = False,
) -> Passes:
    kept = 0
    peaks: list[float] = []

    def mark(*_: object) -> None:
        peaks.append(watcher.peak)
        watcher.restart()

    def after_forward(module: object, inputs: object, loss: Tensor) -> None:
        nonlocal kept
        kept = watcher.alive
        mark()

    def after_start(module: object, inputs: object, start: Tensor) -> None:
        # Its gradient is there when the backward pass through the blocks is over.
        start.register_hook(mark)  # type: ignore[no-untyped-call]

    with FakeTensorMode(), Watcher() as watcher, _few_chunks():
        model = build_model(config)
        for matrix in (p for p in model.blocks.parameters() if sharded and p.ndim > 1):
            matrix.data = matrix.data.to(dtype)
        if accumulates:
            _give_gradients(model)
        tokens = torch.zeros(micro_batch, config.model.context, dtype=torch.int64)
        targets = tokens.clone()
        model.register_forward_hook(after_forward)
        model.starts["X_0"].register_forward_hook(after_start)
        before = watcher.alive
        accumulate(model, [MicroBatch((tokens, targets), 1.0)], Processes(0, 1, CPU), dtype)
        mark()
    less = before if sharded else 0
    peaks = [peak - less for peak in peaks]
    return Passes(kept - before, (peaks[0], peaks[1], peaks[2]), accumulates)


def update_memory(config: TrainConfig, dtype: torch.dtype) -> Update:
    """The same numbers as `simulate_update`. Rules whose matrices have the same shapes, as nearly
    all do, share one simulation of the temporary buffers."""
    found = count_parameters(config.model, split_fused=config.recipe.split_fused)
    tables = (found.token_table, found.start_tables, found.positions)
    stored = stored_bytes(config)
    named = stored.weights + stored.gradients + stored.optimizer
    key = (found.matrices, tables, config.recipe, dtype)
    if key not in _TEMPORARY:
        whole = simulate_update(config, dtype)
        _TEMPORARY[key] = whole.peak - whole.weights - whole.gradients - whole.optimizer
    return Update(stored.weights, stored.gradients, stored.optimizer, named + _TEMPORARY[key])


_TEMPORARY: dict[Any, float] = {}


def simulate_update(config: TrainConfig, dtype: torch.dtype) -> Update:
    """From the whole gradient to new weights. Several processes would each orthogonalise a part of
    Muon's matrices and gather the rest. That takes about as much memory, so it is not simulated
    apart."""
    with FakeTensorMode(), Watcher() as watcher:
        model = build_model(config)
        weights = watcher.alive
        optimizer = Optimizer(model, config.recipe, dtype)
        _give_gradients(model)
        gradients = watcher.alive - weights
        optimizer.step()  # the first makes its state
        states = watcher.alive - weights - gradients
        watcher.restart()
        optimizer.clip(optimizer.norm())
        optimizer.step()
        peak = watcher.peak
    return Update(weights, gradients, states, peak)


def _give_gradients(model: YuriiFormer) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.empty_like(parameter)


@contextmanager
def _few_chunks() -> Iterator[None]:
    """Let the loss go through its first chunks and its last only: the others take and give back
    the same memory, and of a large micro-batch there are hundreds."""
    whole = loss.chunk_starts

    def few(rows: int, chunk: int) -> Sequence[int]:
        every = whole(rows, chunk)
        return [*every[:2], *every[2:][-1:]]

    loss.chunk_starts = few
    try:
        yield
    finally:
        loss.chunk_starts = whole
