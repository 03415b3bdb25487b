"""Floating-point operations of a model, composed from what one call of each oracle costs.

Products of matrices only, as torch's counter has it; attention's without regard to its mask (a
causal kernel that skips what is hidden does about half of that part). What else is computed, the
rule's arithmetic, norms and activations, is counted apart in `elementwise`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from yuriiformer.costs.op_counter import NORM, Watcher
from yuriiformer.errors import ConfigError, YuriiError, one_line
from yuriiformer.methods.parse import NORMS
from yuriiformer.methods.passes import Program, Query, oracle_calls
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Call, Expr, Name, Number, children
from yuriiformer.model.block import Block
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.oracles import oracle_pair

aten = torch.ops.aten


def _attention(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> int:
    """From shapes (batch, head, token, width): queries with keys, scores with values."""
    batch, heads, rows, width = query
    return int(2 * batch * heads * rows * key[2] * (width + value[3]))


def _attention_backward(
    grad: Any, query: Any, key: Any, value: Any, *rest: Any, **options: Any
) -> int:
    """Five products for two: the scores again, and two for each of them."""
    return _attention(query, key, value) * 5 // 2


# torch's counter does not know the CPU's attention kernel; it does the same work as the GPU's.
KERNELS: dict[Any, Any] = {
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def counter() -> FlopCounterMode:
    """torch's counter, with the CPU's attention kernel."""
    return FlopCounterMode(display=False, custom_mapping=KERNELS)


@dataclass(frozen=True)
class Work:
    """FLOPs of one part of the model, per token."""

    forward: float = 0.0
    backward: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.forward + other.forward, self.backward + other.backward)

    def times(self, count: float) -> Work:
        return Work(self.forward * count, self.backward * count)

    @property
    def both(self) -> float:
        return self.forward + self.backward


@dataclass(frozen=True)
class ModelWork:
    """FLOPs of a model per token, forward and backward."""

    projections: Work  # of attention
    scores: Work  # of attention: queries with keys, and the mix of the values
    mlp: Work
    output: Work
    recomputed: float  # in the backward pass, where only the streams are kept
    elementwise: float  # forward, beside the products

    @property
    def total(self) -> Work:
        return self.projections + self.scores + self.mlp + self.output


def model_work(config: ModelConfig, *, recompute: bool = False) -> ModelWork:
    """Counted for full sequences."""
    programs = config.rule.programs(config.n_layer)
    calls = oracle_calls(programs)
    # What the oracles' cost depends on, so that rules share one count.
    fixed = replace(config, rule=ModelConfig().rule, vocab_size=8, valid_vocab=None)
    attention, mlp = _oracle_work(fixed, "attn"), _oracle_work(fixed, "mlp")
    size = float(2 * config.vocab_size * config.d_model)
    again = 0.0
    if recompute:
        distinct = Counter(programs)
        again = sum(_recomputed(config, program) * n for program, n in distinct.items())
    return ModelWork(
        projections=attention.products.times(calls["attn"]),
        scores=attention.kernel.times(calls["attn"]),
        mlp=(mlp.products + mlp.kernel).times(calls["mlp"]),
        output=Work(size, 2 * size),
        recomputed=again,
        elementwise=rule_elementwise(config)
        + attention.elementwise * calls["attn"]
        + mlp.elementwise * calls["mlp"]
        + (NORM + len(config.rule.streams)) * config.d_model,
    )


def muon_work(shapes: list[tuple[int, int]], steps: int) -> float:
    """Newton–Schulz on matrices of these shapes: three products per step, on the smaller side."""
    total = 0
    for rows, columns in shapes:
        r, c = min(rows, columns), max(rows, columns)
        total += steps * (4 * r * r * c + 2 * r**3)
    return float(total)


@dataclass(frozen=True)
class OracleWork:
    """FLOPs of one oracle call per token."""

    products: Work
    kernel: Work
    elementwise: float


@cache
def _oracle_work(config: ModelConfig, oracle: str) -> OracleWork:
    """One call of one oracle, forward and backward: so any pair of oracles can be counted."""
    try:
        with FakeTensorMode():
            module, Y, context = fake_oracle(config, oracle)
            with counter() as forward, Watcher() as watcher:
                answer: Tensor = module(Y, context)
            with counter() as backward:
                torch.autograd.backward(answer, torch.empty_like(answer))
    except YuriiError:
        raise
    except Exception as error:  # a third-party oracle may read values
        raise ConfigError(
            f"oracles {config.oracles!r} cannot be counted without running them "
            f"({one_line(error):.100}): a plan needs oracles that do not read their tensors' values"
        ) from None
    one, two = (_split(each, config.context) for each in (forward, backward))
    elementwise = watcher.elementwise / config.context
    return OracleWork(Work(one[0], two[0]), Work(one[1], two[1]), elementwise)


def fake_oracle(
    config: ModelConfig, oracle: str, sequences: int = 1, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, Tensor, Context]:
    """An oracle and its arguments, made of fake tensors in a FakeTensorMode."""
    pair, shape = oracle_pair(config), (sequences, config.context, config.d_model)
    module = (pair.attention if oracle == "attn" else pair.mlp)(config)
    Y = torch.empty(shape, dtype=dtype, requires_grad=True)
    return module, Y, Context(torch.arange(config.context))


def fake_block(
    config: ModelConfig, program: Program, sequences: int = 1, dtype: torch.dtype = torch.float32
) -> tuple[Block, dict[str, Tensor], Context]:
    """The same of a block, without gradients of what never reaches the logits."""
    block = Block(config, oracle_pair(config), program, 0)
    for name in block.dead_parameters():
        block.get_parameter(name).requires_grad_(False)
    shape = (sequences, config.context, config.d_model)
    streams = {s: torch.empty(shape, dtype=dtype, requires_grad=True) for s in config.rule.streams}
    return block, streams, Context(torch.arange(config.context))


def _split(found: FlopCounterMode, tokens: int) -> tuple[float, float]:
    """Products of matrices, and attention's kernel."""
    counts = found.get_flop_counts().get("Global", {})
    kernel = sum(n for op, n in counts.items() if "attention" in str(op))
    return (found.get_total_flops() - kernel) / tokens, kernel / tokens


