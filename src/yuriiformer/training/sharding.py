"""Sharded training: each process holds some rows of every matrix and table (torch's FSDP2).

A block's matrices are gathered when the block begins, given up when it ends, and gathered again for
its backward pass; their gradients are averaged and divided among the processes at once. The tables
are gathered for a whole micro-batch. Norms, biases and coefficients are vectors: they are so small
that every process holds them all, in float32, and their gradients are averaged once per step.

In bfloat16 the matrices travel in bfloat16, and the products are those of autocast, which would
cast the same weights. (Autocast alone would keep a cast copy of every matrix for the backward
pass: the whole model.)
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from yuriiformer.config import TrainConfig
from yuriiformer.methods.frugal import same_origin
from yuriiformer.model.block import Coefficients
from yuriiformer.model.device import compute_dtype, device_memory, usable
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import initialize
from yuriiformer.training.estimate import fits_whole
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import build_model


def divide(config: TrainConfig, processes: Processes) -> Processes:
    """The processes as the configuration has them share the model; where that is left to us, they
    do if it does not fit on each whole."""
    processes.led(lambda: processes.check_shards(config.machine.shard_group))
    if processes.size > 1 and (config.machine.parallel == "fsdp" or _too_large(config, processes)):
        return processes.shard(config.machine.shard_group)
    return processes


def _too_large(config: TrainConfig, processes: Processes) -> bool:
    if config.machine.parallel != "auto":
        return False
    room = float(device_memory(processes.device))
    if processes.device.type == "cpu":  # all processes of a node are on it
        room /= int(os.environ.get("LOCAL_WORLD_SIZE", processes.size))
    dtype = compute_dtype(config.machine.precision, processes.device)
    fits = processes.led(lambda: fits_whole(config, dtype, processes.size, usable(room)))
    return not processes.share(fits)


def undivided(config: TrainConfig, processes: Processes) -> str | None:
    """Why processes that were asked to share the model do not."""
    asked = config.machine.parallel == "fsdp" or config.machine.shard_group is not None
    if processes.sharded or not asked:
        return None
    if processes.size == 1:
        return "with one process there is nothing to divide: torchrun starts several"
    if config.machine.parallel == "auto":
        return "each device has room for the whole model: --parallel fsdp divides it all the same"
    return None


def make_model(config: TrainConfig, processes: Processes, dtype: torch.dtype) -> YuriiFormer:
    """At its start, on this process's device: whole, or its rows."""
    if processes.sharded:
        return _build_sharded(config, processes, dtype)
    return build_model(config, config.recipe.seed).to(processes.device)


def _build_sharded(config: TrainConfig, processes: Processes, dtype: torch.dtype) -> YuriiFormer:
    """The model as every run of this configuration begins, of each tensor the rows of this process.

    It is built without memory, and its tensors are drawn one at a time. Only a model whose oracles
    have buffers (which cannot be drawn by name) is built whole first.
    """
    with torch.device("meta"):
        model = build_model(config)
    if _own_buffers(model):
        model = build_model(config, config.recipe.seed).to(processes.device)
        shard_model(model, processes, dtype)
        return model
    shard_model(model, processes, dtype)
    model.to_empty(device=processes.device)
    initialize(model, config.recipe.seed)
    return model


def _own_buffers(model: nn.Module) -> bool:
    """Whether some module but the coefficients has buffers."""
    return any(
        next(each.buffers(recurse=False), None) is not None
        for each in model.modules()
        if not isinstance(each, Coefficients)
    )


def shard_model(model: YuriiFormer, processes: Processes, dtype: torch.dtype) -> None:
    """Divide a model's matrices and tables, in place."""
    from torch.distributed.fsdp import (  # noqa: PLC0415  takes long
        MixedPrecisionPolicy,
        fully_shard,
    )

    # Some rules' blocks return views; nothing here changes a stream in place.
    warnings.filterwarnings("ignore", message=r"FSDP2-wrapped module .* returned a view tensor")
    vectors = {p for p in model.parameters() if p.ndim < 2}
    # Streams are not cast; oracles get what autocast gives them.
    whole = MixedPrecisionPolicy(cast_forward_inputs=False)
    cast = None if dtype == torch.float32 else dtype
    matrices = MixedPrecisionPolicy(cast, torch.float32, cast_forward_inputs=False)
    for block in model.blocks:
        fully_shard(block, mesh=processes.mesh, mp_policy=matrices, ignored_params=vectors)
        _keep_origins(block)
    fully_shard(model, mesh=processes.mesh, mp_policy=whole, ignored_params=vectors)


def _keep_origins(block: nn.Module) -> None:
    """FSDP gives a block new tensors with the numbers of the streams. Let them be made again in the
    backward pass as the streams can be (`frugal`); or a stream more is kept for every block."""
    before: dict[str, Tensor] = {}

    def note(module: nn.Module, args: tuple[Any, ...]) -> None:
        before.update(args[0])

    def give(module: nn.Module, args: tuple[Any, ...]) -> None:
        for name, stream in args[0].items():
            same_origin(before[name], stream)
        before.clear()

    block.register_forward_pre_hook(note, prepend=True)
    block.register_forward_pre_hook(give)


def reshard(model: nn.Module) -> None:
    """Give up the tables that a forward pass without a backward pass has left gathered."""
    from torch.distributed.fsdp import FSDPModule  # noqa: PLC0415  takes long

    assert isinstance(model, FSDPModule)
    model.reshard()
