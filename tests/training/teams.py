"""Runs of several processes, forked from one that is warm, and how their model is divided."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from yuriiformer.config import TrainConfig
from yuriiformer.model.model import YuriiFormer
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.session import ResolvedRun, resolve_run
from yuriiformer.training.sharding import make_model
from yuriiformer.training.step import train_step


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def take_place(rank: int, size: int, port: int) -> None:
    """What torchrun tells a process of its place."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()})
    torch.set_num_threads(1)


def team(processes: int, act: Callable[..., None], *given: object) -> None:
    """So many warm processes that act together."""
    torch.multiprocessing.start_processes(
        act, (processes, free_port(), *given), nprocs=processes, start_method="forkserver"
    )


def divided(config: TrainConfig, parallel: str, shard_group: int | None = None) -> TrainConfig:
    return config.with_(parallel=parallel, shard_group=shard_group)


def parts_of(
    config: TrainConfig, data: Path
) -> tuple[ResolvedRun, YuriiFormer, torch.nn.Module, Optimizer]:
    """What a run is put together from, without its folder: the setting, the model, the module that
    training calls, and the optimiser."""
    here = resolve_run(config, data)
    model = make_model(here.config, here.processes, here.dtype)
    groups = here.processes.copy_group, here.processes.shard_group
    optimizer = Optimizer(model, here.config.recipe, here.dtype, *groups)
    module: torch.nn.Module = model
    if here.processes.group is not None and not here.processes.sharded:
        module = DistributedDataParallel(model)
    return here, model, module, optimizer


def bare_steps(config: TrainConfig, data: Path, steps: int) -> list[tuple[float, float]]:
    """Loss and norm of the gradient of the first steps of a run, which leaves nothing on the
    disk."""
    here, _, module, optimizer = parts_of(config, data)
    found = []
    for step in range(steps):
        batches = here.batches.training(step)
        result = train_step(module, batches, optimizer, here.processes, here.dtype, step)
        assert result.finite
        found.append((result.loss, result.grad_norm))
    return found


def bare_losses(config: TrainConfig, data: Path, steps: int) -> list[float]:
    return [loss for loss, _ in bare_steps(config, data, steps)]


class SignalAt:
    """A listener that asks its process to stop, as a cluster would, once a step is done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def record(self, record: dict[str, Any]) -> None:
        if record["step"] == self.step:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None:
        pass
