"""Bytes that a micro-batch moves through the blocks, forward and backward.

Two counts: without fusion, each operation reading its inputs and writing its outputs; and with each
segment of the rule between two oracle calls fused to one pass, as a compiler may do it. Products of
matrices are counted separately: on a GPU they are bound by arithmetic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from yuriiformer.costs.flops import fake_block, fake_oracle
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.methods.passes import Program, Segment, oracle_calls
from yuriiformer.methods.tree import Binary, Call, Name, walk
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.device import autocast

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Traffic:
    """Bytes, for all blocks."""

    products: float
    other: float  # as the operations stand
    fused: float  # of the other, with the rule's arithmetic fused


def traffic(
    config: ModelConfig, sequences: int, dtype: torch.dtype, stream: torch.dtype = torch.float32
) -> Traffic:
    """The traffic of one micro-batch of full sequences."""
    programs = config.rule.programs(config.n_layer)
    products = other = fused = 0.0
    shape = replace(config, n_layer=1, vocab_size=8, valid_vocab=None)
    for program, count in Counter(programs).items():
        found = _block(shape, program, sequences, dtype, stream)
        products, other = products + count * found[0], other + count * found[1]
        fused += count * fused_bytes(config, program, sequences, stream)
    alone = replace(shape, rule=ModelConfig().rule)
    for oracle, count in oracle_calls(programs).items():
        fused += count * _oracle(alone, oracle, sequences, dtype, stream)
    return Traffic(products, other, fused)


@cache
def _block(
    config: ModelConfig, program: Program, sequences: int, dtype: torch.dtype, stream: torch.dtype
) -> tuple[int, int]:
    """Products, and the rest."""
    with FakeTensorMode():
        block, streams, context = fake_block(config, program, sequences, stream)
        upstream = torch.empty_like(streams["X"])
        with Watcher() as watcher:
            with autocast(dtype, CPU):
                after = list(block(streams, context).values())
            torch.autograd.backward(after, [upstream] * len(after))
    return watcher.products, watcher.other


@cache
def _oracle(
    config: ModelConfig, oracle: str, sequences: int, dtype: torch.dtype, stream: torch.dtype
) -> int:
    """Bytes of one call, beside its products of matrices."""
    with FakeTensorMode():
        module, Y, _ = fake_oracle(config, oracle, sequences, stream)
        upstream = torch.empty_like(Y)
        with Watcher() as watcher:
            with autocast(dtype, CPU):
                positions = torch.arange(config.context)  # counted with the call
                answer: Tensor = module(Y, Context(positions)).to(stream)
            torch.autograd.backward(answer, upstream)
    return int(watcher.other)


def fused_bytes(
    config: ModelConfig, program: Program, sequences: int, stream: torch.dtype
) -> float:
    """The rule's own part of a block, each stretch between oracle calls in one pass.

    Forward it reads its inputs and writes its outputs; backward it reads its outputs' gradients
    and writes its inputs', and where anything but sums is computed it reads its inputs once more.
    """
    # Coefficients and norms promote to float32; streams are cast back only between blocks.
    raised = bool(config.rule.coefficients or config.rule.norm_calls)
    item = torch.float32.itemsize if raised else stream.itemsize
    size = sequences * config.context * config.d_model * item
    wide = set(config.rule.streams)
    total = 0
    for segment in program.segments:
        total += _tensors(segment, wide)
        if segment.query is not None:
            wide.add(segment.query.target)
    return float(total * size)


def _tensors(segment: Segment, wide: set[str]) -> int:
    """How many tensors a segment moves; ``wide`` names those that are not coefficients."""
    read = sum(name in wide for name in segment.inputs)
    wide.update(step.target for step in segment.assigns)
    # Whether the oracle's argument is computed here, or is an existing tensor.
    argument = segment.query is not None and not isinstance(segment.query.argument, Name)
    if not segment.assigns and not argument:
        return 0
    return (3 if _multiplies(segment) else 2) * read + 2 * (len(segment.outputs) + argument)


def _multiplies(segment: Segment) -> bool:
    """Whether the backward pass needs the inputs."""
    values = [step.value for step in segment.assigns]
    values += [segment.query.argument] if segment.query is not None else []
    return any(
        isinstance(node, Call) or (isinstance(node, Binary) and node.op in "*/")
        for value in values
        for node in walk(value)
    )
