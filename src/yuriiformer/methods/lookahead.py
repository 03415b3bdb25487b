"""A rule without its lookahead: what tells Nesterov's momentum from Polyak's.

Nesterov's asks the oracles at X + mu V, Polyak's at X. Without the terms that have a ``mu*``
factor, a rule of the first kind is one of the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Assign, Binary, Call, Expr, Name, Negate, names


def structure(rule: Rule) -> tuple[Any, ...]:
    """What makes a rule, whatever it is called: assignments, starts, coefficients."""
    return _structure(rule, rule.assigns)


def without_lookahead(rule: Rule) -> tuple[Any, ...]:
    """The structure of the same rule with its oracles asked at X."""
    assigns: list[Assign] = []
    same: dict[str, Expr] = {}  # locals that are now another name
    for assign in rule.assigns:
        value = _reduced(assign.value, same)
        if assign.target in rule.locals and isinstance(value, Name):
            same[assign.target] = value
        else:
            assigns.append(replace(assign, value=value))
    return _structure(rule, tuple(assigns))


def _structure(rule: Rule, assigns: tuple[Assign, ...]) -> tuple[Any, ...]:
    used = {name.id for assign in assigns for name in names(assign.value)}
    coefficients = {name: each for name, each in rule.coefficients.items() if name in used}
    return assigns, dict(rule.streams), coefficients


def _reduced(node: Expr, same: Mapping[str, Expr]) -> Expr:
    if isinstance(node, Name):
        return same.get(node.id, node)
    if isinstance(node, Negate):
        return replace(node, operand=_reduced(node.operand, same))
    if isinstance(node, Call):
        return replace(node, arguments=tuple(_reduced(each, same) for each in node.arguments))
    if isinstance(node, Binary):
        if node.op in "+-" and _is_lookahead(node.right):
            return _reduced(node.left, same)
        return replace(node, left=_reduced(node.left, same), right=_reduced(node.right, same))
    return node


def _is_lookahead(node: Expr) -> bool:
    """``mu * V``, also with an index."""
    factors = (node.left, node.right) if isinstance(node, Binary) and node.op == "*" else ()
    return any(isinstance(each, Name) and each.id.startswith("mu") for each in factors)
