"""The one walk over a rule's tree: the value of an expression, and a block of a rule.

It runs on whatever has + - * /. What a function means is handed in, so the same walk runs on
tensors (`interpreter`), on the numbers of a schedule (`coefficients`) and on vectors of a few plain
numbers (`lab.plain`). The order of operations is the order of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from yuriiformer.methods.passes import Program, Segment, Step
from yuriiformer.methods.tree import Binary, Call, Expr, Name, Negate, Number

LAYER_NORM_EPS = 1e-5

Function = Callable[[Call, list[Any]], Any]  # (the call, its arguments' values) -> its value
Observer = Callable[[Step, Any, Any], None]
"""Called after every step with the step, its value and, for an oracle call, its argument."""
SegmentRunner = Callable[[Segment, dict[str, Any]], Any]


def evaluate(node: Expr, values: Mapping[str, Any], function: Function) -> Any:
    """The value of an oracle-free expression."""
    if isinstance(node, Name):
        return values[node.id]
    if isinstance(node, Number):
        return node.value
    if isinstance(node, Binary):
        left, right = evaluate(node.left, values, function), evaluate(node.right, values, function)
        if node.op == "+":
            return left + right
        if node.op == "-":
            return left - right
        return left * right if node.op == "*" else left / right
    if isinstance(node, Negate):
        return -evaluate(node.operand, values, function)
    assert isinstance(node, Call)
    return function(node, [evaluate(part, values, function) for part in node.arguments])


def run_segment(
    segment: Segment,
    values: dict[str, Any],
    function: Function,
    observer: Observer | None = None,
) -> Any:
    """Adds the segment's values to those that are there; the argument of its oracle call."""
    for step in segment.assigns:
        values[step.target] = result = evaluate(step.value, values, function)
        if observer is not None:
            observer(step, result, None)
    return None if segment.query is None else evaluate(segment.query.argument, values, function)


def run_steps(
    program: Program,
    streams: Mapping[str, Any],
    oracles: Mapping[str, Callable[[Any, int], Any]],
    coefficients: Mapping[str, Any],
    function: Function,
    observer: Observer | None = None,
    each: SegmentRunner | None = None,
) -> dict[str, Any]:
    """One block: streams in, the streams that the program gives out. ``each`` runs a segment, if
    not `run_segment`."""
    values: dict[str, Any] = {**coefficients, **streams}
    for segment in program.segments:
        if each is None:
            argument = run_segment(segment, values, function, observer)
        else:
            argument = each(segment, values)
        if segment.query is not None:
            query = segment.query
            values[query.target] = answer = oracles[query.oracle](argument, query.call)
            if observer is not None:
                observer(query, answer, argument)
    return {name: values[name] for name in program.outputs}
