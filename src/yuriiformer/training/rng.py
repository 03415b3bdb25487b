"""The random number generators of a process, as plain data.

The package does not draw from them, but a third-party oracle (with dropout, say) may.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from yuriiformer.model.parameters import tensor_seed


def seed_all(seed: int, rank: int) -> None:
    """Start every generator from (seed, rank)."""
    number = tensor_seed(seed, f"process {rank}") & 0xFFFF_FFFF
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def capture(device: torch.device) -> dict[str, Any]:
    """The state of Python's, NumPy's, torch's and this process's GPU's generators."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [kind, [int(key) for key in keys], position, has_gauss, cached],
        "torch": bytes(torch.get_rng_state().tolist()).hex(),
    }
    if device.type == "cuda":
        state["cuda"] = bytes(torch.cuda.get_rng_state(device).tolist()).hex()
    return state


def restore(state: dict[str, Any], device: torch.device) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(_bytes(state["torch"]))
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(_bytes(state["cuda"]), device)


def _bytes(text: str) -> torch.Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
