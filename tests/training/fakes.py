"""A step of a divided model on fake tensors: one process of many, without memory and without the
others."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from unittest import mock

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from yuriiformer.config import TrainConfig
from yuriiformer.model.shards import local
from yuriiformer.training import memory
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.sharding import shard_model
from yuriiformer.training.step import MicroBatch, accumulate, build_model

CPU = torch.device("cpu")


@dataclass(frozen=True)
class FakeStep:
    """Bytes: at the peaks of a step, and of the largest storage there was in it."""

    passes: int
    update: int
    largest: int
    shapes: dict[str, tuple[int, ...]]
    dtypes: set[torch.dtype]


class Storages(TorchDispatchMode):
    """Every storage that an operation returns, for as long as it lives. FSDP gives up the memory of
    a storage and takes it again: its size is followed there."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.peak = self.largest = 0
        self._sizes: dict[int, int] = {}
        real = torch.UntypedStorage.resize_

        def resized(storage, size):
            result = real(storage, size)
            if id(storage) in self._sizes:
                self._count(id(storage), storage.nbytes())
            return result

        self._resizing = mock.patch.object(torch.UntypedStorage, "resize_", resized)

    def __enter__(self):
        self._resizing.start()
        return super().__enter__()

    def __exit__(self, *problem):
        self._resizing.stop()
        return super().__exit__(*problem)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor):  # of a divided one, its rows
                storage = local(each).untyped_storage()
                if id(storage) not in self._sizes:
                    weakref.finalize(storage, self._count, id(storage), None)
                self._count(id(storage), storage.nbytes())
        return result

    def _count(self, key: int, size: int | None) -> None:
        """A storage's size from now on; none when it has gone."""
        self.alive += (size or 0) - self._sizes.pop(key, 0)
        if size is not None:
            self._sizes[key] = size
            self.largest = max(self.largest, size)
        self.peak = max(self.peak, self.alive)


def fake_step(config: TrainConfig, dtype: torch.dtype, size: int, shards: int) -> FakeStep:
    """The first and the second step of the process of rank 0."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    processes = Processes(0, size, CPU, dist.group.WORLD).shard(shards)
    with FakeTensorMode(allow_non_fake_inputs=True), Storages() as watcher, memory._few_chunks():
        model = build_model(config)
        shard_model(model, processes, dtype)
        watcher.largest = 0  # before, the model was whole
        groups = processes.copy_group, processes.shard_group
        optimizer = Optimizer(model, config.recipe, dtype, *groups)
        tokens = torch.zeros(config.machine.micro_batch, config.model.context, dtype=torch.int64)
        micro = MicroBatch((tokens, tokens.clone()), 1.0)
        for _ in range(2):
            watcher.peak = watcher.alive
            accumulate(model, [micro], processes, dtype)
            passes = watcher.peak
            watcher.peak = watcher.alive
            optimizer.clip(optimizer.norm())
            optimizer.step()
            update = watcher.peak
    dist.destroy_process_group()
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    dtypes = {p.dtype for p in model.parameters()}
    return FakeStep(passes, update, watcher.largest, shapes, dtypes)
