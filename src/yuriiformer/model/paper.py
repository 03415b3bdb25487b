"""The paper's oracles: GPT-2's attention and MLP, each with its own LayerNorm before it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from yuriiformer.errors import ConfigError
from yuriiformer.methods.interpreter import LAYER_NORM_EPS
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.layers import Linear, attend, attention_scores


def layer_norm(config: ModelConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS, bias=config.bias)


def output_scale(config: ModelConfig) -> float:
    """Initial scale of output projections, by the number of blocks L: 1/sqrt(2L)."""
    return float((2 * config.n_layer) ** -0.5)


class Attention(nn.Module):
    """Causal multi-head attention with a fused QKV projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.n_head = config.n_head
        self.norm = layer_norm(config)
        self.qkv = Linear(d, 3 * d, bias=config.bias, parts=3)
        self.out = Linear(d, d, bias=config.bias, init_scale=output_scale(config))

    def forward(self, Y: Tensor, context: Context) -> Tensor:
        batch, token, d = Y.shape
        heads = attend(*self.project(Y), context)
        result: Tensor = self.out(heads.transpose(1, 2).reshape(batch, token, d))
        return result

    def project(self, Y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (batch, head, token, d_head)."""
        batch, token, d = Y.shape
        q, k, v = (
            part.view(batch, token, self.n_head, d // self.n_head).transpose(1, 2)
            for part in self.qkv(self.norm(Y)).split(d, dim=-1)
        )
        return q, k, v

    def scores(self, Y: Tensor, context: Context) -> Tensor:
        """Attention scores, for analysis."""
        q, k, _ = self.project(Y)
        return attention_scores(q, k, context)


class MLP(nn.Module):
    """d -> 4d -> d with GELU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.approximate = "tanh" if config.gelu == "tanh" else "none"
        self.activation = "gelu-tanh" if config.gelu == "tanh" else "gelu"  # its name, for analysis
        self.norm = layer_norm(config)
        self.up = Linear(d, 4 * d, bias=config.bias)
        self.down = Linear(4 * d, d, bias=config.bias, init_scale=output_scale(config))

    def forward(self, Y: Tensor, context: Context) -> Tensor:
        hidden = F.gelu(self.preactivations(Y), approximate=self.approximate)
        result: Tensor = self.down(hidden)
        return result

    def preactivations(self, Y: Tensor) -> Tensor:
        """What GELU is applied to: (batch, token, 4d)."""
        result: Tensor = self.up(self.norm(Y))
        return result


def check_paper(config: ModelConfig) -> None:
    if config.n_kv_head is not None:
        raise ConfigError(
            f"n_kv_head={config.n_kv_head} has no meaning for oracles='paper', whose heads all "
            "have their own keys: leave it out, or take oracles='modern'"
        )
