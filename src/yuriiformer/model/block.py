"""One block: a rule's program over two oracles, and its coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yuriiformer.errors import InputError, RuleError
from yuriiformer.methods.coefficients import Coefficient, Range
from yuriiformer.methods.evaluation import LAYER_NORM_EPS
from yuriiformer.methods.frugal import can_be_frugal, can_overwrite, forget, run_frugally, run_lines
from yuriiformer.methods.interpreter import Observer, Oracle, run_program
from yuriiformer.methods.passes import Program
from yuriiformer.methods.references import get_rule
from yuriiformer.methods.rule import Rule
from yuriiformer.model.config import ModelConfig, VelocityNorm
from yuriiformer.model.context import BlockKVCache, Context
from yuriiformer.model.oracles import OraclePair


class RuleBlock(nn.Module):
    """One block of a rule around any two modules: streams in, streams out, by name.

    Args:
        rule: a name, a TOML file, a variation of either, or a `Rule`.
        attn, mlp: the oracles, called with one tensor (..., d_model); they answer with one of the
            same shape. A norm before an oracle is part of it.
        d_model, n_head: the sizes of coefficients per channel and per head, and of LN_v.
        layer, n_layer: where the block stands, for coefficients that start differently over depth.
        velocity_norm: LN_v ``shared`` by all its calls, or ``separate`` for each.
        program: the steps to run; all of the rule's if not given.

    ``block.coefficients()`` gives the coefficients by name, each within its range.
    """

    def __init__(
        self,
        rule: Rule | str,
        attn: nn.Module,
        mlp: nn.Module,
        *,
        d_model: int,
        n_head: int = 1,
        layer: int = 0,
        n_layer: int = 1,
        velocity_norm: VelocityNorm = "shared",
        program: Program | None = None,
    ) -> None:
        super().__init__()
        rule = get_rule(rule)
        self.program = program or rule.program
        self.attn, self.mlp = attn, mlp
        norms = min(1, rule.norm_calls) if velocity_norm == "shared" else rule.norm_calls
        self.velocity_norms: Sequence[nn.LayerNorm] = nn.ModuleList(  # type: ignore[assignment]
            nn.LayerNorm(d_model, eps=LAYER_NORM_EPS, bias=False) for _ in range(norms)
        )
        self.norm_of_call = tuple(i % norms for i in range(rule.norm_calls))
        self.coefficients = Coefficients(rule, layer, n_layer, n_head, d_model)

    def forward(self, streams: Mapping[str, Tensor]) -> dict[str, Tensor]:
        missing = [name for name in self.program.inputs if name not in streams]
        if missing:
            raise InputError(f"the rule carries a stream {missing[0]!r} too: give it a start")
        oracles = {"attn": lambda Y, _: self.attn(Y), "mlp": lambda Y, _: self.mlp(Y)}
        forget(streams)
        return self.run(streams, oracles)

    def run(
        self,
        streams: Mapping[str, Tensor],
        oracles: Mapping[str, Oracle],
        observer: Observer | None = None,
        coefficients: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The program with these oracles; streams keep their precision. ``coefficients`` if they
        have been read already."""
        norms = [self.velocity_norms[i] for i in self.norm_of_call]
        coefficients = self.coefficients() if coefficients is None else coefficients
        if observer is None and can_be_frugal(self.program, streams):
            after = run_frugally(self.program, streams, oracles, coefficients, norms)
        else:
            each = run_lines if observer is None and can_overwrite(streams) else None
            after = run_program(self.program, streams, oracles, coefficients, norms, observer, each)
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


class Block(RuleBlock):
    """A block of a model, with oracles that are called ``oracle(Y, context)``. The layer's index is
    used only in the constructor, so that all blocks with the same program share one compiled
    graph."""

    def __init__(self, config: ModelConfig, pair: OraclePair, program: Program, layer: int) -> None:
        super().__init__(
            config.rule,
            pair.attention(config),
            pair.mlp(config),
            d_model=config.d_model,
            n_head=config.n_head,
            layer=layer,
            n_layer=config.n_layer,
            velocity_norm=config.velocity_norm,
            program=program,
        )

    def forward(  # type: ignore[override]
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

        coefficients = None if cache is None else cache.coefficients
        return self.run(streams, {"attn": attn, "mlp": mlp}, observer, coefficients)


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

    def __init__(self, rule: Rule, layer: int, n_layer: int, n_head: int, d_model: int) -> None:
        super().__init__()
        self.coefficients = dict(rule.coefficients)
        self.d_head = d_model // n_head
        sizes = {"scalar": 1, "head": n_head, "channel": d_model}
        self.starts: dict[str, float] = {}
        for name, spec in self.coefficients.items():
            try:
                value = spec.value(layer, n_layer)
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
