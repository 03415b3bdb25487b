"""One optimiser step: the gradient of the whole batch, clipped, applied."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from yuriiformer.config import TrainConfig
from yuriiformer.model.device import autocast
from yuriiformer.model.model import YuriiFormer
from yuriiformer.training.batches import MicroBatch
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes


def build_model(config: TrainConfig, seed: int | None = None) -> YuriiFormer:
    """The model as a run has it; None leaves its parameters as they are made."""
    model = YuriiFormer(config.model, seed=seed)
    model.recompute = config.machine.recompute
    if config.machine.stream_precision == "bfloat16":
        model.stream_dtype = torch.bfloat16
    return model


@dataclass(frozen=True)
class StepResult:
    """What a step was: the mean loss before it, the gradient's norm before clipping."""

    loss: float
    grad_norm: float
    rates: dict[str, float]
    stop: bool  # some process was asked to stop
    micro_losses: list[float] = field(repr=False)  # of this process
    bad_gradients: tuple[str, ...] = ()

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.grad_norm)


def train_step(
    model: nn.Module,
    batches: list[MicroBatch],
    optimizer: Optimizer,
    processes: Processes,
    dtype: torch.dtype,
    step: int,
    *,
    stop: bool = False,
) -> StepResult:
    """Train on one step's micro-batches; if anything is not finite, the weights stay as they are.

    Every process makes the same decision: losses are summed over all, gradients are the same on
    all once they are averaged.
    """
    optimizer.zero_grad()
    losses = accumulate(model, batches, processes, dtype)
    values = losses.tolist()
    mean = sum(v * b.weight for v, b in zip(values, batches, strict=True)) / processes.size
    loss, stops = processes.sum([mean, float(stop)])
    rates = optimizer.set_rates(step)
    norm = optimizer.norm()
    result = StepResult(loss, norm.item(), rates, stops > 0, values)
    if result.finite:
        optimizer.clip(norm)
        optimizer.step()
        return result
    bad = tuple(
        name
        for name, p in optimizer.names.items()
        if p.grad is not None and not bool(p.grad.isfinite().all())
    )
    return replace(result, bad_gradients=bad)


def accumulate(
    model: nn.Module, batches: list[MicroBatch], processes: Processes, dtype: torch.dtype
) -> torch.Tensor:
    """Add up the gradient of a step; the loss of each micro-batch.

    Processes average their gradients once, with the last micro-batch.
    """
    losses = []
    for index, micro in enumerate(batches):
        last = index == len(batches) - 1
        waits = isinstance(model, DistributedDataParallel) and not last
        with model.no_sync() if waits else nullcontext():  # type: ignore[operator]
            with autocast(dtype, processes.device):
                loss = model(*micro.batch)
            (loss * micro.weight).backward()
        losses.append(loss.detach())
    return torch.stack(losses).double() if processes.device.type != "mps" else torch.stack(losses)