@cache
def _recomputed(config: ModelConfig, program: Program) -> float:
    """What a block computes again in the backward pass, per token.

    Counted, not composed: torch stops recomputing as soon as the backward pass has all it needs, so
    a block's last product is often skipped.
    """
    found = []
    for again in (True, False):
        with FakeTensorMode():
            block, streams, context = fake_block(config, program)
            run = partial(checkpoint, block, use_reentrant=False) if again else block
            with counter() as count:
                values = list(run(streams, context).values())
                torch.autograd.backward(values, [torch.empty_like(each) for each in values])
        found.append(count.get_total_flops() / config.context)
    return float(found[0] - found[1])


def rule_elementwise(config: ModelConfig) -> float:
    """The rule's own arithmetic over all layers, per token: one per element that an operation
    writes, `NORM` for a norm."""
    rule = config.rule
    programs = rule.programs(config.n_layer)
    return float(config.d_model * sum(_arithmetic(rule, program) for program in programs))


def _arithmetic(rule: Rule, program: Program) -> int:
    """Operations per element; arithmetic on coefficients alone is free."""
    wide = set(rule.streams)
    total = 0
    for step in program.steps:
        is_wide, count = _operations(step.value, wide)
        total += count
        if is_wide or isinstance(step, Query):
            wide.add(step.target)
    return total


def _operations(node: Expr, wide: set[str]) -> tuple[bool, int]:
    if isinstance(node, Name):
        return node.id in wide, 0
    if isinstance(node, Number):
        return False, 0
    parts = [_operations(child, wide) for child in children(node)]
    is_wide = any(part[0] for part in parts)
    count = sum(part[1] for part in parts)
    if not is_wide:
        return False, 0
    norm = isinstance(node, Call) and node.function in NORMS
    return True, count + (NORM if norm else 1)
