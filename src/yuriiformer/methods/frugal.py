"""Runs a program so that little is kept for the backward pass.

Autograd keeps what each operation reads. Between two oracle calls almost all of it can be computed
again from the oracles' answers and from the streams at the start, and that is cheap: no products of
matrices. So each segment is one autograd function. It keeps its inputs, or where these were made by
another segment, a reference to that segment; backward computes the rest again, once. What oracles
keep of their arguments is replaced by such references too.

Values and gradients are those of `run_program` under autograd. Nesterov's rule with Lie–Trotter
splitting then keeps 1.06 times what gradient descent keeps, instead of 1.33 times. On a CPU it also
saves the time that fresh memory takes, about what computing again costs (benchmarks/README.md).
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from yuriiformer.methods.evaluation import run_segment
from yuriiformer.methods.interpreter import Norm, Oracle, functions, run_program
from yuriiformer.methods.passes import Program, Segment
from yuriiformer.methods.straight import Backwards, Straight, Value, run, straighten

_hooks: Any = torch._C._autograd  # there is no public way to ask who else uses them
LARGE = 2**18  # numbers in a stream: below that, computing again takes longer than it is worth
ORIGIN = "_yurii_origin"  # attribute of a tensor that can be made again: (its run, its line)


class SegmentRun:
    """One run of a segment, which can be repeated."""

    __slots__ = ("__weakref__", "code", "inputs", "norms", "values")

    def __init__(
        self, code: Straight, inputs: Mapping[str, Any], norms: Sequence[nn.LayerNorm]
    ) -> None:
        self.code, self.norms = code, norms
        self.inputs = inputs  # by name: a value, or where to get it
        self.values: dict[str, Value] | None = None

    def again(self) -> dict[str, Value]:
        """All values, computed once and kept until this run is released."""
        if self.values is None:
            with torch.no_grad():
                inputs = {name: again(each) for name, each in self.inputs.items()}
                self.values = run(self.code, inputs, self.norms)
        return self.values


def origin(tensor: Any) -> Any:
    """Where to get a tensor again: itself, or the run and the line that make it."""
    return getattr(tensor, ORIGIN, tensor)


def again(place: Any) -> Any:
    if isinstance(place, SegmentRun):
        return torch.empty(0)
    if isinstance(place, tuple):
        made, line = place
        return made.again()[line]
    return place


def forget(streams: Mapping[str, Tensor]) -> None:
    """From here on these tensors themselves are kept, not how to make them again."""
    for tensor in streams.values():
        if hasattr(tensor, ORIGIN):
            delattr(tensor, ORIGIN)


def same_origin(tensor: Tensor, other: Tensor) -> None:
    """Let ``other``, which holds the same numbers, be made again as ``tensor`` can be."""
    if hasattr(tensor, ORIGIN):
        setattr(other, ORIGIN, getattr(tensor, ORIGIN))


class _Segment(torch.autograd.Function):
    """One segment of the inputs ``names``; after them come the gains of its norms."""

    @staticmethod
    def forward(ctx: Any, own: SegmentRun, names: tuple[str, ...], *tensors: Tensor) -> Any:
        inputs = {**own.inputs, **dict(zip(names, tensors, strict=False))}
        values = run(own.code, inputs, own.norms)
        # The run is released with what is saved, so ctx itself only points to it.
        token = tensors[0].new_empty(0)
        setattr(token, ORIGIN, own)
        ctx.save_for_backward(token)
        ctx.run, ctx.names = weakref.ref(own), names
        ctx.set_materialize_grads(False)
        return tuple(values[line] for line in own.code.made())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        _ = ctx.saved_tensors  # says so if they are released already
        if torch.is_grad_enabled():
            raise RuntimeError(
                "second derivatives need everything that the forward pass computed: run it under "
                "torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)"
            )
        own: SegmentRun = ctx.run()
        needs = ctx.needs_input_grad[2:]
        wanted = frozenset(n for n, need in zip(ctx.names, needs, strict=False) if need)
        back = Backwards(own.code, own.again(), own.norms, wanted)
        given = zip(own.code.made(), gradients, strict=True)
        back.run({line: gradient for line, gradient in given if gradient is not None})
        weights = [back.weights.get(number) for number in _weights(own.code)]
        return None, None, *(back.gradients.get(name) for name in ctx.names), *weights


def _weights(code: Straight) -> list[int]:
    """The norms of a segment, each once; their gains are inputs too."""
    return list(dict.fromkeys(code.norms()))


def run_lines(
    segment: Segment,
    values: dict[str, Value],
    norms: Sequence[Norm],
) -> Tensor | None:
    """`run_segment` without autograd: temporary buffers are used again."""
    code = straighten(segment)
    known = run(code, values, norms)  # type: ignore[arg-type]
    values.update({name: known[line] for name, line in code.outputs})
    return None if code.argument is None else known[code.argument]  # type: ignore[return-value]


def run_frugally(
    program: Program,
    streams: Mapping[str, Tensor],
    oracles: Mapping[str, Oracle],
    coefficients: Mapping[str, Value],
    norms: Sequence[nn.LayerNorm],
) -> dict[str, Tensor]:
    """What `run_program` gives, keeping less for the backward pass."""
    with saved_tensors_hooks(origin, again):
        return run_program(program, streams, oracles, coefficients, norms, each=_run_segment)


def can_overwrite(streams: Mapping[str, Tensor]) -> bool:
    """Whether nothing remembers temporary buffers, so that `run_lines` can be used."""
    return (
        not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and streams["X"].dtype == torch.float32
    )


def can_be_frugal(program: Program, streams: Mapping[str, Tensor]) -> bool:
    """Whether there is something to save, and nothing else changes the backward pass: a compiler,
    activation checkpointing, other users of the hooks, transformations of functions."""
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and streams["X"].numel() >= LARGE
        and any(straighten(segment).read_back for segment in program.segments)
        and _hooks._saved_tensors_hooks_is_enabled()
        and _hooks._top_saved_tensors_default_hooks(True) is None
        and all(tensor.dtype == torch.float32 for tensor in streams.values())
    )


def _run_segment(
    segment: Segment,
    values: dict[str, Value],
    norms: Sequence[Norm],
) -> Tensor | None:
    code = straighten(segment)
    tensors = {n: v for n in code.inputs if isinstance(v := values[n], Tensor)}
    if not code.read_back or any(t.dtype != torch.float32 for t in tensors.values()):
        # Backward reads nothing of it.
        plain: Tensor | None = run_segment(segment, values, functions(norms))
        return plain
    gains = [norms[number].weight for number in _weights(code)]  # type: ignore[attr-defined]
    own = SegmentRun(code, {n: origin(values[n]) for n in code.inputs}, norms)  # type: ignore[arg-type]
    found = _Segment.apply(own, tuple(tensors), *tensors.values(), *gains)  # type: ignore[no-untyped-call]
    made = dict(zip(code.made(), found, strict=True))
    for line, tensor in made.items():
        setattr(tensor, ORIGIN, (own, line))
    known: dict[str, Any] = {**values, **made}
    values.update({name: known[line] for name, line in code.outputs})
    return None if code.argument is None else known[code.argument]
