"""The learned coefficients of a model, layer by layer."""

from __future__ import annotations

import torch

from yuriiformer.model.block import Block
from yuriiformer.model.model import YuriiFormer

EDGE = 1e-3  # a coefficient in (0, 1) this near to an end has nowhere left to go


@torch.no_grad()
def coefficient_record(model: YuriiFormer) -> dict[str, list[float]]:
    """Each coefficient's value in every layer; of one per head or channel, its mean, and its range
    as ``name.min`` and ``name.max``."""
    found: dict[str, list[float]] = {}
    for block in model.blocks:
        assert isinstance(block, Block)
        for name, value in block.coefficients().items():
            found.setdefault(name, []).append(value.mean().item())
            if value.numel() > 1:
                found.setdefault(f"{name}.min", []).append(value.min().item())
                found.setdefault(f"{name}.max", []).append(value.max().item())
    return found


@torch.no_grad()
def saturated(model: YuriiFormer) -> list[str]:
    """Learned coefficients of the unit interval within 1e-3 of an end, in words."""
    found = []
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        dead = set(block.dead_parameters())
        for name, value in block.coefficients().items():
            spec = block.coefficients.coefficients[name]
            if not spec.learned or spec.range != "unit" or f"coefficients.raw_{name}" in dead:
                continue
            for end, distance in ((0, value.min()), (1, 1 - value.max())):
                if distance.item() < EDGE:
                    found.append(f"{name} of layer {layer} is within {EDGE:g} of {end}")
    return found
