"""One block: a rule's program over the two oracles of one layer, and its coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yuriiformer.errors import RuleError
from yuriiformer.methods.coefficients import Coefficient, Range
from yuriiformer.methods.interpreter import LAYER_NORM_EPS, Observer, run_program
from yuriiformer.methods.passes import Program
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import BlockKVCache, Context
from yuriiformer.model.oracles import OraclePair


class Block(nn.Module):
    """Streams in, streams out. The layer's index is used only in the constructor, so that all
    blocks with the same program share one compiled graph."""

    def __init__(self, config: ModelConfig, pair: OraclePair, program: Program, layer: int) -> None:
        super().__init__()
        rule = config.rule
        self.program = program
        self.attn = pair.attention(config)
        self.mlp = pair.mlp(config)
        norms = min(1, rule.norm_calls) if config.velocity_norm == "shared" else rule.norm_calls
        self.velocity_norms = nn.ModuleList(
            nn.LayerNorm(config.d_model, eps=LAYER_NORM_EPS, bias=False) for _ in range(norms)
        )
        self.norm_of_call = tuple(i % norms for i in range(rule.norm_calls))
        self.coefficients = Coefficients(config, layer)

    def forward(
        self,
        streams: dict[str, Tensor],
        context: Context,
        observer: Observer | None = None,
        cache: BlockKVCache | None = None,
    ) -> dict[str, Tensor]:
        # Under autocast an oracle answers in bfloat16; the streams stay in their own precision.
        def attn(Y: Tensor, call: int) -> Tensor:
            slot = None if cache is None else cache.call(call)
            own = Context(context.positions, call, slot, context.mask, context.causal)
            answer: Tensor = self.attn(Y, own)
            return answer.to(Y.dtype)

        def mlp(Y: Tensor, call: int) -> Tensor:
            answer: Tensor = self.mlp(Y, Context(context.positions, call))
            return answer.to(Y.dtype)

        after = run_program(
            self.program,
            streams,
            {"attn": attn, "mlp": mlp},
            self.coefficients(),
            [self.velocity_norms[i] for i in self.norm_of_call],
            observer,
        )
        # Coefficients and norms are float32 and may promote bfloat16 streams; between blocks a
        # stream keeps its precision.
        dtype = streams["X"].dtype
        return {name: value.to(dtype) for name, value in after.items()}

    def dead_parameters(self) -> Iterator[str]:
        """Parameters that this block's program does not use: they never get a gradient."""
        used = {f"{oracle}." for oracle in self.program.oracles()}
        used |= {f"velocity_norms.{self.norm_of_call[i]}." for i in self.program.norm_calls()}
        used |= {f"coefficients.raw_{name}." for name in self.program.reads()}
        for name, _ in self.named_parameters():
            if not f"{name}.".startswith(tuple(used)):
                yield name


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
