"""The configuration of a model: complete, plain data when saved.

It is checked when it is made. What depends on the oracles or on a coefficient's schedule is checked
when a model is built from it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, overload

from yuriiformer.errors import ConfigError, brief, did_you_mean
from yuriiformer.methods.references import get_rule
from yuriiformer.methods.rule import Rule
from yuriiformer.sizes import size

Gelu = Literal["exact", "tanh"]
Precision = Literal["auto", "float32", "bfloat16"]
VelocityNorm = Literal["shared", "separate"]
# In the folder of a model: all weights in one file, or the index of those that are in several.
WEIGHTS, INDEX = "model.safetensors", "model.index.json"


def weights_name(files: Container[str]) -> str:
    """The file among a folder's whose hash tells which weights these are."""
    return INDEX if INDEX in files else WEIGHTS


class _RuleField:
    """A field that accepts a rule by name, file or object, and always holds the `Rule`."""

    default: Rule | str = "nesterov-lie-trotter"

    @overload
    def __get__(self, config: None, owner: type) -> str: ...
    @overload
    def __get__(self, config: object, owner: type) -> Rule: ...
    def __get__(self, config: object | None, owner: type) -> Rule | str:
        if config is None:
            return self.default  # where dataclasses look for it
        rule: Rule = config.__dict__["rule"]
        return rule

    def __set__(self, config: object, value: Rule | str) -> None:
        config.__dict__["rule"] = get_rule(value)


@dataclass(frozen=True)
class ModelConfig:
    """What a model is made of. The defaults are the paper's small model.

    Args:
        rule: the update rule: a name, a TOML file, a variation of either, or a `Rule`.
        n_layer: number of blocks.
        n_head: attention heads; divides ``d_model``.
        d_model: width of the streams.
        vocab_size: rows of the token table, padding included.
        valid_vocab: ids below this are real; the rest is padding and is never generated.
        context: the longest sequence.
        bias: biases in the oracles' projections and norms, as GPT-2 has them.
        gelu: ``exact``, or the ``tanh`` approximation, as GPT-2 has it.
        oracles: which pair of oracles: ``paper``, ``modern``, or one registered by the user.
        n_kv_head: key/value heads of grouped-query attention (``modern`` only).
        velocity_norm: LN_v ``shared`` by the substeps of a block, or ``separate`` for each.
    """

    rule: _RuleField = _RuleField()
    n_layer: int = 12
    n_head: int = 12
    d_model: int = 768
    vocab_size: int = 50304
    valid_vocab: int | None = None
    context: int = 1024
    bias: bool = False
    gelu: Gelu = "exact"
    oracles: str = "paper"
    n_kv_head: int | None = None
    velocity_norm: VelocityNorm = "shared"

    def __post_init__(self) -> None:
        optional = [n for n in ("valid_vocab", "n_kv_head") if getattr(self, n) is not None]
        for name in ("n_layer", "n_head", "d_model", "vocab_size", "context", *optional):
            object.__setattr__(self, name, size(name, getattr(self, name)))
        if self.d_model % self.n_head:
            near = [h for h in range(1, self.d_model + 1) if self.d_model % h == 0]
            best = min(near, key=lambda h: abs(h - self.n_head))
            multiple = self.n_head * max(1, round(self.d_model / self.n_head))
            raise ConfigError(
                f"d_model={self.d_model} is not divisible by n_head={self.n_head}: "
                f"take n_head={best}, or d_model={multiple}"
            )
        if not isinstance(self.oracles, str):
            raise ConfigError(f"oracles are named by text, not {brief(self.oracles)}")
        if self.valid_vocab is not None and self.valid_vocab > self.vocab_size:
            raise ConfigError(
                f"valid_vocab={self.valid_vocab} is more than vocab_size={self.vocab_size}"
            )
        for name, allowed in (
            ("gelu", ("exact", "tanh")),
            ("velocity_norm", ("shared", "separate")),
            ("bias", (True, False)),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name}={brief(getattr(self, name))} is not one of {allowed}")

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_head

    @property
    def real_vocab(self) -> int:
        """How many ids are real."""
        return self.vocab_size if self.valid_vocab is None else self.valid_vocab

    def to_dict(self) -> dict[str, Any]:
        """Plain data, the rule with its full text."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "rule": self.rule.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelConfig:
        known = [field.name for field in fields(cls)]
        if not isinstance(data, Mapping):
            raise ConfigError(f"the model must be an object, not {brief(data)}")
        for key in data:
            if key not in known:
                raise ConfigError(f"unknown field {brief(key)}{did_you_mean(str(key), known)}")
        values = dict(data)
        if isinstance(values.get("rule"), Mapping):
            values["rule"] = Rule.from_dict(values["rule"])
        return cls(**values)
