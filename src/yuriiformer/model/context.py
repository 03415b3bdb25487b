"""What an oracle gets besides its argument: positions, mask, and the keys and values of attention.

While text is generated, keys and values are kept in a slot for every call: two attention calls in a
block share their weights but have different arguments. A slot is made when its call first happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class KVSlot(Protocol):
    """Where one attention call keeps its keys and values."""

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of new tokens (batch, head, token, d_head); returns all of them so far."""


class BlockKVCache(Protocol):
    """The slots of one block, by the number of the attention call."""

    coefficients: Mapping[str, Tensor] | None  # of the block, if they were read before

    def call(self, number: int) -> KVSlot: ...


@dataclass(frozen=True)
class Context:
    """The context of one oracle call.

    Args:
        positions: (token,), or (batch, token) where rows differ: the place of each token in its
            sequence.
        call: how many times this oracle has been called in this block before. Two calls share
            their weights but not their cache.
        kv_cache: of attention, while text is generated: keys and values of the tokens before.
        mask: True where a token may attend, broadcast to (batch, head, token, key). None: the
            causal mask with ``causal``, no mask without.
    """

    positions: Tensor
    call: int = 0
    kv_cache: KVSlot | None = None
    mask: Tensor | None = None
    causal: bool = True


class TensorSlot:
    """Room for ``size`` tokens, filled from the left. The shape is whatever the oracle keeps."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None:
            shapes = [(*each.shape[:2], self.size, each.shape[3]) for each in (keys, values)]
            self.keys, self.values = keys.new_empty(shapes[0]), values.new_empty(shapes[1])
        end = self.length + keys.shape[2]
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class BlockTensors:
    """The slots of one block."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots: list[TensorSlot] = []
        self.coefficients: Mapping[str, Tensor] | None = None

    def call(self, number: int) -> TensorSlot:
        while len(self.slots) <= number:
            self.slots.append(TensorSlot(self.size))
        return self.slots[number]


class KVCache:
    """The keys and values of a whole model, for up to ``size`` tokens."""

    def __init__(self, layers: int, size: int) -> None:
        self.blocks = [BlockTensors(size) for _ in range(layers)]
        self.length = 0  # tokens that every slot has seen

    @property
    def slots(self) -> list[TensorSlot]:
        return [slot for block in self.blocks for slot in block.slots]

    def clear(self) -> None:
        """Empty all slots, keep their memory."""
        self.length = 0
        for slot in self.slots:
            slot.length = 0


def positions_and_mask(
    length: int, tokens: int, pads: Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor | None, bool]:
    """Positions and attention mask of new tokens after ``length`` others.

    ``pads`` (batch,) is how much padding stands before each row. Returns positions, (token,) or
    (batch, token); a mask (batch, 1, token, key) where one is needed; and whether the causal mask
    applies.
    """
    rows = torch.arange(length, length + tokens, device=device)
    if pads is None:
        if length == 0:
            return rows, None, tokens > 1
        if tokens == 1:
            return rows, None, False  # the newest sees all
    columns = torch.arange(length + tokens, device=device)
    seen = columns <= rows[:, None]  # (token, key)
    if pads is None:
        return rows, seen, False
    real = columns >= pads[:, None]  # (batch, key)
    # Padding sees itself: a row without any key would be NaN.
    mask = (seen & real[:, None]) | (columns == rows[:, None])
    return (rows - pads[:, None]).clamp(min=0), mask[:, None], False
