"""What a process of a sharded model holds for a while beside its rows, in bytes."""

from __future__ import annotations

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.run import count_parameters
from yuriiformer.training.owners import TURN_BYTES
from yuriiformer.training.step import build_model

TURN_COPIES = 9  # two that come, one put together, four of Newton–Schulz, two that go


def gathered_bytes(config: TrainConfig, dtype: torch.dtype) -> tuple[float, float, float]:
    """At the three peaks of a micro-batch. In the forward pass: the tables, a block and the next
    one. In the backward pass also the gradients of the block before, as float32 to be summed. After
    it: those of the tables. A gradient as it comes is part of the passes themselves."""
    with torch.device("meta"):
        model = build_model(config)
    tables = [p for p in model.starts.parameters() if p.ndim > 1]
    table = sum(p.nbytes for p in tables)
    gradient = sum(p.nbytes for p in tables if p.requires_grad)
    matrices = [[p.numel() for p in block.parameters() if p.ndim > 1] for block in model.blocks]
    block = max(sum(each) for each in matrices)
    forward = table + 2 * block * dtype.itemsize
    backward = forward + block * torch.float32.itemsize
    return forward, backward, table + 2 * gradient


def muon_bytes(config: TrainConfig, dtype: torch.dtype, processes: int, shards: int) -> float:
    """In the update, at most: the matrices that a process owns of one of Muon's turns, as often as
    they are there while others come and go. Where there are several copies of the model, it gets
    what the others have computed."""
    if not config.recipe.uses_muon:
        return 0.0
    sizes = count_parameters(config.model, split_fused=config.recipe.split_fused).matrices
    turns = [0]
    for rows, cols in set(sizes):
        matrix = rows * cols * dtype.itemsize
        owned = -(-sizes.count((rows, cols)) // processes)
        turns.append(matrix * min(owned, max(1, TURN_BYTES // matrix)))
    return max(TURN_COPIES, processes // shards + 5) * max(turns)
