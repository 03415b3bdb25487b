"""transformers' key/value caches as the slots of a rule's attention calls.

Such a cache has "layers", each with the keys and values of one attention. A block of a rule may
call attention twice, or (the last one) not at all. So cache layers are numbered over the attention
calls of all blocks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from yuriiformer.errors import InputError
from yuriiformer.methods.passes import Program, Query
from yuriiformer.model.context import positions_and_mask


class CacheLayer:
    """One layer of a cache."""

    def __init__(self, cache: Any, layer: int) -> None:
        self.cache, self.layer = cache, layer

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        both: tuple[Tensor, Tensor] = self.cache.update(keys, values, self.layer)
        return both


class BlockSlots:
    """The layers of a cache that belong to one block, by the number of the attention call."""

    coefficients: Mapping[str, Tensor] | None = None  # read at every step

    def __init__(self, cache: Any, layers: dict[int, int]) -> None:
        self.cache, self.layers = cache, layers

    def call(self, number: int) -> CacheLayer:
        return CacheLayer(self.cache, self.layers[number])


def number_slots(programs: Iterable[Program]) -> list[dict[int, int]]:
    """For each block: the cache layer of each attention call that its program makes."""
    found: list[dict[int, int]] = []
    count = 0
    for program in programs:
        calls = [s.call for s in program.steps if isinstance(s, Query) and s.oracle == "attn"]
        found.append({call: count + i for i, call in enumerate(calls)})
        count += len(calls)
    return found


def block_caches(cache: Any, slots: list[dict[int, int]]) -> list[BlockSlots]:
    """The cache as the slots of each block; missing layers are added."""
    needed = sum(map(len, slots))
    layers = cache.layers
    if layers and cache.layer_class_to_replicate is None:  # made for one call per block
        if len(layers) < needed and int(cache.get_seq_length()) > 0:
            raise InputError(
                f"the cache has {len(layers)} layers, but this model's rule needs {needed}: it "
                "belongs to another model"
            )
        layers.extend(copy.deepcopy(layers[0]) for _ in range(needed - len(layers)))
    return [BlockSlots(cache, each) for each in slots]


def find_positions_and_mask(
    tokens: Tensor, attention_mask: Tensor | None, positions: Tensor | None, cache: Any
) -> tuple[Tensor, Tensor | None, bool]:
    """Positions of new tokens (batch, token), the attention mask, and whether it is the causal one:
    as `positions_and_mask`, but for padding anywhere and for caches of a fixed size."""
    count, device = tokens.shape[1], tokens.device
    length = 0 if cache is None else int(cache.get_seq_length())
    keys = length + count if cache is None else int(cache.get_mask_sizes(count, 0)[0])
    if attention_mask is not None and attention_mask.ndim == 4:  # made by transformers
        if positions is None:
            positions = torch.arange(length, length + count, device=device)
        return positions, attention_mask[..., :keys], False
    if attention_mask is not None:
        wanted = (tokens.shape[0], length + count)
        if tuple(attention_mask.shape) != wanted:
            raise InputError(
                f"attention_mask has shape {tuple(attention_mask.shape)}, but with {length} tokens "
                f"in the cache and {count} new ones it must be {wanted}"
            )
        attention_mask = attention_mask.to(device).bool()
        if not torch.compiler.is_compiling() and bool(attention_mask.all()):
            attention_mask = None
    if attention_mask is None and keys == length + count:
        plain, mask, causal = positions_and_mask(length, count, None, device)
        return plain if positions is None else positions, mask, causal
    rows = torch.arange(length, length + count, device=device)[:, None]
    columns = torch.arange(keys, device=device)
    seen = (columns <= rows)[None]  # (1, token, key)
    if attention_mask is None:
        return rows[:, 0] if positions is None else positions, seen[:, None], False
    if positions is None:
        positions = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)[:, -count:]
    room = keys - attention_mask.shape[1]
    real = torch.nn.functional.pad(attention_mask, (0, room))[:, None]  # (batch, 1, key)
    # Padding sees itself: a row without any key would be NaN.
    return positions, ((seen & real) | (columns == rows))[:, None], False
