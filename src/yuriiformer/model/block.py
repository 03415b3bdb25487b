"""One block: a rule's program over the two oracles of one layer."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from yuriiformer.methods.interpreter import LAYER_NORM_EPS, Observer, run_program
from yuriiformer.methods.passes import Program
from yuriiformer.model.coefficients import Coefficients
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
