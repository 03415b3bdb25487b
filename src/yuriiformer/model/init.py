"""The start of every tensor: nanoGPT's distributions, drawn by name.

Each tensor is drawn on the CPU from a generator of its own, seeded by (seed, name). So two models
of different rules start from the same tensors where both have them, independent of order and
device, and the global RNG is not used.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

from yuriiformer.model.coefficients import Coefficients

STD = 0.02


def tensor_seed(seed: int, name: str) -> int:
    """64 bits that depend on both."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


@torch.no_grad()
def initialize(model: nn.Module, seed: int) -> None:
    """Initialise every parameter; those on the meta device are skipped."""
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta:
                continue
            full = f"{prefix}.{name}" if prefix else name
            if isinstance(module, Coefficients):
                parameter.fill_(module.starts[name.removeprefix("raw_")])
            elif parameter.ndim >= 2:
                std = STD * getattr(module, "init_scale", 1.0)
                parameter.copy_(_normal(parameter, std, tensor_seed(seed, full)))
            elif name == "bias":
                parameter.zero_()
            else:  # the gain of a norm
                parameter.fill_(1.0)


def _normal(like: Tensor, std: float, seed: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.empty(like.shape, dtype=torch.float32).normal_(0.0, std, generator=generator)
