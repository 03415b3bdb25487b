"""A modern pair of oracles: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yuriiformer.errors import ConfigError
from yuriiformer.methods.interpreter import LAYER_NORM_EPS
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.layers import Linear, attend, attention_scores
from yuriiformer.model.paper import output_scale

ROTARY_BASE = 10_000.0


def rms_norm(config: ModelConfig) -> nn.RMSNorm:
    return nn.RMSNorm(config.d_model, eps=LAYER_NORM_EPS)


def kv_heads(config: ModelConfig) -> int:
    """As configured, else the largest divisor of the heads that is at most a quarter of them."""
    if config.n_kv_head is not None:
        return config.n_kv_head
    most = max(1, config.n_head // 4)
    return max(heads for heads in range(1, most + 1) if config.n_head % heads == 0)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Turn pairs (x[i], x[i + d/2]) of each head by an angle proportional to the position."""
    half = x.shape[-1] // 2
    index = torch.arange(half, device=x.device, dtype=torch.float32)
    frequency = ROTARY_BASE ** (-index / half)
    angle = positions.to(torch.float32)[..., None] * frequency  # (token, half)
    angle = angle[:, None] if positions.ndim == 2 else angle  # rows differ: (batch, 1, token, half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class GroupedAttention(nn.Module):
    """Causal attention in which groups of query heads share a key/value head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        self.n_head, self.n_kv_head, self.d_head = config.n_head, kv_heads(config), config.d_head
        self.norm = rms_norm(config)
        self.q = Linear(d, d)
        self.kv = Linear(d, 2 * self.n_kv_head * self.d_head, parts=2)
        self.out = Linear(d, d, init_scale=output_scale(config))

    def forward(self, Y: Tensor, context: Context) -> Tensor:
        batch, token, d = Y.shape
        heads = attend(*self.project(Y, context), context, enable_gqa=True)
        result: Tensor = self.out(heads.transpose(1, 2).reshape(batch, token, d))
        return result

    def project(self, Y: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (batch, head, token, d_head), keys and values (batch, kv head, token, d_head)."""
        batch, token, _ = Y.shape
        Y = self.norm(Y)
        q = self.q(Y).view(batch, token, self.n_head, self.d_head).transpose(1, 2)
        kv = self.kv(Y).view(batch, token, 2 * self.n_kv_head, self.d_head).transpose(1, 2)
        k, v = kv.chunk(2, dim=1)
        return rotate(q, context.positions), rotate(k, context.positions), v

    def scores(self, Y: Tensor, context: Context) -> Tensor:
        """Attention scores, for analysis."""
        q, k, _ = self.project(Y, context)
        return attention_scores(q, k, context)


class SwiGLU(nn.Module):
    """Gated MLP; its hidden width of 8d/3 (in multiples of 8) costs what 4d costs ungated."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        d = config.d_model
        hidden = -(-8 * d // 3)
        hidden = -(-hidden // 8) * 8
        self.norm = rms_norm(config)
        self.gate = Linear(d, hidden)
        self.up = Linear(d, hidden)
        self.down = Linear(hidden, d, init_scale=output_scale(config))

    def forward(self, Y: Tensor, context: Context) -> Tensor:
        Y = self.norm(Y)
        result: Tensor = self.down(F.silu(self.gate(Y)) * self.up(Y))
        return result


def check_modern(config: ModelConfig) -> None:
    if config.bias or config.gelu != "exact":
        raise ConfigError("oracles='modern' have no biases and no GELU: leave bias and gelu out")
    if config.d_head % 2:
        raise ConfigError(
            f"rotary positions need an even head width, not d_model/n_head = {config.d_head}"
        )
    if config.n_head % kv_heads(config):
        raise ConfigError(f"n_kv_head={config.n_kv_head} does not divide n_head={config.n_head}")
