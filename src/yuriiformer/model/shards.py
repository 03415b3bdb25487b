"""Tensors of which this process may hold only some rows.

Sharded training keeps of each matrix and each table the rows of one process (a `DTensor` of torch,
divided along its first dimension). A plain tensor is the case of one process that holds all rows.
"""

from __future__ import annotations

import torch
from torch import Tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether other processes hold rows of this tensor."""
    return hasattr(tensor, "device_mesh")  # a DTensor's; importing the class takes long


def local(tensor: Tensor) -> Tensor:
    """The rows that this process holds, as a plain tensor that shares their memory."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        rows: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return rows


def shard_bounds(rows: int, shards: int, shard: int) -> tuple[int, int]:
    """First row of a shard and first row after it, as torch divides: equal shares, rounded up, so
    that the last ones may be smaller or empty."""
    share = -(-rows // shards)
    return min(rows, shard * share), min(rows, (shard + 1) * share)


def local_rows(tensor: Tensor) -> tuple[int, int]:
    """First row that this process holds, and first row after those."""
    if not is_sharded(tensor):
        return 0, len(tensor) if tensor.ndim else 1
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    for dimension, placement in enumerate(tensor.placements):  # type: ignore[attr-defined]
        if placement.is_shard():
            place, size = mesh.get_local_rank(dimension), mesh.size(dimension)
            return shard_bounds(len(tensor), size, place)
    return 0, len(tensor)
