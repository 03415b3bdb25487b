"""Memory of a training step, known without a byte of it: the package's own step on fake tensors.

Every storage is followed from the operation that makes it until it is let go of, so the peak is
that of the code that will run, also where it is another one tomorrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from yuriiformer.config import Machine, TrainConfig
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.costs.run import count_parameters, stored_bytes
from yuriiformer.model import loss
from yuriiformer.model.model import SPAN, YuriiFormer
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.sharded_memory import gathered_bytes, muon_bytes
from yuriiformer.training.step import MicroBatch, accumulate, build_model

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Passes:
    """Bytes of a micro-batch's forward and backward pass. ``kept`` is what the forward pass leaves
    for the backward pass, the loss's own buffers with it. The peaks hold the weights, and the
    gradients if those are there from the beginning (``held``): of the forward pass, of the
    backward pass through the blocks, and through the tables after."""

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
    """Of one process, in a step that is not the first."""

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
        """At the peak: a step's only micro-batch has none before it has been through."""
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
    """The same as `simulate_update`, put together: rules whose matrices are alike, as nearly all
    are, share the simulation of what Muon needs besides."""
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
    """From the whole gradient to new weights. Of several processes each would orthogonalise a part
    of Muon's matrices only, and gather the rest: about as much, so that is not told apart."""
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


class Estimate:
    """The memory of a step as a function of the micro-batch, at any depth in the same time.

    Layers whose program is the same add the same to each peak, in spans of as many as share what
    they keep: the passes are simulated with few layers and with one span more, and the difference
    is taken for the others (tests show it exact).
    """

    def __init__(
        self, config: TrainConfig, dtype: torch.dtype, processes: int = 1, shards: int = 1
    ) -> None:
        self.config, self.dtype, self.processes, self.shards = config, dtype, processes, shards
        self.own = -(-config.recipe.sequences // processes)  # sequences per step, of one process
        programs = config.model.rule.programs(config.model.n_layer)
        tail = sum(program != programs[0] for program in programs)  # layers that are special
        self.few = max(tail + 1, 2)
        self.few += (config.model.n_layer - self.few) % SPAN
        self.update = update_memory(config, dtype) if shards == 1 else self._sharded_update()

    def at(self, micro_batch: int) -> StepMemory:
        layers = self.config.model.n_layer
        if layers <= self.few + SPAN:
            passes = self._passes(layers, micro_batch)
        else:
            few, more = (self._passes(n, micro_batch) for n in (self.few, self.few + SPAN))
            passes = few.further(more, (layers - self.few) // SPAN)
        if self.shards > 1:
            here = self.update.weights + self.update.gradients
            also = gathered_bytes(self.config, self.dtype)
            first, second, third = (p + here + m for p, m in zip(passes.peaks, also, strict=True))
            passes = replace(passes, peaks=(first, second, third))
        return StepMemory(self.update, passes)

    def _sharded_update(self) -> Update:
        stored = stored_bytes(self.config, self.shards)
        named = stored.weights + stored.gradients + stored.optimizer
        peak = named + muon_bytes(self.config, self.dtype, self.processes, self.shards)
        return Update(stored.weights, stored.gradients, stored.optimizer, peak)

    def largest(self, room: float) -> int:
        """The largest micro-batch whose peak is at most ``room``; 0 if not even one sequence's."""
        first = min(self.config.machine.micro_batch, self.own)
        return largest(lambda m: self.at(m).peak, room, self.own, first)

    def _passes(self, layers: int, micro_batch: int) -> Passes:
        config = replace(self.config, model=replace(self.config.model, n_layer=layers))
        accumulates = self.processes > 1 or micro_batch < self.own
        return simulate_passes(
            config, micro_batch, self.dtype, accumulates=accumulates, sharded=self.shards > 1
        )


def smallest(config: TrainConfig, dtype: torch.dtype, micro_batch: int, room: float) -> int | None:
    """The smallest number of processes that can share the model (each with up to so many sequences
    in memory) so that a step fits into their memory; None if as many as there are sequences do not
    suffice."""

    def fits(count: int) -> bool:
        estimate = Estimate(config, dtype, count, count)
        return estimate.at(min(micro_batch, estimate.own)).peak <= room

    most = config.recipe.sequences
    high = 1
    while not fits(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2  # does not fit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def fits_whole(config: TrainConfig, dtype: torch.dtype, processes: int, room: float) -> bool:
    """Whether each of so many processes has room for the whole model and a step of its own."""
    stored = stored_bytes(config)
    if stored.weights + stored.gradients + stored.optimizer > room:
        return False
    try:
        estimate = Estimate(config, dtype, processes)
        return estimate.at(min(config.machine.micro_batch, estimate.own)).peak <= room
    except Exception:  # an oracle of the user's can do anything with values that are not there
        return True


def largest(peak: Callable[[int], float], room: float, most: int, first: int) -> int:
    """The largest whole m from 1 to ``most`` with ``peak(m)`` at most ``room``; 0 if none.

    A straight line through the two nearest points says where to look next; the answer is looked
    at, and so is the one above it.
    """
    points = {most: peak(most)}
    if points[most] <= room:
        return most
    low, high = 0, most  # fits, does not fit
    aim = min(max(first, 1), most - 1)
    while high - low > 1:
        points[aim] = peak(aim)
        if points[aim] <= room:
            low = aim
        else:
            high = aim
        aim = min(max(_meeting(points, room), low + 1), high - 1)
    return low


def _meeting(points: dict[int, float], room: float) -> int:
    """Where the line through the two points nearest to ``room`` meets it."""
    a, b = sorted(sorted(points, key=lambda m: abs(points[m] - room))[:2])
    slope = (points[b] - points[a]) / (b - a)
    return a + int((room - points[a]) / slope) if slope > 0 else b
