"""The coefficients of one block as parameters: stored unconstrained, read within their range."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yuriiformer.errors import RuleError
from yuriiformer.methods.coefficients import Coefficient, Range
from yuriiformer.model.config import ModelConfig

# Stored value -> coefficient, and back.
READ: dict[Range, Callable[[Tensor], Tensor]] = {
    "unit": torch.sigmoid,
    "positive": F.softplus,
    "real": lambda raw: raw,
}
STORE: dict[Range, Callable[[float], float]] = {
    "unit": lambda value: math.log(value) - math.log1p(-value),
    "positive": lambda value: value + math.log(-math.expm1(-value)),  # inverse of softplus
    "real": lambda value: value,
}


class Coefficients(nn.Module):
    """Called, it gives the block's coefficients by name, each within its range.

    A learned one is a parameter ``raw_<name>`` of at least one dimension (sharded training cannot
    split a 0-dimensional one); a fixed one is a buffer with the value itself. It is saved like
    a parameter, so that a model built on the meta device is complete after loading.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        rule = config.rule
        self.coefficients = dict(rule.coefficients)
        self.d_head = config.d_head
        sizes = {"scalar": 1, "head": config.n_head, "channel": config.d_model}
        self.starts: dict[str, float] = {}
        for name, spec in self.coefficients.items():
            try:
                value = spec.value(layer, config.n_layer)
            except RuleError as error:
                raise RuleError(f"rule {rule.name!r}: coefficient {name!r}: {error}") from None
            self.starts[name] = STORE[spec.range](value) if spec.learned else value
            tensor = torch.full((sizes[spec.shape],), self.starts[name])
            if spec.learned:
                self.register_parameter(f"raw_{name}", nn.Parameter(tensor))
            else:
                self.register_buffer(f"raw_{name}", tensor)

    def forward(self) -> dict[str, Tensor]:
        return {name: self.read(name, spec) for name, spec in self.coefficients.items()}

    def read(self, name: str, spec: Coefficient) -> Tensor:
        raw: Tensor = getattr(self, f"raw_{name}")
        value = READ[spec.range](raw) if spec.learned else raw
        return value.repeat_interleave(self.d_head) if spec.shape == "head" else value
