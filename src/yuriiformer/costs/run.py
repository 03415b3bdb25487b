"""What a run computes and stores, counted before it runs: parameters, bytes, FLOPs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from yuriiformer.config import TrainConfig
from yuriiformer.costs.flops import model_work
from yuriiformer.data.order import BatchOrder
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import MATRICES, named_groups
from yuriiformer.model.shards import shard_bounds


@dataclass(frozen=True)
class Parameters:
    """Numbers of parameters. ``paper`` is the paper's count: no positions, no start tables."""

    token_table: int
    positions: int
    start_tables: int  # of further streams (v0), tokens only
    attention: int
    mlp: int
    norms: int
    coefficients: int
    frozen: int  # of all of these: never reach the logits
    paper: int
    matrices: tuple[tuple[int, int], ...]  # shapes of what Muon orthogonalises

    @property
    def all(self) -> int:
        tables = self.token_table + self.positions + self.start_tables
        return tables + self.attention + self.mlp + self.norms + self.coefficients

    def beyond(self, other: Parameters) -> int:
        """How many more than another model's, without positions (the paper's convention)."""
        return self.all - self.positions - (other.all - other.positions)


@cache
def count_parameters(config: ModelConfig, *, split_fused: bool = False) -> Parameters:
    """By part, from the model itself on the meta device."""
    with torch.device("meta"):
        model = YuriiFormer(config, seed=None)
    names = "token_table positions start_tables attention mlp norms coefficients".split()
    parts = dict.fromkeys(names, 0)
    for name, parameter in model.named_parameters():
        parts[_part(name, parameter.ndim)] += parameter.numel()
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    matrices = []
    for group in named_groups(model, split_fused=split_fused):
        for name in group.names if group.kind == MATRICES else ():
            rows, *others = model.get_parameter(name).shape
            matrices += [(rows // group.parts, math.prod(others))] * group.parts
    return Parameters(
        **parts, frozen=frozen, paper=model.num_parameters(), matrices=tuple(matrices)
    )


def _part(name: str, dimensions: int) -> str:
    if name.startswith("starts."):
        if ".positions." in name:
            return "positions"
        return "token_table" if name.startswith("starts.X_0.") else "start_tables"
    if ".coefficients." in name:
        return "coefficients"
    if "norm" in name and dimensions == 1:
        return "norms"
    if ".attn." in name:
        return "attention"
    return "mlp" if ".mlp." in name else "norms"


@dataclass(frozen=True)
class Stored:
    """Bytes that a process holds between the passes of a step."""

    weights: int
    gradients: int
    optimizer: int


def stored_bytes(config: TrainConfig, shards: int = 1) -> Stored:
    """Muon keeps one number per parameter; AdamW keeps two, and a step count per tensor. Where
    ``shards`` processes share a model, it is the first one's: no other has more."""
    with torch.device("meta"):
        model = YuriiFormer(config.model, seed=None)

    def held(tensor: Tensor) -> int:
        rows = shard_bounds(len(tensor), shards, 0)[1] if tensor.ndim > 1 else len(tensor)
        return tensor.nbytes // len(tensor) * rows

    trained = {name: held(p) for name, p in model.named_parameters() if p.requires_grad}
    groups = named_groups(model) if config.recipe.uses_muon else []
    matrices = [trained[n] for each in groups if each.kind == MATRICES for n in each.names]
    gradients, muon = sum(trained.values()), sum(matrices)
    counts = 4 * (len(trained) - len(matrices))
    return Stored(
        weights=sum(held(tensor) for tensor in model.state_dict().values()),
        gradients=gradients,
        optimizer=muon + 2 * (gradients - muon) + counts,
    )


@dataclass(frozen=True)
class RunCosts:
    """As a run keeps them in its ``config.json``. The FLOPs are 0 where an oracle reads the values
    of its tensors: then nothing can be counted without running it."""

    parameters: int  # the paper's convention
    start_tables: int  # of further streams (v0), tokens only
    all_parameters: int
    frozen: int
    tokens_a_step: int
    tokens: int
    steps_per_epoch: float
    weights: int  # bytes
    optimizer: int  # bytes
    flops: float
    forward_flops_a_token: float


def run_costs(config: TrainConfig, train_tokens: int) -> RunCosts:
    """The costs of a run whose vocabulary is known."""
    recipe = config.recipe
    parameters = count_parameters(config.model)
    order = BatchOrder(train_tokens, config.model.context, recipe.sequences, recipe.seed)
    try:
        work = model_work(config.model, recompute=config.machine.recompute)
        per_token, forward = work.total.both + work.recomputed, work.total.forward
    except Exception:  # an oracle of the user's can do anything with values that are not there
        per_token, forward = 0.0, 0.0
    stored = stored_bytes(config)
    tokens = config.tokens_per_step
    return RunCosts(
        parameters=parameters.paper,
        start_tables=parameters.start_tables,
        all_parameters=parameters.all,
        frozen=parameters.frozen,
        tokens_a_step=tokens,
        tokens=tokens * recipe.steps,
        steps_per_epoch=order.steps_per_epoch,
        weights=stored.weights,
        optimizer=stored.optimizer,
        flops=per_token * tokens * recipe.steps,
        forward_flops_a_token=forward,
    )
