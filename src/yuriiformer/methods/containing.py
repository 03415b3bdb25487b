"""Whether one rule contains another: coefficients at which its block does what the other's does.

Nesterov's rule without LN_v contains gradient descent: at mu = beta = 0 and gamma = 1 its X is that
of gradient descent, whatever V is. A model of the second rule can then be continued as one of the
first, from exactly where it stands.

Both blocks are evaluated on symbols. A value is a sum of atoms with numbers in front: the streams
before the block, answers of oracles and norms (an atom for each different argument), products of
these. Two blocks do the same if each stream of the other rule is the same sum after both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from yuriiformer.methods.coefficients import Coefficient
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Binary, Call, Expr, Name, Negate, Number

Atom = tuple[Any, ...]
Sum = dict[Atom, float]  # atom -> the number in front of it; () is the number 1
CANDIDATES = (0.0, 1.0, -1.0)
MOST = 20_000  # combinations that are tried


def coefficients_of_equality(rule: Rule, other: Rule) -> dict[str, float] | None:
    """Values of the rule's coefficients at which its block does what the other's does with its
    coefficients at their start; None if there are none among the rule's start values, 0, 1, -1."""
    if any(rule.streams.get(name) != start for name, start in other.streams.items()):
        return None
    values = {name: _constant(each) for name, each in other.coefficients.items()}
    if None in values.values():
        return None
    wanted = _block(other, values)
    names = list(rule.coefficients)
    choices = [list(_choices(rule.coefficients[name])) for name in names]
    for chosen in itertools.islice(itertools.product(*choices), MOST):
        found = dict(zip(names, chosen, strict=True))
        after = _block(rule, found)
        if all(after[name] == value for name, value in wanted.items()):
            return found
    return None


def _choices(coefficient: Coefficient) -> Iterator[float]:
    """What a coefficient may be: fixed ones are what they are, ends of a range count."""
    start = _constant(coefficient)
    if start is not None:
        yield start
    if not coefficient.learned:
        return
    low = {"unit": 0.0, "positive": 0.0, "real": -1.0}[coefficient.range]
    for value in CANDIDATES:
        if value >= low and value != start:
            yield value


def _constant(coefficient: Coefficient) -> float | None:
    """The start value, if it is one number for all layers."""
    return None if isinstance(coefficient.initial, str) else coefficient.initial


def _block(rule: Rule, coefficients: Mapping[str, Any]) -> dict[str, Sum]:
    """The streams after a block."""
    values: dict[str, Sum] = {name: {(name,): 1.0} for name in rule.streams}
    values |= {name: {(): float(value)} for name, value in coefficients.items()}
    for assign in rule.assigns:
        values[assign.target] = _value(assign.value, values)
    return {name: values[name] for name in rule.streams}


def _value(node: Expr, values: Mapping[str, Sum]) -> Sum:
    if isinstance(node, Number):
        return _clean({(): node.value})
    if isinstance(node, Name):
        return _clean(values[node.id])
    if isinstance(node, Negate):
        return {atom: -number for atom, number in _value(node.operand, values).items()}
    if isinstance(node, Call):
        return {(node.function, *(_frozen(_value(each, values)) for each in node.arguments)): 1.0}
    left, right = _value(node.left, values), _value(node.right, values)
    if node.op in "+-":
        sign = 1.0 if node.op == "+" else -1.0
        atoms = {**left, **right}
        return _clean({atom: left.get(atom, 0.0) + sign * right.get(atom, 0.0) for atom in atoms})
    return _product(node, left, right)


def _product(node: Binary, left: Sum, right: Sum) -> Sum:
    """A number times a sum, a sum through a number; anything else is an atom of its own."""
    if node.op == "*" and set(left) <= {()}:
        left, right = right, left
    number = right.get((), 0.0) if set(right) <= {()} else None
    if number is not None and (node.op == "*" or number):
        factor = number if node.op == "*" else 1 / number
        return _clean({atom: factor * value for atom, value in left.items()})
    return {(node.op, _frozen(left), _frozen(right)): 1.0}


def _clean(numbers: Sum) -> Sum:
    return {atom: number for atom, number in numbers.items() if number}


def _frozen(value: Sum) -> frozenset[tuple[Atom, float]]:
    return frozenset(value.items())
