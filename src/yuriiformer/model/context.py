"""What an oracle gets besides its argument."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from yuriiformer.model.kv_cache import KVSlot


@dataclass(frozen=True)
class Context:
    """Of one oracle call.

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
