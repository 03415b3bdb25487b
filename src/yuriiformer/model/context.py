"""What an oracle is told besides its argument."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Context:
    """Of one oracle call.

    Args:
        positions: (token,), the place of each token in its sequence.
        call: how many times this oracle has been called in this block before. Two calls share
            their weights but not what they remember.
    """

    positions: Tensor
    call: int = 0
