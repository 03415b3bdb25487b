"""The memory of a step by micro-batch, depth and number of processes; what fits into a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.run import stored_bytes
from yuriiformer.model.model import SPAN
from yuriiformer.model.parameters import MATRICES, named_groups
from yuriiformer.model.shards import shard_bounds
from yuriiformer.training.memory import (
    Passes,
    StepMemory,
    Update,
    simulate_passes,
    update_memory,
)
from yuriiformer.training.owners import Matrix, alike, in_turns, share_out
from yuriiformer.training.step import build_model


class MemoryEstimate:
    """The memory of a step as a function of the micro-batch, at any depth in the same time.

    Layers with the same program add the same to each peak, span by span (the layers of a span share
    what they keep). So the passes are simulated with few layers and with one span more, and the
    difference stands for every further span (tests show that this is exact).
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
    """The smallest number of processes that can share the model (each with up to ``micro_batch``
    sequences at a time) so that a step fits into their memory; None if one process per sequence is
    still too few."""

    def fits(count: int) -> bool:
        estimate = MemoryEstimate(config, dtype, count, count)
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
    """Whether each process has room for the whole model and a step of its own."""
    stored = stored_bytes(config)
    if stored.weights + stored.gradients + stored.optimizer > room:
        return False
    try:
        estimate = MemoryEstimate(config, dtype, processes)
        return estimate.at(min(config.machine.micro_batch, estimate.own)).peak <= room
    except Exception:  # an oracle of the user's can do anything with values that are not there
        return True


def largest(peak: Callable[[int], float], room: float, most: int, first: int) -> int:
    """The largest whole m from 1 to ``most`` with ``peak(m)`` at most ``room``; 0 if none.

    The next m to try is where a straight line through the two nearest points meets ``room``. The
    answer has been tried itself, and so has the next larger one.
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


# What a process of a sharded model holds for a while beside its rows.


def gathered_bytes(config: TrainConfig, dtype: torch.dtype) -> tuple[float, float, float]:
    """At the three peaks of a micro-batch. In the forward pass: the tables, a block and the next
    one. In the backward pass also the gradients of the block before, as float32 to be summed. After
    it: those of the tables. A gradient that has just been computed is counted in the passes
    themselves."""
    with torch.device("meta"):
        model = build_model(config)
    tables = [p for p in model.starts.parameters() if p.ndim > 1]
    table = sum(p.nbytes for p in tables)
    gradient = sum(p.nbytes for p in tables if p.requires_grad)
    matrices = [[p.numel() for p in block.parameters() if p.ndim > 1] for block in model.blocks]
    block = max(sum(each) for each in matrices)
    forward = table + 2 * block * dtype.itemsize
    backward = forward + block * torch.float32.itemsize
    return forward, backward, table + 2 * gradient


@dataclass(frozen=True)
class TurnBytes:
    """What a process holds of one of Muon's turns, in the precision of its products."""

    here: float = 0.0  # its rows of what its copy of the model computes
    owned: float = 0.0  # what it computes itself
    squares: float = 0.0  # of each matrix of that, the smaller side squared
    spread: float = 0.0  # what it gives the other copies, and gets from them

    @property
    def waiting(self) -> float:
        """While other turns are worked on: what was sent, and what comes."""
        return self.here + self.owned


def muon_bytes(config: TrainConfig, dtype: torch.dtype, processes: int, shards: int) -> float:
    """At the peak of a sharded model's update: Muon's matrices on their way to their owners and
    back (`Muon._take_turns`), of each turn those of the process that has most."""
    if not config.recipe.uses_muon:
        return 0.0
    wide = torch.float32.itemsize / dtype.itemsize
    made = wide * config.recipe.muon_nesterov  # in float32; without it rows are views
    joined = made + wide + (wide > 1)  # side by side, then in the precision of the products
    none, peak = TurnBytes(), 0.0
    turns = [none, none, *_turns(config, dtype, processes, shards), none, none]
    for back, work, come in zip(turns, turns[1:], turns[2:], strict=False):
        peak = max(  # when rows are sent, matrices computed, rows given to the other copies
            peak,
            back.waiting + work.waiting + max(joined * come.here, made * come.here + come.waiting),
            back.waiting + come.waiting + 4 * work.owned + max(2 * work.squares, work.here),
            work.waiting + come.waiting + back.here + back.spread,
        )
    return peak


def muon_sent(config: TrainConfig, dtype: torch.dtype, processes: int, shards: int) -> float:
    """Bytes that a process sends in a step for Muon: rows to their owners and back, and then to the
    other copies of the model, to each as many as the one that has most."""
    if processes == 1 or not config.recipe.uses_muon:
        return 0.0
    times = 2 * (shards - 1) / shards + processes // shards - 1
    return sum(times * turn.here for turn in _turns(config, dtype, processes, shards))


def _turns(config: TrainConfig, dtype: torch.dtype, processes: int, shards: int) -> list[TurnBytes]:
    with torch.device("meta"):
        model = build_model(config)
    stacks: list[list[Matrix]] = []
    for group in named_groups(model, split_fused=config.recipe.split_fused):
        if group.kind == MATRICES:
            stacks += alike(map(model.get_parameter, group.names), group.parts)
    every = [each for stack in stacks for each in stack]
    owners = dict(zip(every, share_out([(m.rows, m.cols) for m in every], processes), strict=True))
    copies, found = processes // shards, []
    for turn in (turn for stack in stacks for turn in in_turns(stack, owners, dtype)):
        rows, cols = turn[0].rows, turn[0].cols
        owned = max(Counter(owners[each] for each in turn).values()) * dtype.itemsize
        here: Counter[int] = Counter()  # of the first shard, by copy: no other has more
        for each in turn:
            low, high = each.within(*shard_bounds(len(each.parameter), shards, 0))
            here[owners[each] // shards] += (high - low) * cols * dtype.itemsize
        most = max(here.values())
        found.append(
            TurnBytes(
                here=most,
                owned=owned * rows * cols,
                squares=owned * min(rows, cols) ** 2,
                spread=(copies + 1) * most if copies > 1 else 0,
            )
        )
    return found
