"""Validation loss: by the paper's protocol, as a run records it, and exact over the whole split.

The protocol's loss is over the same sequences as in training (their number is the run's own; a
small split is read again from its start). The exact one predicts every token of the split once,
except the first, which has no context: windows of the model's context that do not overlap, the last
one shorter. Both count end-of-text tokens and, as in training, include padded ids in the softmax.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from yuriiformer.data.order import exact_windows, validation_starts
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import DataError
from yuriiformer.model.model import YuriiFormer

Tell = Callable[[int, int], None]  # done, of how many
Batch = tuple[Tensor, Tensor]  # inputs and targets, each (sequences, context)
BATCH = 8  # sequences in memory at a time

BITS_PER_BYTE = (
    "bits per byte: the loss of every token but the first, end-of-text tokens included, over the "
    "UTF-8 bytes of the text, end marks not included"
)


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
                nats += model(inputs, targets).item() * targets.numel()
                tokens += targets.numel()
    finally:
        model.train(training)
    return nats, tokens


def validation_loss(
    model: YuriiFormer,
    store: TokenStore,
    sequences: int,
    *,
    batch: int = BATCH,
    tell: Tell = lambda done, total: None,
) -> Loss:
    """By the protocol: ``sequences`` blocks of the split, in file order."""
    context = model.config.context
    if len(store.val) <= context:
        raise DataError(
            f"the validation split of {store.folder} has {len(store.val)} tokens, less than one "
            f"sequence of {context}"
        )
    starts = validation_starts(len(store.val), context, sequences)
    return _loss(model, store, _whole_windows(starts, context, batch), len(starts), tell)


def exact_loss(
    model: YuriiFormer,
    store: TokenStore,
    *,
    batch: int = BATCH,
    tell: Tell = lambda done, total: None,
) -> Loss:
    """Over the whole split, every token but the first predicted once."""
    context = model.config.context
    if len(store.val) < 2:
        raise DataError(f"the validation split of {store.folder} has no two tokens")
    starts, last = exact_windows(len(store.val), context)
    whole = len(starts) if last == context else len(starts) - 1

    def windows() -> Iterator[Windows]:
        yield from _whole_windows(starts[:whole], context, batch)
        if whole < len(starts):
            yield starts[whole:], last

    return _loss(model, store, windows(), len(starts), tell)


Windows = tuple[np.typing.NDArray[np.int64], int]  # where they start, and how long they are


def _whole_windows(
    starts: np.typing.NDArray[np.int64], context: int, batch: int
) -> Iterator[Windows]:
    for first in range(0, len(starts), batch):
        yield starts[first : first + batch], context


def _loss(
    model: YuriiFormer, store: TokenStore, windows: Iterator[Windows], total: int, tell: Tell
) -> Loss:
    device = model.token_table.device

    def batches() -> Iterator[Batch]:
        done = 0
        tell(done, total)
        for starts, length in windows:
            inputs, targets = store.sequences("val", starts, length)
            yield torch.tensor(inputs).to(device), torch.tensor(targets).to(device)
            done += len(starts)
            tell(done, total)

    result = total_loss(model, batches())
    assert result is not None  # it is never asked to stop
    return Loss(*result)


def text_bytes(store: TokenStore) -> int:
    """UTF-8 bytes of the validation split's text, without its end marks."""
    tokenizer = store.tokenizer()
    ends = np.flatnonzero(store.val == tokenizer.end_of_text)
    count, start = 0, 0
    for end in [
        *ends.tolist(),
        len(store.val),
    ]:  # by document: no character is cut
        count += len(tokenizer.decode(store.val[start:end].tolist()).encode())
        start = end + 1
    return count


@contextmanager
def as_trained(model: YuriiFormer, run: Mapping[str, Any]) -> Iterator[str]:
    """Compute as the run did, if this is its kind of device; else in float32. Says which.

    ``run`` is what stands in a run's ``config.json``.
    """
    device = model.token_table.device.type
    resolved = run.get("resolved", {})
    machine = run.get("config", {}).get("machine", {})
    same = resolved.get("device") == device
    stream = model.stream_dtype
    with ExitStack() as stack:
        low = same and resolved.get("dtype") == "bfloat16"
        if low:
            stack.enter_context(torch.autocast(device, dtype=torch.bfloat16))
        if same and machine.get("stream_precision") == "bfloat16":
            model.stream_dtype = torch.bfloat16
        try:
            yield "bfloat16" if low else "float32"
        finally:
            model.stream_dtype = stream
