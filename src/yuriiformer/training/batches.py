"""What a run takes from its data: the vocabulary, and the tensors of each step, for one process of
several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from yuriiformer.config import TrainConfig
from yuriiformer.data.order import BatchOrder
from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import GPT2, padded
from yuriiformer.errors import DataError
from yuriiformer.evaluation.validation import (
    Batch,
    Windows,
    exact_windows,
    load_batch,
    protocol_windows,
)
from yuriiformer.training.processes import Processes

LOOK = 1_000_000  # tokens of a file that does not say its vocabulary
CHARACTERS = 1024  # more ids than a vocabulary of characters has


def fill_vocabulary(config: TrainConfig, store: TokenStore) -> TrainConfig:
    """The data's vocabulary. nanoGPT's files do not say theirs: GPT-2's, unless only few ids occur
    in a part that is quick to read (characters)."""
    if store.meta is not None:
        return config.with_vocabulary(store.padded_vocab_size, store.vocab_size)
    parts = [store.val[:LOOK], store.train[:LOOK]]
    used = max((int(part.max()) + 1 for part in parts if len(part)), default=1)
    if used <= CHARACTERS:  # then all must be read: a rare one may come late
        used = store.used_vocab_size
    size = used if used <= CHARACTERS else GPT2.vocab_size
    return config.with_vocabulary(padded(size), size)


@dataclass(frozen=True)
class MicroBatch:
    """Inputs, targets, and the share of the process's mean gradient that is theirs."""

    batch: Batch
    weight: float


class Batches:
    """What a process sees at each step; what all of them see does not depend on their number."""

    def __init__(self, store: TokenStore, config: TrainConfig, processes: Processes) -> None:
        self.store, self.processes = store, processes
        self.context = config.model.context
        self.micro_batch = config.machine.micro_batch
        self.sequences = config.recipe.sequences
        self.order = BatchOrder(len(store.train), self.context, self.sequences, config.recipe.seed)
        self._shares(0)  # or it says why not
        self.validated: Windows | None = None
        if config.validation.eval_every:
            count = config.validation.eval_sequences
            try:
                self.validated = protocol_windows(store, self.context, count)
            except DataError as error:
                raise DataError(f"{error}: prepare more text, or --eval-every 0") from None

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
        return found

    def _shares(self, step: int) -> list[NDArray[np.int64]]:
        rank, size = self.processes.rank, self.processes.size
        return self.order.micro_batches(
            step, process=rank, processes=size, micro_batch=self.micro_batch
        )

    def validation(self, *, exact: bool) -> tuple[Iterator[Batch], int]:
        """This process's part of the validation (by the protocol, or exact) in micro-batches, and
        how many of them every process has at least."""
        windows = exact_windows(self.store, self.context) if exact else self.validated
        assert windows is not None
        rank, size, device = self.processes.rank, self.processes.size, self.processes.device
        common = -(-(len(windows.starts) // size) // self.micro_batch)
        return windows.batches(self.micro_batch, device, rank, size), common
