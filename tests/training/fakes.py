"""A step of a divided model on fake tensors: one process of many, without memory and without the
others."""

from __future__ import annotations

import weakref
from collections import Counter
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
    """Bytes: between steps, at the peaks of a step, of the largest storage there was in it; and
    what the process sent in it."""

    rest: int
    passes: int
    update: int
    largest: int
    sent: dict[str, float]
    shapes: dict[str, tuple[int, ...]]
    dtypes: set[torch.dtype]


class Storages(TorchDispatchMode):
    """Every storage that an operation returns, for as long as it lives. FSDP gives up the memory of
    a storage and takes it again: its size is followed there. ``sent`` are bytes of collective
    operations by name, as rings of processes send them."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.peak = self.largest = 0
        self.sent: Counter[str] = Counter()
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
        if func.namespace == "c10d":
            self._send(func._schema.name.removeprefix("c10d::").strip("_"), args)
        for each in tree_leaves(result):
            if isinstance(each, torch.Tensor) and not each.is_meta:  # of a divided one, its rows
                storage = local(each).untyped_storage()
                if id(storage) not in self._sizes:
                    weakref.finalize(storage, self._count, id(storage), None)
                self._count(id(storage), storage.nbytes())
        return result

    def _send(self, name: str, args) -> None:
        if name == "allreduce":
            others = dist.ProcessGroup.unbox(args[1]).size() - 1
            self.sent[name] += 2 * others * sum(each.nbytes for each in args[0]) / (others + 1)
        elif name == "alltoall_base":
            stays = args[4][dist.ProcessGroup.unbox(args[2]).rank()] / max(1, sum(args[4]))
            self.sent[name] += (1 - stays) * args[1].nbytes
        elif name in ("allgather_base", "reduce_scatter_base"):  # a whole tensor, a process's part
            self.sent[name] += abs(args[0].nbytes - args[1].nbytes)
        else:
            self.sent[name] += sum(each.nbytes for each in tree_leaves(args[0]))

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
            watcher.sent.clear()
            accumulate(model, [micro], processes, dtype)
            passes, passed = watcher.peak, watcher.sent.copy()
            watcher.peak = watcher.alive
            optimizer.clip(optimizer.norm())
            optimizer.step()
            update = watcher.peak
    dist.destroy_process_group()
    sent = {"weights": passed.pop("allgather_base"), "gradients": passed.total()}
    sent["muon"] = watcher.sent.total() - sum(sent.values())
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    dtypes = {p.dtype for p in model.parameters()}
    held = tokens.nbytes + micro.batch[1].nbytes  # not in the plan of an update
    rest, update = watcher.alive - held, update - held
    return FakeStep(rest, passes, update, watcher.largest, sent, shapes, dtypes)
