"""The processes of a run, and what they exchange.

A single process is a group of one; the same code serves both. Under torchrun each process finds its
place in the environment.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from yuriiformer.errors import ConfigError, RunError, YuriiError
from yuriiformer.model.device import choose_device

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Found = TypeVar("Found")

TIMEOUT = timedelta(minutes=30)  # rank 0 may verify a large checkpoint while the others wait


@dataclass(frozen=True)
class Processes:
    """One process's view of all processes of a run."""

    rank: int
    size: int
    device: torch.device
    group: dist.ProcessGroup | None = None
    shards: int = 1  # processes that hold one copy of the model between them
    mesh: DeviceMesh | None = None  # of those that do, if the model is sharded

    @property
    def copies(self) -> int:
        return self.size // self.shards

    @property
    def sharded(self) -> bool:
        return self.mesh is not None

    @property
    def keeps(self) -> bool:
        """Whether this process is of the copy that is saved."""
        return self.rank < self.shards

    @property
    def shard_group(self) -> dist.ProcessGroup | None:
        """The processes of this copy, if it is sharded."""
        return None if self.mesh is None else self.mesh.get_group("shard")

    @property
    def copy_group(self) -> dist.ProcessGroup | None:
        """This process's counterparts in all copies, if there are several."""
        if self.mesh is None:
            return self.group
        return self.mesh.get_group("copy") if self.copies > 1 else None

    def shard(self, shards: int | None = None) -> Processes:
        """The same processes, so many of them sharing a copy of the model (all, if not said).
        Neighbours share one: on several nodes, those of a node."""
        shards = shards or self.size
        if self.group is None or shards == 1:
            return self
        return replace(self, shards=shards, mesh=_mesh(self.device.type, self.size, shards))

    def check_shards(self, shards: int | None) -> None:
        """That so many can share a copy of the model. One process holds it alone in any case."""
        if shards is not None and self.size > 1 and self.size % shards:
            raise ConfigError(
                f"--shard-group {shards} does not divide the number of processes ({self.size}): "
                "each copy of the model needs as many"
            )

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum(self, values: list[float]) -> list[float]:
        """Each value summed over the processes, in float64."""
        if self.group is None:
            return values
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        tensor = torch.tensor(values, dtype=dtype, device=self.device)
        dist.all_reduce(tensor, group=self.group)
        return [float(value) for value in tensor.tolist()]

    def average(self, tensors: list[Tensor]) -> None:
        """Put the mean over the processes into each tensor: one exchange for all of them."""
        if self.group is None or not tensors:
            return
        flat = torch.cat([each.flatten() for each in tensors])
        dist.all_reduce(flat, group=self.group)
        flat /= self.size  # a sum, because gloo's own average has had faults
        sizes = [each.numel() for each in tensors]
        for each, mean in zip(tensors, torch.split(flat, sizes), strict=True):
            each.copy_(mean.view(each.shape))

    def share(self, value: Any) -> Any:
        """The leading process's value, in every process (plain data)."""
        if self.group is None:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def led(self, work: Callable[[], Found]) -> Found | None:
        """Let the leading process do work: its result there, None in the others. If the work fails,
        all processes raise the error, and only the leading one prints it."""
        result = None
        problem: YuriiError | None = None
        if self.leads:
            try:
                result = work()
            except YuriiError as error:
                problem = error
            except OSError as error:
                problem = RunError(str(error))
        problem = self.share(problem)
        if problem is not None:
            problem.everywhere = True
            raise problem
        return result

    def together(self, work: Callable[[], Found]) -> Found:
        """Let every process do its own work. If one fails, all of them raise its error."""
        result, problem = None, None
        try:
            result = work()
        except YuriiError as error:
            problem = error
        for found in self.collect(problem):
            if found is not None:
                found.everywhere = True
                raise found
        return result  # type: ignore[return-value]

    def apart(self) -> Processes:
        """The same processes with another group for their messages, for a thread beside the
        training."""
        return replace(self, device=torch.device("cpu"), group=_another_group())

    def collect(self, value: Any) -> list[Any]:
        """Every process's value, by rank (plain data)."""
        if self.group is None:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value, group=self.group)
        return box

    def share_tensors(self, tensors: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
        """The leading process's tensors, in every process: the others need no access to its
        disk."""
        given = dict(tensors or {})
        if self.group is None:
            return given
        shapes = self.share([(name, t.shape, t.dtype) for name, t in given.items()])
        result = {}
        for name, shape, dtype in shapes:
            if self.leads:
                tensor = given[name].to(self.device).contiguous()
            else:
                tensor = torch.empty(shape, dtype=dtype, device=self.device)
            dist.broadcast(tensor, src=0, group=self.group)
            result[name] = tensor
        return result

    def wait(self) -> None:
        if self.group is not None:
            dist.barrier(group=self.group)


@cache
def _mesh(device: str, size: int, shards: int) -> DeviceMesh:
    """Once a process: each mesh makes groups of its own."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415  takes long

    if shards == size:
        return init_device_mesh(device, (size,), mesh_dim_names=("shard",))
    return init_device_mesh(device, (size // shards, shards), mesh_dim_names=("copy", "shard"))


@cache
def _another_group() -> dist.ProcessGroup | None:
    """Once a process. Its messages are plain data, whatever the devices are."""
    return dist.new_group(backend="gloo", timeout=TIMEOUT) if dist.is_initialized() else None


def find_processes(device: str) -> Processes:
    """The processes of this run, which stay joined for as long as they live."""
    chosen = choose_device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if "WORLD_SIZE" not in os.environ and not dist.is_initialized():
        return Processes(0, 1, chosen)
    if not dist.is_initialized():
        # Once a process: a group that is made anew can meet the keys of the one before it.
        _join("nccl" if chosen.type == "cuda" else "gloo")
        atexit.register(_leave)
    return Processes(dist.get_rank(), dist.get_world_size(), chosen, dist.group.WORLD)


def _join(backend: str) -> None:
    """Find the other processes.

    torchrun's store outlives the processes that it starts again, and they would read addresses of
    the dead in it and wait: on one node each start has keys of its own. The count of starts is one
    node's, so with several TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 must be set for torchrun instead.
    """
    alone = os.environ.get("GROUP_WORLD_SIZE") == "1"
    if not alone or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=TIMEOUT)
        return
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    own = PrefixStore(f"start {start}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=TIMEOUT)


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun has started this process again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def job() -> str:
    """What stays the same when torchrun starts its processes again, and only then."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {os.getppid()}"
