"""The interpreter against a Nesterov block written out by hand, on the same modules and input:
forward and backward. Outputs are equal to the bit, gradients to rounding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

import yuriiformer as yf
from benchmarks.measuring import Rounds, Row, subject, take_turns
from benchmarks.training_step import NARROW, NESTEROV, TINY, WIDE, Size
from yuriiformer.model.block import Block
from yuriiformer.model.context import Context

Hidden = Callable[[Tensor], Tensor]


def by_hand(block: Block, X, V, context):
    """Nesterov+Lie–Trotter as one would inline it."""
    c = block.coefficients()
    norm = block.velocity_norms[0]
    V = norm(c["beta"] * V + c["gamma"] * block.attn(X + c["mu"] * V, context))
    X = X + V
    V = norm(c["beta_half"] * V + c["gamma_half"] * block.mlp(X + c["mu_half"] * V, context))
    X = X + V
    return X, V


def hidden_by_hand(model: yf.YuriiFormer, tokens: Tensor) -> Tensor:
    positions = torch.arange(tokens.shape[1])
    streams = model.start_streams(tokens, positions)
    X, V = streams["X"], streams["V"]
    context = Context(positions)
    for block in model.blocks:
        X, V = by_hand(block, X, V, context)
    return model.norm(X)


def run(model: yf.YuriiFormer, hidden: Hidden, tokens: Tensor) -> tuple[Tensor, ...]:
    """The output and all gradients."""
    model.zero_grad(set_to_none=True)
    out = hidden(tokens)
    out.square().mean().backward()
    return out.detach(), *(p.grad for p in model.parameters() if p.grad is not None)


def interpreter(size: Size, *, quick: bool) -> Rounds:
    size = TINY if quick else size
    torch.manual_seed(0)
    model, (tokens, _) = size.model(NESTEROV), size.tokens()
    ways = {
        "interpreter": partial(run, model, model.hidden, tokens),
        "by hand": partial(run, model, partial(hidden_by_hand, model), tokens),
    }
    one, two = ([each.clone() for each in way()] for way in ways.values())
    assert len(one) == len(two) > 10
    assert all(map(torch.equal, one, two))
    return take_turns(ways, 3 if quick else 15 if size.width > 200 else 60, warm=2)


for size in (WIDE, NARROW):
    subject(
        f"interpreter-{size.width}",
        Row(
            f"Time of the interpreter: Nesterov, {size}",
            "the block written by hand",
            ("interpreter", "by hand"),
        ),
    )(partial(interpreter, size))
