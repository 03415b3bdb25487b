"""The learned maps of a model, layer by layer and head by head, as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from yuriiformer.model.block import Block
from yuriiformer.model.maps import HeadMaps, LinearMap, alignment
from yuriiformer.model.model import YuriiFormer

MEASURES = ("attraction", "symmetric", "norm")


def learned_maps(model: YuriiFormer) -> dict[str, Any]:
    """By layer and head: what `LinearMap` says of the value–output and the query–key maps, the
    cosine between the two, and by layer the cosine between the MLP's W and the transpose of its A.
    Oracles without a method ``maps`` are left out."""
    found: dict[str, Any] = {}
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    heads = _each(block.attn for block in blocks)
    if heads:
        for name in ("value_output", "query_key"):
            found[name] = _measures([getattr(each, name) for each in heads])
        found["alignment"] = torch.stack([_aligned(each) for each in heads])
    pairs = _each(block.mlp for block in blocks)
    if pairs:
        cosines = [torch.cosine_similarity(*_flat(A, W), dim=0) for A, W in pairs]
        found["mlp_alignment"] = torch.stack(cosines)[:, None]
    return found


def _each(oracles: Iterable[Any]) -> list[Any]:
    """The maps of all of them, or none."""
    asked = list(oracles)
    return [each.maps() for each in asked] if all(hasattr(e, "maps") for e in asked) else []


def _measures(maps: list[LinearMap]) -> dict[str, Any]:
    values = torch.stack([each.eigenvalues for each in maps])
    kept: dict[str, Any] = {
        name: torch.stack([getattr(each, name) for each in maps]) for name in MEASURES
    }
    return {**kept, "eigenvalues": torch.view_as_real(values)}


def _aligned(each: HeadMaps) -> torch.Tensor:
    return alignment(each.value_output, each.query_key)


def _flat(A: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return A.detach().double().ravel(), W.detach().double().mT.ravel()
