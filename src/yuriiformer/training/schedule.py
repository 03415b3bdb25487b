"""The learning rate over a run, as a factor of its peak."""

from __future__ import annotations

import math


def lr_factor(step: int, *, steps: int, warmup: int, final: float) -> float:
    """Linear warmup, (step + 1) / warmup; then a cosine from 1 down to ``final`` at ``steps``.

    ``step`` counts from 0; the same factor serves both optimisers.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))
