"""One optimiser step: its batches, for one process of several; their gradient, clipped, applied."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from yuriiformer.config import TrainConfig
from yuriiformer.data.order import BatchOrder
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import DataError
from yuriiformer.evaluation.validation import (
    Batch,
    Windows,
    exact_windows,
    load_batch,
    protocol_windows,
)
from yuriiformer.model.device import autocast
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.products import use_onednn
from yuriiformer.model.shards import is_sharded, local
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes


@dataclass(frozen=True)
class MicroBatch:
    """Inputs, targets, and the share of the process's mean gradient that is theirs."""

    batch: Batch
    weight: float


class Batches:
    """The batches of one process. All processes together see the same sequences, whatever their
    number."""

    def __init__(self, store: TokenStore, config: TrainConfig, processes: Processes) -> None:
        self.store, self.processes = store, processes
        self.context = config.model.context
        self.micro_batch = config.machine.micro_batch
        self.sequences = config.recipe.sequences
        self.order = BatchOrder(len(store.train), self.context, self.sequences, config.recipe.seed)
        self._shares(0)  # or it says why not
        self.validated: Windows | None = None
        if config.validation.eval_every:
            asked = config.validation
            try:
                self.validated = protocol_windows(
                    store, self.context, asked.eval_sequences, asked.eval_blocks
                )
            except DataError as error:
                raise DataError(f"{error}: prepare more text, or --eval-every 0") from None
        self.texts = {name: store.text_beside(name) for name in config.validation.text_names}

    def training(self, step: int) -> list[MicroBatch]:
        """This process's micro-batches of a step.

        Processes average their gradients, so a micro-batch of n of the step's S sequences counts
        n · processes / S: right also where shares differ.
        """
        scale, device = self.processes.size / self.sequences, self.processes.device
        found = []
        for starts in self._shares(step):
            batch = load_batch(self.store, "train", starts, self.context, device)
            found.append(MicroBatch(batch, len(starts) * scale))
        if self.processes.sharded:  # all gather the weights together, also with nothing to do
            share = -(-self.sequences // self.processes.size)
            idle = replace(found[-1], weight=0.0)
            found += [idle] * (-(-share // self.micro_batch) - len(found))
        return found

    def _shares(self, step: int) -> list[NDArray[np.int64]]:
        rank, size = self.processes.rank, self.processes.size
        return self.order.micro_batches(
            step, process=rank, processes=size, micro_batch=self.micro_batch
        )

    def validation(self, *, exact: bool, text: str | None = None) -> tuple[Iterator[Batch], int]:
        """This process's part of the validation: by the protocol, or exact, perhaps on another
        text (see `part`)."""
        store = self.store if text is None else self.texts[text]
        windows = exact_windows(store, self.context) if exact else self.validated
        assert windows is not None
        return self.part(windows)

    def part(self, windows: Windows) -> tuple[Iterator[Batch], int]:
        """Of these, what this process reads, in micro-batches, and how many of them every process
        has at least."""
        rank, size, device = self.processes.rank, self.processes.size, self.processes.device
        common = -(-(len(windows.starts) // size) // self.micro_batch)
        own = windows.batches(self.micro_batch, device, rank, size)
        if self.processes.sharded:
            share = math.ceil(len(windows.starts) / size)  # the leading process's, and the rest
            most = math.ceil(share / self.micro_batch) + (windows.rest > 0)
            own = _padded(own, most, device)
        return own, common


def _padded(batches: Iterator[Batch], count: int, device: torch.device) -> Iterator[Batch]:
    """The same, and then batches without a target until there are ``count``: processes that share a
    model must run it equally often."""
    for batch in batches:
        count -= 1
        yield batch
    token = torch.zeros(1, 1, dtype=torch.int64, device=device)
    for _ in range(count):
        yield token, token[:, :0]


def build_model(config: TrainConfig, seed: int | None = None) -> YuriiFormer:
    """The model as a run has it; None leaves its parameters as they are made."""
    model = YuriiFormer(config.model, seed=seed)
    model.recompute = config.machine.recompute
    if config.machine.products == "onednn":
        use_onednn(model)
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
    here = [
        name
        for name, p in optimizer.names.items()
        if p.grad is not None and not bool(local(p.grad).isfinite().all())
    ]
    anywhere = {name for names in processes.collect(here) for name in names}
    return replace(result, bad_gradients=tuple(n for n in optimizer.names if n in anywhere))


def accumulate(
    model: nn.Module, batches: list[MicroBatch], processes: Processes, dtype: torch.dtype
) -> torch.Tensor:
    """Add up the gradient of a step; the loss of each micro-batch.

    Processes average their gradients once, with the last micro-batch. Where the model is sharded,
    those of matrices and tables are averaged and divided with every micro-batch, so that no process
    ever holds them all.
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
    if processes.sharded:
        vectors = [p.grad for p in model.parameters() if not is_sharded(p)]
        processes.average([each for each in vectors if each is not None])
    return torch.stack(losses).double() if processes.device.type != "mps" else torch.stack(losses)
