"""What a run will take, before it runs: counted on fake tensors, not guessed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from yuriiformer.config import TrainConfig
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.data.order import BatchOrder
from yuriiformer.data.store import TokenStore
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.groups import MATRICES, parameter_groups
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.precision import autocast


@dataclass(frozen=True)
class Plan:
    """Sizes in bytes, for one process. ``activations`` and the flops are 0 where an oracle reads
    the values of its tensors, so that nothing can be counted without running it."""

    parameters: int  # the paper's convention
    start_tables: int  # of further streams (v0), tokens only
    all_parameters: int
    frozen: int
    tokens_a_step: int
    tokens: int
    steps_per_epoch: float
    weights: int
    gradients: int
    optimizer: int
    activations: int
    flops: float
    forward_flops_a_token: float

    @property
    def memory(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


def saved_bytes(model: YuriiFormer, tokens: Tensor, targets: Tensor) -> tuple[Tensor, int]:
    """The loss, and how many bytes its forward pass leaves for the backward pass: whatever is
    still there of what it made, also the streams that recomputing starts from."""
    with Watcher() as watcher:
        loss: Tensor = model(tokens, targets)
    return loss, watcher.alive


def kept_bytes(
    config: ModelConfig,
    sequences: int,
    dtype: torch.dtype = torch.float32,
    *,
    recompute: bool = False,
    stream_dtype: torch.dtype | None = None,
) -> int:
    """What a forward pass over full sequences keeps for the backward pass."""
    with FakeTensorMode(), torch.device("cpu"):
        model = YuriiFormer(config, seed=None)
        model.recompute, model.stream_dtype = recompute, stream_dtype
        tokens = torch.zeros(sequences, config.context, dtype=torch.int64)
        with autocast(dtype, torch.device("cpu")):
            _, kept = saved_bytes(model, tokens, tokens)
    return kept


def make_plan(config: TrainConfig, store: TokenStore, processes: int, dtype: torch.dtype) -> Plan:
    """Of a run whose vocabulary is known."""
    recipe, machine = config.recipe, config.machine
    with torch.device("meta"):
        model = YuriiFormer(config.model, seed=None)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    trained = {g.kind: sum(sizes[n] for n in g.names) for g in parameter_groups(model)}
    order = BatchOrder(len(store.train), config.model.context, recipe.sequences, recipe.seed)
    own = -(-recipe.sequences // processes)
    micro = min(machine.micro_batch, own)
    stream = torch.bfloat16 if machine.stream_precision == "bfloat16" else None
    options: dict[str, Any] = {"recompute": machine.recompute, "stream_dtype": stream}
    try:
        work = model_work(config.model, recompute=machine.recompute)
        flops, forward = work.total.both + work.recomputed, work.total.forward
        kept = kept_bytes(config.model, micro, dtype, **options)
    except Exception:  # whatever an oracle of somebody else's does with values that are not there
        flops, forward, kept = 0.0, 0.0, 0
    tokens = recipe.sequences * config.model.context
    total = sum(sizes.values())
    muon = trained.get(MATRICES, 0) if recipe.uses_muon else 0
    moments = muon + 2 * (sum(trained.values()) - muon)
    plain = model.num_parameters()
    return Plan(
        parameters=plain,
        start_tables=model.num_parameters(velocity_table=True) - plain,
        all_parameters=total,
        frozen=total - sum(trained.values()),
        tokens_a_step=tokens,
        tokens=tokens * recipe.steps,
        steps_per_epoch=order.steps_per_epoch,
        weights=4 * total,
        gradients=4 * sum(trained.values()),
        optimizer=4 * moments,
        activations=kept,
        flops=flops * tokens * recipe.steps,
        forward_flops_a_token=forward,
    )
