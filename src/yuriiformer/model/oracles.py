"""What an oracle is, and the registry of oracle pairs.

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

from torch import nn

from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.modern import GroupedAttention, SwiGLU, check_modern, rms_norm
from yuriiformer.model.paper import MLP, Attention, check_paper, layer_norm


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
