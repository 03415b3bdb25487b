"""What the names of a rule mean, and the checks that a rule must pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from yuriiformer.errors import RuleError, did_you_mean
from yuriiformer.methods.coefficients import Coefficient, Declaration, arithmetic, implied, resolve
from yuriiformer.methods.parse import NORMS, ORACLES
from yuriiformer.methods.passes import Query, Step, carried, live, lower
from yuriiformer.methods.tree import Assign, Call, Expr, Name, Place, children, names

Start = Literal["tables", "normalized", "zero", "tied"]
"""How a stream starts: its own token and position tables, the same through a LayerNorm without
gain, zero, or the main tables (those of X)."""

DEFAULT_STARTS: Mapping[str, Start] = {"X": "tables", "V": "tables"}


def _error(reason: str, place: Place) -> RuleError:
    return RuleError(reason, line=place.line, column=place.column)


def find_streams(assigns: tuple[Assign, ...], declared: Mapping[str, str]) -> Mapping[str, Start]:
    """Streams and their starts; a carried name whose start is not known is an error."""
    first_read: dict[str, Name] = {}
    for assign in assigns:
        for name in names(assign.value):
            first_read.setdefault(name.id, name)
    written = {assign.target for assign in assigns}
    found = carried(assigns)
    constant = [
        n for n in first_read if n not in written and (n in declared or n in DEFAULT_STARTS)
    ]
    order = list(first_read)
    streams: dict[str, Start] = {}
    for stream in sorted({*found, *constant}, key=lambda s: (s != "X", order.index(s))):
        if stream in declared:
            streams[stream] = _start(stream, declared[stream])
        elif stream in DEFAULT_STARTS:
            streams[stream] = DEFAULT_STARTS[stream]
        else:
            raise _error(
                f"stream {stream!r} is read before it is written, so it is carried from layer to "
                "layer, but nothing says how it starts: declare it under [streams] as one of "
                f"{', '.join(get_args(Start))}",
                first_read[stream].place,
            )
    for stream in declared:
        if stream not in streams:
            why = "a local: written before it is read" if stream in written else "never read"
            raise RuleError(f"stream {stream!r} is declared but {why}", declared=stream)
    return MappingProxyType(streams)


def _start(stream: str, start: object) -> Start:
    """A declared start, checked."""
    if stream == "X" and start in ("zero", "tied"):
        reason = f"X cannot start as {start!r}: it holds the tokens; use tables or normalized"
        raise RuleError(reason, declared=stream)
    for known in get_args(Start):
        if start == known:
            return known  # type: ignore[no-any-return]
    choices = ", ".join(get_args(Start))
    reason = f"stream {stream!r} cannot start as {start!r}; known are {choices}"
    raise RuleError(reason, declared=stream)


def find_coefficients(
    assigns: tuple[Assign, ...], streams: Mapping[str, Start], declared: Mapping[str, Declaration]
) -> Mapping[str, Coefficient]:
    """Every name that is neither stream nor local; without a known prefix it must be declared."""
    written = {assign.target for assign in assigns}
    found: dict[str, Coefficient] = {}
    for name in (name for assign in assigns for name in names(assign.value)):
        if name.id in streams or name.id in written or name.id in found:
            continue
        if name.id not in declared and not implied(name.id):
            known = {*streams, *written, *declared}
            raise _error(
                f"unknown name {name.id!r}{did_you_mean(name.id, known)}: neither assigned, nor a "
                "kind of mu, beta, gamma or delta, nor declared under [coefficients] or [streams]",
                name.place,
            )
        found[name.id] = resolve(name.id, declared.get(name.id))
    for key in declared:
        if key not in found:
            reason = f"coefficient {key!r} is declared but never used as one"
            raise RuleError(reason, declared=key)
    return MappingProxyType(found)


def check(assigns: tuple[Assign, ...], streams: Mapping[str, Start]) -> None:
    """The checks beyond the meaning of names."""
    written = {assign.target for assign in assigns}
    if "X" not in written:
        last = assigns[-1].place
        raise _error("X is never updated: a rule ends with X = ... for the next layer", last)
    if "X" not in streams:
        first = next(assign for assign in assigns if assign.target == "X")
        raise _error("X is overwritten before it is read: the tokens are lost", first.place)
    steps = lower(assigns)
    called = {step.oracle for step in steps if isinstance(step, Query)}
    for oracle in ORACLES:
        if oracle not in called:
            last = assigns[-1].place
            raise _error(f"oracle {oracle} is never called: write {oracle}(...)", last)
    _check_constants(assigns)
    _check_tensors(assigns, streams)
    _check_reach(steps, tuple(streams))


def _check_constants(assigns: tuple[Assign, ...]) -> None:
    """Evaluate arithmetic on plain numbers now, so that it cannot fail later."""
    constants: dict[str, float] = {}

    def value(node: Expr) -> float | None:
        parts = [value(child) for child in children(node)]
        if isinstance(node, Name):
            return constants.get(node.id)
        if None in parts or (isinstance(node, Call) and node.function in ORACLES + NORMS):
            return None
        try:
            return arithmetic(node, constants)
        except (ArithmeticError, ValueError) as error:
            raise _error(f"this has no value: {error}", node.place) from None

    for assign in assigns:
        result = value(assign.value)
        constants.pop(assign.target, None)
        if result is not None:
            constants[assign.target] = result


def _check_tensors(assigns: tuple[Assign, ...], streams: Mapping[str, Start]) -> None:
    """Oracles, norms and streams need tensors; a formula of coefficients alone is a number."""
    tensors = set(streams)

    def is_tensor(node: Expr) -> bool:
        parts = [is_tensor(child) for child in children(node)]
        if isinstance(node, Call) and node.function in ORACLES + NORMS:
            if not parts[0]:
                raise _error(
                    f"{node.function}(...) needs a stream, not only coefficients", node.place
                )
            return True
        return node.id in tensors if isinstance(node, Name) else any(parts)

    for assign in assigns:
        if is_tensor(assign.value):
            tensors.add(assign.target)
        elif assign.target in streams:
            raise _error(f"stream {assign.target!r} cannot become a plain number", assign.place)
        else:
            tensors.discard(assign.target)


def _check_reach(steps: tuple[Step, ...], streams: tuple[str, ...]) -> None:
    """Every step must reach X in some layer of a deep enough model."""
    needed = frozenset({"X"})
    used: set[int] = set()
    for _ in range(len(streams) + 1):  # each round adds a stream, or nothing is left to add
        kept, alive = live(steps, needed)
        used |= {id(step) for step in kept}
        needed |= alive & set(streams)
    for step in steps:
        if id(step) not in used:
            raise _error(f"the value of {step.target!r} here never reaches X", step.place)
    for stream in streams:
        if stream not in needed:
            raise RuleError(f"stream {stream!r} never reaches X")
