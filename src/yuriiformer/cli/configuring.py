"""From a preset and flags to a configuration: what `train` and `plan` share."""

from __future__ import annotations

from dataclasses import field, fields, make_dataclass, replace
from typing import TYPE_CHECKING, get_type_hints

from yuriiformer.methods.references import get_rule
from yuriiformer.model.config import ModelConfig

RULE, PRESET = ModelConfig().update.name, "tales-tiny"

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
    """What the flags say, the rest as it was; a configuration's own rule needs no file again."""
    values = {each.name: getattr(flags, each.name) for each in fields(flags)}
    own = rule is None or rule == base.update.name
    return replace(base, **values, rule=base.rule if own else get_rule(rule or ""))
