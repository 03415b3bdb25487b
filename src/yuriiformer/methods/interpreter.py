"""The one interpreter: runs any rule's block on tensors.

`evaluation` walks the rule's steps; here is what its functions mean to torch. Nothing depends on a
rule's name. The order of floating-point operations is the order of the text, so a block written out
by hand gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from yuriiformer.errors import InputError
from yuriiformer.methods import evaluation
from yuriiformer.methods.evaluation import LAYER_NORM_EPS, run_steps
from yuriiformer.methods.parse import ELEMENTWISE
from yuriiformer.methods.passes import Program, Segment, Step
from yuriiformer.methods.references import get_rule
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Call, Expr

Oracle = Callable[[Tensor, int], Tensor]  # (argument, number of the call in the block) -> answer
Norm = Callable[[Tensor], Tensor]
Value = Tensor | float
Observer = Callable[[Step, Tensor, Tensor | None], None]
"""Called after every step with the step, its value and, for an oracle call, its argument."""

SegmentRunner = Callable[[Segment, dict[str, Value], Sequence[Norm]], Tensor | None]

_ELEMENTWISE: dict[str, Callable[..., Tensor]] = {
    name: getattr(torch, name)
    for name in ELEMENTWISE  # torch has them under the same names
}


def unit(x: Tensor) -> Tensor:
    """LayerNorm over the last dimension without gain or bias."""
    return F.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPS)


def run_program(
    program: Program,
    streams: Mapping[str, Tensor],
    oracles: Mapping[str, Oracle],
    coefficients: Mapping[str, Value],
    norms: Sequence[Norm],
    observer: Observer | None = None,
    each: SegmentRunner | None = None,
) -> dict[str, Tensor]:
    """One block: streams in, the streams that the program gives out.

    ``norms[i]`` is the LN_v of the i-th ``norm`` call; sharing one is repeating it. ``each`` runs a
    segment, if not `run_segment`.
    """
    watch = None if observer is None else _of_tensors(observer)
    own = None if each is None else partial(_run_each, each, norms)
    return run_steps(program, streams, oracles, coefficients, functions(norms), watch, own)


def _run_each(
    each: SegmentRunner, norms: Sequence[Norm], segment: Segment, values: dict[str, Value]
) -> Tensor | None:
    return each(segment, values, norms)


def _of_tensors(observer: Observer) -> evaluation.Observer:
    """An observer sees no plain numbers: they are arithmetic on coefficients."""

    def watch(step: Step, value: Value, argument: Tensor | None) -> None:
        if isinstance(value, Tensor):
            observer(step, value, argument)

    return watch


def functions(norms: Sequence[Norm]) -> evaluation.Function:
    """What a rule's functions mean on tensors."""

    def function(node: Call, arguments: list[Value]) -> Tensor:
        if node.function == "norm":
            return norms[node.number](_tensor(arguments[0]))
        if node.function == "unit":
            return unit(_tensor(arguments[0]))
        return apply_elementwise(node.function, arguments)

    return function


def apply_elementwise(function: str, arguments: Sequence[Value]) -> Tensor:
    return _ELEMENTWISE[function](*map(_tensor, arguments))


def evaluate(node: Expr, values: Mapping[str, Value], norms: Sequence[Norm]) -> Value:
    """The value of an oracle-free expression."""
    value: Value = evaluation.evaluate(node, values, functions(norms))
    return value


def _tensor(value: Value) -> Tensor:
    """A plain number as a 0-dimensional tensor, which changes neither shape nor precision."""
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def run_rule(
    rule: Rule | str,
    streams: Mapping[str, Tensor],
    *,
    attn: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    coefficients: Mapping[str, Value] | None = None,
    velocity_norm: Norm | None = None,
    observer: Observer | None = None,
) -> dict[str, Tensor]:
    """One block of a rule with any number of streams, by name; all of them come back.

    ``attn`` and ``mlp`` are any callables of one tensor, ``velocity_norm`` is what ``norm`` means
    (None: the identity).
    """
    rule = get_rule(rule)
    # As tensors, so that 1 / mu at mu = 0 is infinite, as it is in a model, and not an exception.
    given = {name: _tensor(value) for name, value in (coefficients or {}).items()}
    _same_names(f"rule {rule.name!r}: coefficients", given, tuple(rule.coefficients))
    _same_names(f"rule {rule.name!r}: streams", streams, tuple(rule.streams))
    norm: Norm = (lambda x: x) if velocity_norm is None else velocity_norm
    oracles: dict[str, Oracle] = {"attn": lambda y, _: attn(y), "mlp": lambda y, _: mlp(y)}
    norms = [norm] * rule.norm_calls
    return run_program(rule.program, streams, oracles, given, norms, observer)


def apply_rule(
    rule: Rule | str,
    X: Tensor,
    V: Tensor | None = None,
    *,
    attn: Callable[[Tensor], Tensor],
    mlp: Callable[[Tensor], Tensor],
    coefficients: Mapping[str, Value] | None = None,
    velocity_norm: Norm | None = None,
) -> tuple[Tensor, Tensor | None]:
    """One block of a rule whose streams are X and V (V is None where the rule has none)."""
    rule = get_rule(rule)
    others = [name for name in rule.streams if name not in ("X", "V")]
    if others:
        raise InputError(
            f"rule {rule.name!r} also carries {', '.join(others)}: "
            "use run_rule(rule, {'X': X, ...}), which takes every stream by name"
        )
    streams = {"X": X}
    if rule.uses_velocity:
        if V is None:
            raise InputError(
                f"rule {rule.name!r} carries a velocity: pass V, a tensor of X's shape "
                f"{tuple(X.shape)} (zeros to start from rest)"
            )
        if V.shape != X.shape:
            raise InputError(f"V has shape {tuple(V.shape)}, but X has {tuple(X.shape)}")
        streams["V"] = V
    result = run_rule(
        rule, streams, attn=attn, mlp=mlp, coefficients=coefficients, velocity_norm=velocity_norm
    )
    return result["X"], result.get("V", V)


def _same_names(what: str, given: Mapping[str, object], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in given]
    extra = [name for name in given if name not in wanted]
    if missing or extra:
        problems = [f"missing {', '.join(missing)}"] if missing else []
        problems += [f"unknown {', '.join(extra)}"] if extra else []
        needs = ", ".join(wanted) or "none"
        raise InputError(f"{what}: {'; '.join(problems)} (it needs exactly: {needs})")
