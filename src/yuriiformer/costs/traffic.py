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

from yuriiformer.costs.flops import oracle_calls
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.methods.passes import Program, Query, Segment
from yuriiformer.methods.tree import Binary, Call, Name, walk
from yuriiformer.model.block import Block
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.device import autocast
from yuriiformer.model.oracles import oracle_pair

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Traffic:
    """Bytes, for all blocks."""

    products: float
    other: float  # as the operations stand
    fused: float  # of the other, with the rule's arithmetic fused

    @property
    def eager(self) -> float:
        return self.products + self.other


def traffic(
    config: ModelConfig, sequences: int, dtype: torch.dtype, stream: torch.dtype = torch.float32
) -> Traffic:
    """Of one micro-batch of full sequences."""
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
        block = Block(config, oracle_pair(config), program, 0)
        for name in block.dead_parameters():
            block.get_parameter(name).requires_grad_(False)
        shape = (sequences, config.context, config.d_model)
        streams = {
            name: torch.empty(shape, dtype=stream, requires_grad=True)
            for name in config.rule.streams
        }
        upstream = torch.empty(shape, dtype=stream)
        context = Context(torch.arange(config.context))
        with Watcher() as watcher:
            with autocast(dtype, CPU):
                after = list(block(streams, context).values())
            torch.autograd.backward(after, [upstream] * len(after))
    return watcher.products, watcher.other


@cache
def _oracle(
    config: ModelConfig, oracle: str, sequences: int, dtype: torch.dtype, stream: torch.dtype
) -> int:
    """Of one call, beside its products of matrices."""
    pair = oracle_pair(config)
    with FakeTensorMode():
        module = (pair.attention if oracle == "attn" else pair.mlp)(config)
        shape = (sequences, config.context, config.d_model)
        Y = torch.empty(shape, dtype=stream, requires_grad=True)
        upstream = torch.empty(shape, dtype=stream)
        with Watcher() as watcher:
            with autocast(dtype, CPU):
                answer: Tensor = module(Y, Context(torch.arange(config.context))).to(stream)
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
    written = len(segment.outputs)
    if _is_made_here(segment.query):
        written += 1
    if not segment.assigns and not _is_made_here(segment.query):
        return 0  # an oracle called on an existing tensor
    return (3 if _multiplies(segment) else 2) * read + 2 * written


def _multiplies(segment: Segment) -> bool:
    """Whether the backward pass needs the inputs."""
    values = [step.value for step in segment.assigns]
    values += [segment.query.argument] if segment.query is not None else []
    return any(
        isinstance(node, Call) or (isinstance(node, Binary) and node.op in "*/")
        for value in values
        for node in walk(value)
    )


def _is_made_here(query: Query | None) -> bool:
    """Whether the oracle's argument is computed, not just handed on."""
    return query is not None and not isinstance(query.argument, Name)
