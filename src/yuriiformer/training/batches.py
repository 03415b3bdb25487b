"""What a run takes from its data: the vocabulary, and the tensors of each step, for one process of
several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from yuriiformer.config import TrainConfig
from yuriiformer.data.order import BatchOrder, exact_windows, validation_starts
from yuriiformer.data.sources import Split
from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import GPT2, padded
from yuriiformer.errors import DataError
from yuriiformer.evaluation.validation import Batch
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
        self.order.micro_batches(
            0, process=processes.rank, processes=processes.size
        )  # or it says why not
        self.validated: NDArray[np.int64] | None = None
        if config.validation.eval_every:
            if len(store.val) <= self.context:
                raise DataError(
                    f"the validation split of {store.folder} has {len(store.val)} tokens, less "
                    f"than one sequence of {self.context}: prepare more text, or --eval-every 0"
                )
            every = validation_starts(
                len(store.val), self.context, config.validation.eval_sequences
            )
            self.validated = every

    def training(self, step: int) -> list[MicroBatch]:
        """This process's micro-batches of a step.

        Processes average their gradients, so a micro-batch of n of the step's S sequences counts
        n · processes / S: right also where shares differ.
        """
        shares = self.order.micro_batches(
            step,
            process=self.processes.rank,
            processes=self.processes.size,
            micro_batch=self.micro_batch,
        )
        scale = self.processes.size / self.sequences
        return [MicroBatch(self._load("train", s), len(s) * scale) for s in shares]

    def validation(self) -> tuple[Iterator[Batch], int]:
        """This process's part of the validation, in micro-batches, and how many of them every
        process has at least."""
        assert self.validated is not None
        return self._shared(self.validated), self._common(len(self.validated))

    def exact(self) -> tuple[Iterator[Batch], int]:
        """The same of the exact loss: the whole split, every token but the first a target once."""
        starts, last = exact_windows(len(self.store.val), self.context)
        whole = len(starts) if last == self.context else len(starts) - 1

        def batches() -> Iterator[Batch]:
            yield from self._shared(starts[:whole])
            if whole < len(starts) and self.processes.leads:
                yield self._load("val", starts[whole:], last)

        return batches(), self._common(whole)

    def _shared(self, starts: NDArray[np.int64]) -> Iterator[Batch]:
        """This process's share of validation sequences."""
        own = np.array_split(starts, self.processes.size)[self.processes.rank]
        for start in range(0, len(own), self.micro_batch):
            yield self._load("val", own[start : start + self.micro_batch])

    def _common(self, sequences: int) -> int:
        return -(-(sequences // self.processes.size) // self.micro_batch)

    def _load(self, split: Split, starts: NDArray[np.int64], length: int | None = None) -> Batch:
        inputs, targets = (
            torch.from_numpy(np.ascontiguousarray(part))
            for part in self.store.sequences(split, starts, length or self.context)
        )
        if self.processes.device.type == "cuda":
            inputs, targets = inputs.pin_memory(), targets.pin_memory()
        device = self.processes.device
        return inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
