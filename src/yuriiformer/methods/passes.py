"""Passes over a rule's assignments: lowering to steps, liveness, segments, lookahead.

A rule is lowered once to a flat list of steps in which every oracle call stands alone:

    V = norm(beta * V + gamma * attn(X + mu * V))

becomes

    attn[0] <- attn(X + mu * V)                       a Query
    V = norm[0](beta * V + gamma * attn[0])           an Assign, free of oracles

The interpreter, the key/value cache, FLOP counts, traces and diagrams all read this one form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from yuriiformer.methods.parse import NORMS, ORACLES
from yuriiformer.methods.tree import Assign, Binary, Call, Expr, Name, Placed, mapped, names, walk

if TYPE_CHECKING:
    from yuriiformer.methods.rule import Rule


@dataclass(frozen=True)
class Query(Placed):
    """One oracle call: ``target`` holds the answer, ``call`` counts calls of this oracle from 0."""

    target: str
    oracle: str
    argument: Expr
    call: int

    @property
    def value(self) -> Expr:
        """The expression that this step reads (an Assign has it too)."""
        return self.argument


Step = Assign | Query


@dataclass(frozen=True)
class Segment:
    """Oracle-free steps that run together, and the oracle call that ends them (the last has none).

    ``inputs`` are the names it needs from before, ``outputs`` those that something later needs:
    the signature of the segment if it is compiled on its own.
    """

    assigns: tuple[Assign, ...]
    query: Query | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """The steps of one block that have an effect, and the streams it reads and returns."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    segments: tuple[Segment, ...]

    def reads(self) -> frozenset[str]:
        """Every name that some step reads."""
        return frozenset(name.id for step in self.steps for name in names(step.value))

    def oracles(self) -> frozenset[str]:
        return frozenset(step.oracle for step in self.steps if isinstance(step, Query))

    def norm_calls(self) -> frozenset[int]:
        """The numbers of the ``norm`` calls that are made."""
        return frozenset(
            node.number
            for step in self.steps
            for node in walk(step.value)
            if isinstance(node, Call) and node.function == "norm"
        )


def oracle_calls(programs: tuple[Program, ...]) -> Counter[str]:
    """How often each oracle is called, without steps that never reach the logits."""
    return Counter(
        step.oracle for program in programs for step in program.steps if isinstance(step, Query)
    )


def lower(assigns: Iterable[Assign]) -> tuple[Step, ...]:
    """Assignments with oracle calls inside -> steps in the order of evaluation."""
    steps: list[Step] = []
    count: Counter[str] = Counter()

    def visit(node: Expr) -> Expr:
        node = mapped(node, visit)
        if not isinstance(node, Call):
            return node
        number = count[node.function]
        if node.function in ORACLES:
            count[node.function] += 1
            target = f"{node.function}[{number}]"  # cannot clash: users cannot write such a name
            (argument,) = node.arguments
            steps.append(Query(target, node.function, argument, number, place=node.place))
            return Name(target, place=node.place)
        if node.function in NORMS:
            count[node.function] += 1
            return replace(node, number=number)
        return node

    for assign in assigns:
        steps.append(replace(assign, value=visit(assign.value)))
    return tuple(steps)


def carried(assigns: Iterable[Assign]) -> list[str]:
    """Names read before they are written and written somewhere: carried from layer to layer."""
    written: set[str] = set()
    early: dict[str, None] = {}
    for assign in assigns:
        for name in names(assign.value):
            if name.id not in written:
                early[name.id] = None
        written.add(assign.target)
    return [name for name in early if name in written]


def live(
    steps: tuple[Step, ...], needed: frozenset[str]
) -> tuple[tuple[Step, ...], frozenset[str]]:
    """The steps that contribute to ``needed``, and the names they need at the block's start."""
    kept: list[Step] = []
    alive = set(needed)
    for step in reversed(steps):
        if step.target in alive:
            alive.discard(step.target)
            alive.update(name.id for name in names(step.value))
            kept.append(step)
    return tuple(reversed(kept)), frozenset(alive)


def build_program(
    steps: tuple[Step, ...], streams: tuple[str, ...], needed: frozenset[str]
) -> Program:
    """The program of a block of which only the streams in ``needed`` are used afterwards."""
    kept, alive = live(steps, needed)
    outputs = tuple(name for name in streams if name in needed)
    inputs = tuple(name for name in streams if name in alive)
    return Program(kept, inputs, outputs, _segments(kept, outputs))


def _segments(steps: tuple[Step, ...], outputs: tuple[str, ...]) -> tuple[Segment, ...]:
    """Cut the steps after each oracle call; the outputs of each part follow from liveness."""
    parts: list[list[Step]] = [[]]
    for step in steps:
        parts[-1].append(step)
        if isinstance(step, Query):
            parts.append([])
    segments: list[Segment] = []
    alive = frozenset(outputs)
    for part in reversed(parts):
        query = part[-1] if part and isinstance(part[-1], Query) else None
        assigns = tuple(step for step in part if isinstance(step, Assign))
        if query is not None:
            alive = (alive - {query.target}) | {name.id for name in names(query.argument)}
        written = {step.target for step in assigns}
        handed_on = tuple(sorted(alive & written))
        _, before = live(assigns, alive)
        read = before & {name.id for step in part for name in names(step.value)}
        segments.append(Segment(assigns, query, tuple(sorted(read)), handed_on))
        alive = before
    return tuple(reversed(segments))


def structure(rule: Rule) -> tuple[Any, ...]:
    """What makes a rule, whatever it is called: assignments, starts, coefficients."""
    return _structure(rule, rule.assigns)


def without_lookahead(rule: Rule) -> tuple[Any, ...]:
    """The structure of the same rule with its oracles asked at X.

    That tells Nesterov's momentum from Polyak's: Nesterov's asks the oracles at X + mu V, Polyak's
    at X. Without the terms that have a ``mu*`` factor, a rule of the first kind is one of the
    second.
    """
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
    if isinstance(node, Binary) and node.op in "+-" and _is_lookahead(node.right):
        return _reduced(node.left, same)
    return mapped(node, lambda part: _reduced(part, same))


def _is_lookahead(node: Expr) -> bool:
    """``mu * V``, also with an index."""
    factors = (node.left, node.right) if isinstance(node, Binary) and node.op == "*" else ()
    return any(isinstance(each, Name) and each.id.startswith("mu") for each in factors)
