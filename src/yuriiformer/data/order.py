"""The order of training data: a pure function of (data, seed, step).

Epochs go over non-overlapping blocks of T tokens, each block exactly once per epoch, in an order
shuffled anew in every epoch; from the second epoch on, block boundaries are shifted by a seeded
offset in [0, T). The data of a step do not depend on the number of processes, on the size of
micro-batches, or on whether the run was resumed; any step can be computed at any time.

The shuffle of an epoch is a keyed permutation computed point by point ("swap or not", Hoang,
Morris and Rogaway 2012), so no list of blocks is made: at OpenWebText's 8.42 million blocks a
step costs milliseconds and almost no memory.

Every seeded decision about data is a hash of integers. The hash is written here because the result
must never change: numpy's generators may differ between versions. Golden values fix the order of
training data and the split of documents.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yuriiformer.errors import DataError, whole_number

Starts = NDArray[np.int64]
Words = NDArray[np.uint64]

MAX_EPOCHS = 2**24  # their sizes are kept in a table

# Of the mixing function of SplitMix64 (Steele, Lea, Flood 2014).
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)

_OFFSET, _PERMUTATION = 1, 2  # the purpose of a hash: no two purposes share one


def _whole(name: str, value: object, least: int | None) -> int:
    return whole_number(name, value, least, DataError)


def mix(words: Words) -> Words:
    """Every bit of the result depends on every bit of the word."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        words = words + _GOLDEN
        words = (words ^ (words >> np.uint64(30))) * _FIRST
        words = (words ^ (words >> np.uint64(27))) * _SECOND
        return words ^ (words >> np.uint64(31))


def hash_words(seed: int, *parts: Any) -> Words:
    """A 64-bit hash of a seed and integers; arrays among the parts are hashed elementwise."""
    state: Words = mix(np.asarray(int(seed) % 2**64, dtype=np.uint64))
    for part in parts:
        state = mix(state ^ mix(np.asarray(part).astype(np.uint64)))
    return state


def uniform(words: Words) -> NDArray[np.float64]:
    """Hashes as numbers in [0, 1), from their upper 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permute(index: Words, size: Words, seed: int, epoch: Words, rounds: int) -> Words:
    """The image of each index under a seeded permutation of range(size), in its own epoch.

    In every round a point may swap with its partner (K − x) mod size. The deciding bit depends on
    the pair, so both partners agree, and each round is a permutation for any size.
    """
    present, which = np.unique(epoch, return_inverse=True)
    keys = hash_words(seed, _PERMUTATION, present, np.arange(2 * rounds)[:, None])
    point = index
    for number in range(rounds):
        turn, salt = keys[2 * number][which], keys[2 * number + 1][which]
        partner = (turn % size + size - point) % size
        swap = mix(np.maximum(point, partner) ^ salt) & np.uint64(1)
        point = np.where(swap == 1, partner, point)
    return point


@dataclass(frozen=True)
class BatchOrder:
    """Which blocks of a token file each training step sees.

    Args:
        n_tokens: tokens in the file.
        context: T, the length of a sequence; its targets need one token more.
        sequences: sequences per step, over all processes.
        seed: fixes the order.
    """

    n_tokens: int
    context: int
    sequences: int = 480
    seed: int = 0
    _ends: list[Starts] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("n_tokens", "context", "sequences"):
            object.__setattr__(self, name, _whole(name, getattr(self, name), least=1))
        object.__setattr__(self, "seed", _whole("seed", self.seed, least=None))
        if self.n_tokens < self.context + 1:
            raise DataError(
                f"{self.n_tokens} tokens are shorter than one block of {self.context} and its "
                "last target: take a smaller context or more text"
            )

    @property
    def blocks(self) -> int:
        """Blocks in the first epoch; a shifted epoch has as many or one less."""
        return (self.n_tokens - 1) // self.context

    @property
    def steps_per_epoch(self) -> float:
        return self.blocks / self.sequences

    def offsets(self, epochs: NDArray[np.int64]) -> Starts:
        """By how much each epoch's boundaries are shifted."""
        drawn = hash_words(self.seed, _OFFSET, epochs) % np.uint64(self.context)
        shifted = np.where(epochs == 0, 0, drawn.astype(np.int64))
        fits = self.n_tokens - 1 - shifted >= self.context
        return np.where(fits, shifted, 0)

    def sizes(self, epochs: NDArray[np.int64]) -> Starts:
        """How many blocks each epoch has."""
        return (self.n_tokens - 1 - self.offsets(epochs)) // self.context

    def starts(self, step: int) -> Starts:
        """Where each of the step's sequences begins: int64, (sequences,)."""
        step = _whole("step", step, least=0)
        if (step + 1) * self.sequences // self.blocks > MAX_EPOCHS:
            raise DataError(
                f"step {step} lies more than {MAX_EPOCHS:,} epochs ahead: give more text"
            )
        place = step * self.sequences + np.arange(self.sequences, dtype=np.int64)
        ends = self._epoch_ends(int(place[-1]))
        epochs = np.searchsorted(ends, place, side="right")
        before = np.where(epochs > 0, ends[epochs - 1], 0)
        index = permute(
            (place - before).astype(np.uint64),
            self.sizes(epochs).astype(np.uint64),
            self.seed,
            epochs.astype(np.uint64),
            rounds=max(32, 6 * self.blocks.bit_length()),
        )
        return self.offsets(epochs) + self.context * index.astype(np.int64)

    def micro_batches(
        self, step: int, *, process: int = 0, processes: int = 1, micro_batch: int | None = None
    ) -> list[Starts]:
        """One process's share of a step, cut into micro-batches (the last may be smaller).

        Shares follow one another and differ by at most one sequence: joined over the processes they
        are `starts(step)`.
        """
        processes, process = _whole("processes", processes, 1), _whole("process", process, 0)
        if processes > self.sequences or process >= processes:
            raise DataError(
                f"{self.sequences} sequences per step cannot be shared by process {process} of "
                f"{processes}: each of up to {self.sequences} processes needs at least one"
            )
        share = np.array_split(self.starts(step), processes)[process]
        size = len(share) if micro_batch is None else _whole("micro_batch", micro_batch, 1)
        return [share[i : i + size] for i in range(0, len(share), size)]

    def _epoch_ends(self, place: int) -> Starts:
        """The running number of blocks at the end of each epoch, up to past ``place``."""
        ends = self._ends[0] if self._ends else np.zeros(0, dtype=np.int64)
        while not len(ends) or ends[-1] <= place:
            more = np.arange(len(ends), 2 * len(ends) + 8, dtype=np.int64)
            last = ends[-1] if len(ends) else 0
            ends = np.concatenate([ends, last + np.cumsum(self.sizes(more))])
        self._ends[:] = [ends]
        return ends


def validation_starts(
    n_tokens: int, context: int, sequences: int, *, spread: bool = False
) -> Starts:
    """The first blocks, in file order; a split that is too small is read again from its start.
    With ``spread``, blocks at even distances over the whole split."""
    order = BatchOrder(n_tokens, context, sequences)
    number = np.arange(sequences, dtype=np.int64)
    block = number * order.blocks // sequences if spread else number % order.blocks
    return context * block
