"""From a preset and flags to a configuration: what `train` and `plan` share."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_type_hints

from yuriiformer.config import TrainConfig, read_config
from yuriiformer.errors import ConfigError
from yuriiformer.methods.references import get_rule
from yuriiformer.model.config import ModelConfig
from yuriiformer.training.presets import preset

RULE = ModelConfig().rule.name

# The rule has a flag of its own, the vocabulary is the data's. tyro reads the help of each field
# from the docstring.
_HINTS = get_type_hints(ModelConfig)
if TYPE_CHECKING:
    Model = ModelConfig
else:
    Model = make_dataclass(
        "Model",
        [
            (each.name, _HINTS[each.name], field(default=each.default))
            for each in fields(ModelConfig)
            if each.name not in ("rule", "vocab_size", "valid_vocab")
        ],
        frozen=True,
    )
    Model.__doc__ = ModelConfig.__doc__


def model_flags(base: ModelConfig) -> Model:
    """The fields that are flags, as a configuration has them."""
    return Model(**{each.name: getattr(base, each.name) for each in fields(Model)})


def model_config(flags: Model, base: ModelConfig, rule: str | None) -> ModelConfig:
    """The configuration with the flags applied; its own rule is kept without reading a file."""
    values = {each.name: getattr(flags, each.name) for each in fields(flags)}
    own = rule is None or rule == base.rule.name
    return replace(base, **values, rule=base.rule if own else get_rule(rule or ""))


@dataclass(frozen=True)
class First:
    """The flags that decide what the others' defaults are."""

    preset: str | None = None
    config: Path | None = None
    rule: str | None = None
    out: Path | None = None
    resume: bool = False


def base_config(first: First, usual: str) -> TrainConfig:
    """The whole configuration that flags change fields of: a file's, or a preset's."""
    if first.config is None:
        return preset(first.preset or usual, first.rule or RULE)
    if first.preset is not None:
        raise ConfigError("--preset and --config both give a whole configuration: choose one")
    return read_config(first.config)
