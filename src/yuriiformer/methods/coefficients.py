"""What a coefficient is: its range, where it starts, its shape, and whether it is learned."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

from yuriiformer.errors import RuleError, did_you_mean
from yuriiformer.methods.evaluation import evaluate
from yuriiformer.methods.parse import ELEMENTWISE, parse_expression
from yuriiformer.methods.tree import Call, Expr, Number, names, walk

Range = Literal["unit", "positive", "real"]
Shape = Literal["scalar", "channel", "head"]

SCHEDULE_NAMES = ("t", "L")  # the layer, counted from 0, and the number of layers

# The paper gives no start values for its coefficients; these are the project's own.
_BY_PREFIX: dict[str, tuple[Range, float]] = {
    "mu": ("unit", 0.9),
    "beta": ("unit", 0.9),
    "gamma": ("positive", 1.0),
    "delta": ("positive", 1.0),
}

_LARGEST = 1e30  # far inside float32
_BOUNDS = {"unit": (0.0, 1.0), "positive": (0.0, _LARGEST), "real": (-_LARGEST, _LARGEST)}
_MARGIN = {"unit": 1e-6, "positive": 1e-30, "real": 0.0}

_PREFIX = re.compile(rf"({'|'.join(_BY_PREFIX)})(?=_|\d|$)")

FUNCTIONS: dict[str, Callable[..., float]] = {
    "sqrt": math.sqrt,
    "square": lambda x: x * x,
    "abs": abs,
    "sign": lambda x: math.copysign(1.0, x) if x else 0.0,
    "exp": math.exp,
    "log": math.log,
    "tanh": math.tanh,
    "sigmoid": lambda x: 0.5 * (1.0 + math.tanh(0.5 * x)),
    "relu": lambda x: max(x, 0.0),
    "maximum": max,
    "minimum": min,
}
assert FUNCTIONS.keys() == ELEMENTWISE.keys()


@dataclass(frozen=True)
class Coefficient:
    """A learned or fixed number per block (or per channel or head of it).

    Args:
        range: ``unit`` is (0, 1), stored as a logit; ``positive`` is stored through softplus;
            ``real`` is stored as it is. A fixed coefficient may also sit on the range's ends.
        initial: a number, or arithmetic in ``t`` (layer, from 0) and ``L`` (number of layers),
            such as ``"t / (t + 3)"``.
        shape: one number, one for each channel, or one for each attention head.
        learned: whether training changes it.
    """

    range: Range = "real"
    initial: float | str = 0.0
    shape: Shape = "scalar"
    learned: bool = True

    def __post_init__(self) -> None:
        for value, kind, what in ((self.range, Range, "range"), (self.shape, Shape, "shape")):
            if value not in get_args(kind):
                raise RuleError(f"{what} {value!r} is not one of {', '.join(get_args(kind))}")
        if not isinstance(self.learned, bool):
            raise RuleError(f"learned must be true or false, not {self.learned!r}")
        if isinstance(self.initial, bool) or not isinstance(self.initial, int | float | str):
            raise RuleError(f"initial must be a number or a formula in t and L: {self.initial!r}")
        if not isinstance(self.initial, str):
            try:
                object.__setattr__(self, "initial", float(self.initial))
            except OverflowError:
                raise RuleError("initial is too large a number") from None
        self._check_formula()

    def _check_formula(self) -> None:
        for node in walk(self._formula):
            if isinstance(node, Call) and node.function not in FUNCTIONS:
                raise RuleError(f"initial {self.initial!r}: {node.function} needs a tensor")
        unknown = [name.id for name in names(self._formula) if name.id not in SCHEDULE_NAMES]
        if unknown:
            raise RuleError(
                f"initial {self.initial!r}: unknown name {unknown[0]!r}; a schedule is arithmetic "
                "in t (the layer, from 0) and L (the number of layers)"
            )
        if not names(self._formula):
            self.value(0, 1)  # a plain number can be checked now

    @cached_property
    def _formula(self) -> Expr:
        if isinstance(self.initial, str):
            return parse_expression(self.initial, source=f"initial {self.initial!r}")
        return Number(self.initial)

    def value(self, layer: int, depth: int) -> float:
        """The start value at one layer, checked against the range."""
        try:
            value = arithmetic(self._formula, {"t": float(layer), "L": float(depth)})
        except (ArithmeticError, ValueError) as error:
            raise RuleError(f"initial {self.initial!r} at layer {layer}: {error}") from None
        low, high = _BOUNDS[self.range]
        inside = low < value < high or (not self.learned and low <= value <= high)
        if not inside:
            hint = " unless fixed" if value in (low, high) and self.learned else ""
            raise RuleError(
                f"initial {self.initial!r} is {value:g} at layer {layer} of {depth}: a "
                f"{self.range} coefficient lies between {low:g} and {high:g}{hint}"
            )
        margin = _MARGIN[self.range]
        if self.learned and not low + margin <= value <= high - margin:
            raise RuleError(
                f"initial {self.initial!r} is {value!r} at layer {layer} of {depth}: too near the "
                f"end of its range to be learned in float32; keep {margin:g} away from it"
            )
        return value

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


Declaration = Coefficient | Mapping[str, Any] | float | str
"""How a coefficient may be declared: completely, by some options, or by its initial value."""


def options_of(declared: Declaration) -> dict[str, Any]:
    """A declaration as options."""
    if isinstance(declared, Coefficient):
        return declared.to_dict()
    return dict(declared) if isinstance(declared, Mapping) else {"initial": declared}


def resolve(name: str, declared: Declaration | None) -> Coefficient:
    """A coefficient as declared, with what its name implies (``mu*``, ``beta*``, …) filled in."""
    known = _PREFIX.match(name)
    options = {} if declared is None else options_of(declared)
    allowed = [field.name for field in fields(Coefficient)]
    for option in options:
        if option not in allowed:
            hint = did_you_mean(str(option), allowed) or f"; known are {', '.join(allowed)}"
            reason = f"coefficient {name!r}: unknown option {option!r}{hint}"
            raise RuleError(reason, declared=name)
    if known is None and "initial" not in options:
        reason = f"coefficient {name!r} is declared without an initial value"
        raise RuleError(reason, declared=name)
    default: tuple[Range, float] = ("real", 0.0)
    kind, initial = _BY_PREFIX[known[1]] if known else default
    try:
        return replace(Coefficient(range=kind, initial=initial), **options)
    except RuleError as error:
        raise RuleError(f"coefficient {name!r}: {error}", declared=name) from None


def implied(name: str) -> bool:
    """Whether the name alone tells the kind of coefficient."""
    return _PREFIX.match(name) is not None


def arithmetic(node: Expr, values: Mapping[str, float]) -> float:
    """The value of a schedule, on plain numbers (tensors are the interpreter's)."""
    value: float = evaluate(node, values, lambda call, given: FUNCTIONS[call.function](*given))
    return value
