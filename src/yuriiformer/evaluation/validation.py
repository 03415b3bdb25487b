"""Validation loss: by the paper's protocol, as a run records it, and exact over the whole split.

The protocol's loss is over the same sequences as in training (their number is the run's own; a
small split is read again from its start). The exact one predicts every token of the split once,
except the first, which has no context: windows of the model's context that do not overlap, the last
one shorter. Both count end-of-text tokens and, as in training, include padded ids in the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from yuriiformer.config import Blocks
from yuriiformer.data.order import validation_starts
from yuriiformer.data.records import Split
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import DataError
from yuriiformer.model.device import autocast
from yuriiformer.model.model import YuriiFormer

Tell = Callable[[int, int], None]  # done, of how many
Batch = tuple[Tensor, Tensor]  # inputs and targets, each (sequences, context)
BATCH = 8  # sequences in memory at a time

BITS_PER_BYTE = (
    "bits per byte: the loss of every token but the first, end-of-text tokens included, over the "
    "UTF-8 bytes of the text, end marks not included"
)


def silent(done: int, total: int) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class Loss:
    """Nats over so many tokens."""

    nats: float
    tokens: int

    @property
    def mean(self) -> float:
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        return math.exp(self.mean) if self.mean < 700 else math.inf

    def bits_per_byte(self, text_bytes: int) -> float:
        return self.nats / math.log(2) / text_bytes

    def to_dict(self) -> dict[str, Any]:
        return {"loss": self.mean, "perplexity": self.perplexity, "tokens": self.tokens}


def own_devices(device: torch.device) -> list[torch.device]:
    """The GPU in use, if any: its generator must be restored too."""
    return [device] if device.type == "cuda" else []


@torch.no_grad()
def total_loss(
    model: nn.Module, batches: Iterable[Batch], stop: Callable[[], bool] = lambda: False
) -> tuple[float, int] | None:
    """Nats over all tokens, and how many tokens; None if ``stop()`` became true on the way.

    The model comes back in the mode it was in, and no random number generator moves.
    """
    training = model.training
    model.eval()
    nats, tokens = 0.0, 0
    try:
        with torch.random.fork_rng(own_devices(next(model.parameters()).device)):
            for inputs, targets in batches:
                if stop():
                    return None
                if not targets.numel():  # only for processes that share the model with this one
                    model(inputs)
                    continue
                nats += model(inputs, targets).item() * targets.numel()
                tokens += targets.numel()
    finally:
        model.train(training)
    return nats, tokens


@dataclass(frozen=True)
class Windows:
    """What a validation reads of its split: sequences as long as the context, and perhaps a shorter
    one at the end."""

    store: TokenStore
    context: int
    starts: NDArray[np.int64]
    rest: int = 0  # length of the shorter one

    def batches(
        self, size: int, device: torch.device, rank: int = 0, processes: int = 1
    ) -> Iterator[Batch]:
        """One process's share, so many sequences at a time."""
        own = np.array_split(self.starts, processes)[rank]
        for first in range(0, len(own), size):
            part = own[first : first + size]
            yield load_batch(self.store, "val", part, self.context, device)
        if self.rest and rank == 0:
            start = np.array([len(self.store.val) - 1 - self.rest])  # it ends where the split does
            yield load_batch(self.store, "val", start, self.rest, device)

    def loss(self, model: YuriiFormer, *, batch: int = BATCH, tell: Tell = silent) -> Loss:
        total = len(self.starts) + (self.rest > 0)

        def batches() -> Iterator[Batch]:
            done = 0
            tell(done, total)
            for each in self.batches(batch, model.token_table.device):
                yield each
                done += len(each[0])
                tell(done, total)

        result = total_loss(model, batches())
        assert result is not None  # it is never asked to stop
        return Loss(*result)


def load_batch(
    store: TokenStore, split: Split, starts: NDArray[np.int64], length: int, device: torch.device
) -> Batch:
    """The sequences that begin there, on the device."""
    inputs, targets = (
        torch.from_numpy(np.ascontiguousarray(part))
        for part in store.sequences(split, starts, length)
    )
    if device.type == "cuda":
        inputs, targets = inputs.pin_memory(), targets.pin_memory()
    return inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)


def protocol_windows(
    store: TokenStore, context: int, sequences: int, blocks: Blocks = "first"
) -> Windows:
    """``sequences`` blocks of the split, in file order: the first, or spread over all of it."""
    if len(store.val) <= context:
        raise DataError(
            f"the validation split of {store.folder} has {len(store.val)} tokens, less than one "
            f"sequence of {context}"
        )
    spread = blocks == "spread"
    starts = validation_starts(len(store.val), context, sequences, spread=spread)
    return Windows(store, context, starts)


def exact_windows(store: TokenStore, context: int) -> Windows:
    """The whole split, without overlap: every token but the first is a target once."""
    if len(store.val) < 2:
        raise DataError(f"the validation split of {store.folder} has no two tokens")
    whole, rest = divmod(len(store.val) - 1, context)
    return Windows(store, context, context * np.arange(whole, dtype=np.int64), rest)


@contextmanager
def as_trained(model: YuriiFormer, run: Mapping[str, Any]) -> Iterator[str]:
    """Compute in the run's precision, if this is the kind of device that it ran on; else in
    float32. Yields which.

    ``run`` is what stands in a run's ``config.json``.
    """
    device = model.token_table.device
    resolved = run.get("resolved", {})
    machine = run.get("config", {}).get("machine", {})
    same = resolved.get("device") == device.type
    low = same and resolved.get("dtype") == "bfloat16"
    stream = model.stream_dtype
    if same and machine.get("stream_precision") == "bfloat16":
        model.stream_dtype = torch.bfloat16
    try:
        with autocast(torch.bfloat16 if low else torch.float32, device):
            yield "bfloat16" if low else "float32"
    finally:
        model.stream_dtype = stream
