"""The oracles: what one is, the paper's pair, a modern pair, and the registry of pairs.

A pair is all that a model needs of its oracles. To add one, write two modules that are
called ``oracle(Y, context)`` and register them under a name; no rule and no other file changes:

    register_oracles("mine", OraclePair(attention=MyAttention, mlp=MyMLP, norm=make_norm,
                                        learned_positions=True))
    YuriiFormer(ModelConfig(oracles="mine", ...))

``docs/adding_an_oracle.md`` shows a whole one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.methods.evaluation import LAYER_NORM_EPS
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.maps import HeadMaps, head_maps, with_gain
from yuriiformer.model.products import Linear


def attend(q: Tensor, k: Tensor, v: Tensor, context: Context, **options: Any) -> Tensor:
    """Attention over (batch, head, token, d_head), including cached keys and values."""
    if context.kv_cache is not None:
        k, v = context.kv_cache.extend(k, v)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=context.mask, is_causal=context.causal, **options
    )


def attention_scores(q: Tensor, k: Tensor, context: Context) -> Tensor:
    """What `attend` takes the softmax of: (batch, head, token, key), -inf where a token may not
    look. Groups of query heads may share a key head. For analysis, not for speed."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    token, key = scores.shape[-2:]
    seen = torch.ones(token, key, dtype=torch.bool, device=q.device)
    seen = seen.tril() if context.causal else seen
    seen = seen if context.mask is None else seen & context.mask
    result: Tensor = scores.masked_fill(~seen, -torch.inf)
    return result


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
        fused = self.qkv(self.norm(Y))
        if token == 1:  # the same numbers in fewer steps
            parts = fused.view(batch, 3, self.n_head, 1, d // self.n_head).unbind(1)
        else:
            parts = (
                part.view(batch, token, self.n_head, d // self.n_head).transpose(1, 2)
                for part in fused.split(d, dim=-1)
            )
        q, k, v = parts
        return q, k, v

    def scores(self, Y: Tensor, context: Context) -> Tensor:
        """Attention scores, for analysis."""
        q, k, _ = self.project(Y)
        return attention_scores(q, k, context)

    def maps(self) -> HeadMaps:
        """The linear maps of each head, for analysis."""
        q, k, v = with_gain(self.qkv.weight, self.norm).chunk(3)
        return head_maps(q, k, v, self.out.weight, self.n_head)


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

    def maps(self) -> tuple[Tensor, Tensor]:
        """A (with the norm's gain) and W of W σ(A x), for analysis."""
        return with_gain(self.up.weight, self.norm), self.down.weight


def check_paper(config: ModelConfig) -> None:
    if config.n_kv_head is not None:
        raise ConfigError(
            f"n_kv_head={config.n_kv_head} has no meaning for oracles='paper', whose heads all "
            "have their own keys: leave it out, or take oracles='modern'"
        )


ROTARY_BASE = 10_000.0


def rms_norm(config: ModelConfig) -> nn.RMSNorm:
    return nn.RMSNorm(config.d_model, eps=LAYER_NORM_EPS)


def kv_heads(config: ModelConfig) -> int:
    """As configured, else the largest divisor of the heads that is at most a quarter of them."""
    if config.n_kv_head is not None:
        return config.n_kv_head
    most = max(1, config.n_head // 4)
    return max(heads for heads in range(1, most + 1) if config.n_head % heads == 0)


def angles(positions: Tensor, half: int) -> Tensor:
    """By which each of ``half`` pairs is turned at each position."""
    index = torch.arange(half, device=positions.device, dtype=torch.float32)
    frequency = ROTARY_BASE ** (-index / half)
    return positions.to(torch.float32)[..., None] * frequency


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Turn pairs (x[i], x[i + d/2]) of each head by an angle proportional to the position."""
    half = x.shape[-1] // 2
    angle = angles(positions, half)  # (token, half)
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

    def maps(self) -> HeadMaps:
        """The linear maps of each head, for analysis: queries and keys of tokens at one position,
        as the rotation depends on their distance."""
        k, v = with_gain(self.kv.weight, self.norm).chunk(2)
        return head_maps(with_gain(self.q.weight, self.norm), k, v, self.out.weight, self.n_head)


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


@dataclass(frozen=True)
class OraclePair:
    """The two oracles of a model.

    Args:
        attention, mlp: from a configuration to a module called ``module(Y, context)``, Y being
            (batch, token, d_model) and the answer of the same shape. Each does its own pre-norm.
            A linear layer with an attribute ``init_scale`` starts with its standard deviation
            multiplied by it.
        norm: from a configuration to the model's final norm.
        learned_positions: whether the model adds position tables (False where attention knows
            positions by itself).
        caches: whether attention uses ``context.kv_cache``, ``mask`` and ``causal``, so that text
            can be generated without computing all of it again for every token.
        check: raises a `ConfigError` for configurations the pair cannot serve.
    """

    attention: Callable[[ModelConfig], nn.Module]
    mlp: Callable[[ModelConfig], nn.Module]
    norm: Callable[[ModelConfig], nn.Module]
    learned_positions: bool = True
    caches: bool = False
    check: Callable[[ModelConfig], None] = lambda config: None


_PAIRS = {
    "paper": OraclePair(Attention, MLP, layer_norm, True, True, check_paper),
    "modern": OraclePair(GroupedAttention, SwiGLU, rms_norm, False, True, check_modern),
}


def register_oracles(name: str, pair: OraclePair) -> None:
    """Register a pair under a name, which cannot be reused."""
    if _PAIRS.setdefault(name, pair) != pair:
        raise ConfigError(f"oracles {name!r} are registered already: choose another name")


def oracle_pair(config: ModelConfig) -> OraclePair:
    """The pair that a configuration names, checked against it."""
    if config.oracles not in _PAIRS:
        hint = did_you_mean(config.oracles, _PAIRS) or f"; known are {', '.join(_PAIRS)}"
        raise ConfigError(
            f"unknown oracles {config.oracles!r}{hint}. A third-party pair must be registered "
            "(import its module) before the model is built or loaded"
        )
    pair = _PAIRS[config.oracles]
    pair.check(config)
    return pair
