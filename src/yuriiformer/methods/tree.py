"""The tree that a rule's text becomes: six kinds of node, nothing else.

Nodes compare by content, not by position: a rule written with other spaces is the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Place:
    """Where a node stands in the user's text; both count from 1."""

    line: int
    column: int


NOWHERE = Place(0, 0)


@dataclass(frozen=True)
class Number:
    value: float
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Name:
    id: str
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Negate:
    operand: Expr
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Binary:
    op: str  # one of + - * /
    left: Expr
    right: Expr
    place: Place = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple[Expr, ...]
    number: int = 0  # which call of this function in the block it is, from 0; set by lowering
    place: Place = field(default=NOWHERE, compare=False, repr=False)


Expr = Number | Name | Negate | Binary | Call


@dataclass(frozen=True)
class Assign:
    """One line of a rule: ``target = value``."""

    target: str
    value: Expr
    place: Place = field(default=NOWHERE, compare=False, repr=False)


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression, in the order they are evaluated."""
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, Negate):
        return (node.operand,)
    if isinstance(node, Call):
        return node.arguments
    return ()


def walk(node: Expr) -> Iterator[Expr]:
    """Every node of an expression, each after its parts: the order of evaluation."""
    for child in children(node):
        yield from walk(child)
    yield node


def names(node: Expr) -> list[Name]:
    """The names an expression reads, in order."""
    return [part for part in walk(node) if isinstance(part, Name)]
