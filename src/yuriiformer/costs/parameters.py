"""Where a model's parameters are."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from yuriiformer.model.config import ModelConfig
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import MATRICES, parameter_groups


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
    for group in parameter_groups(model, split_fused=split_fused):
        for name in group.names if group.kind == MATRICES else ():
            rows, columns = model.get_parameter(name).shape
            matrices += [(rows // group.parts, columns)] * group.parts
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
