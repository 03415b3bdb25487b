"""The tree that a rule's text becomes: six kinds of node, nothing else.

Nodes compare by content, not by position: a rule written with other spaces is the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Place:
    """Where a node stands in the user's text; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True)
class Placed:
    """What stands in the user's text."""

    place: Place = field(default=Place(0, 0), compare=False, repr=False, kw_only=True)


@dataclass(frozen=True)
class Number(Placed):
    value: float


@dataclass(frozen=True)
class Name(Placed):
    id: str


@dataclass(frozen=True)
class Negate(Placed):
    operand: Expr


@dataclass(frozen=True)
class Binary(Placed):
    op: str  # one of + - * /
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Call(Placed):
    function: str
    arguments: tuple[Expr, ...]
    number: int = 0  # which call of this function in the block it is, from 0; set by lowering


Expr = Number | Name | Negate | Binary | Call


@dataclass(frozen=True)
class Assign(Placed):
    """One line of a rule: ``target = value``."""

    target: str
    value: Expr


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression, in the order they are evaluated."""
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, Negate):
        return (node.operand,)
    if isinstance(node, Call):
        return node.arguments
    return ()


def mapped(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The same node with each of its direct parts changed, in the order they are evaluated."""
    if isinstance(node, Binary):
        return replace(node, left=change(node.left), right=change(node.right))
    if isinstance(node, Negate):
        return replace(node, operand=change(node.operand))
    if isinstance(node, Call):
        return replace(node, arguments=tuple(change(each) for each in node.arguments))
    return node


def walk(node: Expr) -> Iterator[Expr]:
    """Every node of an expression, each after its parts: the order of evaluation."""
    for child in children(node):
        yield from walk(child)
    yield node


def names(node: Expr) -> list[Name]:
    """The names an expression reads, in order."""
    return [part for part in walk(node) if isinstance(part, Name)]
