"""Mean loss of a model over given sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

Tell = Callable[[int, int], None]  # done, of how many
Batch = tuple[Tensor, Tensor]  # inputs and targets, each (sequences, context)


def own_devices(device: torch.device) -> list[torch.device]:
    """The GPU in use, if it is one, whose generator is to be left alone too."""
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
