"""A segment as straight-line code: one operation per line, run forwards and backwards.

    V = norm(beta * V + gamma * attn[0])         %0 = beta * V
    X = X + V                                    %1 = gamma * attn[0]
                                         ->      %2 = %0 + %1
                                                 %3 = norm(%2)
                                                 %4 = X + %3

Every line has a name of its own. So it is known which values the backward pass reads, and which are
read once and may be overwritten. Values and gradients are those of the interpreter under autograd:
the same operations in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from yuriiformer.methods.evaluation import LAYER_NORM_EPS
from yuriiformer.methods.interpreter import apply_elementwise
from yuriiformer.methods.passes import Segment
from yuriiformer.methods.tree import Binary, Call, Expr, Name, Negate, Number, children

Value = Tensor | float
ARITHMETIC = ("+", "-", "*", "/", "negate")


@dataclass(frozen=True)
class Line:
    """``name = operation(arguments)``; ``over`` is the argument that may be overwritten, if any."""

    name: str
    operation: str
    arguments: tuple[str | float, ...]
    number: int = 0  # of the norm
    over: int | None = None


@dataclass(frozen=True)
class Straight:
    """The lines of a segment.

    ``outputs`` are the values that something later needs, under the names of the rule; ``argument``
    is that of the oracle call, if there is one. ``read_back`` are the lines that the backward pass
    reads.
    """

    lines: tuple[Line, ...]
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    argument: str | None
    read_back: frozenset[str]

    def made(self) -> tuple[str, ...]:
        """The lines that are needed outside, each once."""
        own = {line.name for line in self.lines}
        wanted = [name for _, name in self.outputs] + [self.argument or ""]
        return tuple(name for name in dict.fromkeys(wanted) if name in own)

    def norms(self) -> tuple[int, ...]:
        return tuple(line.number for line in self.lines if line.operation == "norm")


@cache
def straighten(segment: Segment) -> Straight:
    """The straight-line code of a segment."""
    lines: list[Line] = []
    now: dict[str, str] = {}  # name in the rule -> line that holds its value

    def visit(node: Expr) -> str | float:
        if isinstance(node, Name):
            return now.get(node.id, node.id)
        if isinstance(node, Number):
            return node.value
        arguments = tuple(visit(part) for part in children(node))
        number = node.number if isinstance(node, Call) else 0
        operation = "negate"
        if not isinstance(node, Negate):
            operation = node.op if isinstance(node, Binary) else node.function
        lines.append(Line(f"%{len(lines)}", operation, arguments, number))
        return lines[-1].name

    def named(node: Expr) -> str:
        value = visit(node)
        if isinstance(value, str):
            return value
        lines.append(Line(f"%{len(lines)}", "+", (value, 0.0)))  # a bare number
        return lines[-1].name

    for assign in segment.assigns:
        now[assign.target] = named(assign.value)
    argument = None if segment.query is None else named(segment.query.argument)
    outputs = tuple((name, now[name]) for name in segment.outputs)
    read_back = frozenset(
        each
        for line in lines
        if line.operation not in ("+", "-", "negate")
        for each in line.arguments
        if isinstance(each, str)
    )
    keep = frozenset([argument, *(name for _, name in outputs)])
    inputs = tuple(
        dict.fromkeys(
            each
            for line in lines
            for each in line.arguments
            if isinstance(each, str) and not each.startswith("%")
        )
    )
    return Straight(_overwriting(lines, keep), inputs, outputs, argument, read_back)


def _overwriting(lines: Sequence[Line], keep: frozenset[str | None]) -> tuple[Line, ...]:
    """Sums and differences take the place of a part that nothing else reads."""
    made = {line.name: line for line in lines}
    uses = Counter(each for line in lines for each in line.arguments)

    def free(each: str | float) -> bool:
        line = made.get(each) if isinstance(each, str) else None
        return (
            line is not None
            and line.operation in ARITHMETIC
            and uses[each] == 1
            and line.name not in keep
        )

    found = []
    for line in lines:
        over = None
        if line.operation in ("+", "-"):
            sides = (0, 1) if line.operation == "+" else (0,)
            over = next((side for side in sides if free(line.arguments[side])), None)
        found.append(Line(line.name, line.operation, line.arguments, line.number, over))
    return tuple(found)


def run(
    code: Straight, inputs: Mapping[str, Value], norms: Sequence[nn.LayerNorm]
) -> dict[str, Value]:
    """The value of every line (those overwritten excepted), and of the inputs. Without autograd."""
    values: dict[str, Value] = dict(inputs)
    for line in code.lines:
        arguments = [values[a] if isinstance(a, str) else a for a in line.arguments]
        if line.over is not None:
            kept = arguments[1 - line.over]
            place = values.pop(str(line.arguments[line.over]))
            if _fits(place, kept):
                assert isinstance(place, Tensor)
                values[line.name] = place.add_(kept) if line.operation == "+" else place.sub_(kept)
                continue
        if line.operation in ("norm", "unit"):
            x = arguments[0]
            assert isinstance(x, Tensor)
            weight = norms[line.number].weight if line.operation == "norm" else None
            values[line.name], values[f"{line.name} mean"], values[f"{line.name} rstd"] = (
                torch.native_layer_norm(x, x.shape[-1:], weight, None, LAYER_NORM_EPS)
            )
        else:
            values[line.name] = compute(line.operation, arguments)
    return values


def _fits(place: Value, other: Value) -> bool:
    return (
        isinstance(place, Tensor)
        and isinstance(other, Tensor)
        and place.shape == other.shape
        and place.dtype == other.dtype
    )


def compute(operation: str, arguments: Sequence[Value]) -> Value:
    """Anything but a norm."""
    if operation == "negate":
        return -arguments[0]
    if operation not in ARITHMETIC:
        return apply_elementwise(operation, arguments)
    left, right = arguments
    if operation == "+":
        return left + right
    if operation == "-":
        return left - right
    return left * right if operation == "*" else left / right


class Backwards:
    """The gradient of a segment: from the gradients of its lines to those of its inputs.

    Lines are walked from the last to the first and gradients added up in that order, as autograd
    does. A sum over a product with a coefficient needs room for the product: one buffer serves all.
    """

    def __init__(
        self,
        code: Straight,
        values: Mapping[str, Value],
        norms: Sequence[nn.LayerNorm],
        wanted: frozenset[str],
    ) -> None:
        self.code, self.values, self.norms = code, values, norms
        self.wanted = set(wanted)  # inputs and lines that need a gradient
        for line in code.lines:
            if line.operation == "norm" or self.wanted.intersection(map(str, line.arguments)):
                self.wanted.add(line.name)
        self.gradients: dict[str, Tensor] = {}
        self.own: set[str] = set()  # gradients that may be overwritten
        self.weights: dict[int, Tensor] = {}
        self._room: Tensor | None = None

    def run(self, given: Mapping[str, Tensor]) -> None:
        self.gradients = dict(given)
        for line in reversed(self.code.lines):
            gradient = self.gradients.get(line.name)
            if gradient is not None:
                self._line(line, gradient)
                self.gradients.pop(line.name, None)

    def _line(self, line: Line, gradient: Tensor) -> None:
        if line.operation in ("norm", "unit"):
            self._norm(line, gradient)
        elif line.operation in ("+", "-", "negate"):
            for side, each in enumerate(line.arguments):
                minus = line.operation == "negate" or (line.operation == "-" and side == 1)
                if each in self.wanted:
                    self._add(str(each), -gradient if minus else gradient, own=minus)
        elif line.operation == "*":
            left, right = line.arguments
            self._product(left, right, gradient)
            self._product(right, left, gradient)
        else:
            self._other(line, gradient)

    def _add(self, name: str, gradient: Tensor, *, own: bool) -> None:
        """Add to the gradient of a name what one line gives it, summed to the name's shape."""
        value = self.values.get(name)
        if isinstance(value, Tensor) and value.shape != gradient.shape:
            gradient, own = gradient.sum_to_size(value.shape), True
        before = self.gradients.get(name)
        if before is None:
            self.gradients[name] = gradient
        elif name in self.own:
            before.add_(gradient)
            return
        else:
            self.gradients[name] = before + gradient
            own = True
        if own:
            self.own.add(name)

    def _product(self, name: str | float, factor: str | float, gradient: Tensor) -> None:
        if name not in self.wanted:
            return
        value, times = self.values[str(name)], self._value(factor)
        assert isinstance(value, Tensor)
        if value.shape == gradient.shape:
            self._add(str(name), gradient * times, own=True)
            return
        if self._room is None or self._room.shape != gradient.shape:
            self._room = torch.empty_like(gradient)
        self._add(str(name), torch.mul(gradient, times, out=self._room), own=False)

    def _norm(self, line: Line, gradient: Tensor) -> None:
        (name,) = map(str, line.arguments)
        x, mean, rstd = (self.values[n] for n in (name, f"{line.name} mean", f"{line.name} rstd"))
        assert isinstance(x, Tensor)
        weight = self.norms[line.number].weight if line.operation == "norm" else None
        learns = weight is not None and weight.requires_grad
        before, gain, _ = torch.ops.aten.native_layer_norm_backward(
            gradient,
            x,
            x.shape[-1:],
            mean,
            rstd,
            weight,
            None,
            [name in self.wanted, learns, False],
        )
        if name in self.wanted:
            self._add(name, before, own=True)
        if learns:
            seen = self.weights.get(line.number)
            self.weights[line.number] = gain if seen is None else seen + gain

    def _other(self, line: Line, gradient: Tensor) -> None:
        """By autograd: quotients and functions."""
        given = [self._value(each) for each in line.arguments]
        with torch.enable_grad():
            inputs = [g.detach().requires_grad_() if isinstance(g, Tensor) else g for g in given]
            result = compute(line.operation, inputs)
        tensors = {
            str(name): x
            for name, x in zip(line.arguments, inputs, strict=True)
            if name in self.wanted and isinstance(x, Tensor)
        }
        assert isinstance(result, Tensor)
        found = torch.autograd.grad(result, list(tensors.values()), gradient)
        for name, each in zip(tensors, found, strict=True):
            self._add(name, each, own=False)

    def _value(self, each: str | float) -> Value:
        return self.values[each] if isinstance(each, str) else each
