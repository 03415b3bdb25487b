"""The lab's quadratic in two dimensions, on plain numbers: for places without torch or NumPy.

The documentation's rule editor runs this in the browser. The rule is walked by the same code as
everywhere (`methods.evaluation`); only the numbers are others. The axes of the quadratic are the
coordinates, the flattest first, and its minimum is at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from yuriiformer.errors import ConfigError
from yuriiformer.lab.setting import FAR, SHIFT, Setting, setting, starts
from yuriiformer.methods.coefficients import FUNCTIONS
from yuriiformer.methods.evaluation import LAYER_NORM_EPS, run_steps
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Call

ROUNDS = 500  # of the search for eigenvalues; where they are single, ten are enough


class Vector(tuple[float, ...]):
    """A few numbers with + - * /, of each other and of one number; as tensors, they have no
    exceptions: what has no value is nan or infinite."""

    __slots__ = ()

    def each(self, function: Callable[..., float], *others: Any) -> Vector:
        """The function of each number, and of the others' numbers in the same place."""
        wide = [other if isinstance(other, Vector) else [other] * len(self) for other in others]
        return Vector(_safe(function, *numbers) for numbers in zip(self, *wide, strict=True))

    def __add__(self, other: Any) -> Vector:
        return self.each(float.__add__, other)

    def __sub__(self, other: Any) -> Vector:
        return self.each(float.__sub__, other)

    def __mul__(self, other: Any) -> Vector:
        return self.each(float.__mul__, other)

    def __truediv__(self, other: Any) -> Vector:
        return self.each(_divided, other)

    def __neg__(self) -> Vector:
        return self.each(float.__neg__)

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other: Any) -> Vector:
        return self.each(lambda own, given: given - own, other)

    def __rtruediv__(self, other: Any) -> Vector:
        return Vector([other] * len(self)) / self

    @property
    def length(self) -> float:
        return math.hypot(*self)


def _divided(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)


def _safe(function: Callable[..., float], *numbers: float) -> float:
    try:
        return function(*numbers)
    except OverflowError:
        return math.inf
    except ValueError:  # the root of a negative number
        return math.nan


def unit(x: Vector) -> Vector:
    """LayerNorm without gain."""
    away = x - math.fsum(x) / len(x) if all(map(math.isfinite, x)) else x * math.nan
    return away / math.sqrt(sum(a * a for a in away) / len(x) + LAYER_NORM_EPS)


@dataclass(frozen=True)
class PlainQuadratic:
    """½ (m x² + L y²) with m = 1/κ and L = 1, half of it in each oracle.

    Args:
        condition: κ.
        shifted: the two halves have different minima, at ±½ along both axes.
    """

    condition: float = 100.0
    shifted: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.condition <= 1e6:
            raise ConfigError(f"the condition number is from 1 to 1e6, not {self.condition:g}")

    @property
    def m(self) -> float:
        return 1.0 / self.condition

    @property
    def L(self) -> float:
        return 1.0

    @property
    def start(self) -> Vector:
        """Equally high along both axes, as in the lab."""
        return Vector((1 / math.sqrt(self.m), 1 / math.sqrt(self.L)))

    def oracles(self, h: float) -> dict[str, Callable[[Vector, int], Vector]]:
        half = Vector((-0.5 * h * self.m, -0.5 * h * self.L))
        shift = SHIFT if self.shifted else 0.0
        return {
            "attn": lambda Y, _: half * (Y - shift),
            "mlp": lambda Y, _: half * (Y + shift),
        }


@dataclass(frozen=True)
class PlainResult:
    """``path`` is X after every block, the start first; ``stopped`` the block at which it left the
    range; ``radius`` the rate per block, None where a block is no affine map or blocks differ."""

    setting: Setting
    path: tuple[Vector, ...]
    stopped: int | None
    radius: float | None


def run_plain(
    rule: Rule, problem: PlainQuadratic, steps: int, h: float | None = None
) -> PlainResult:
    """A rule on the quadratic, without LN_v, with the classical constants (`setting`)."""
    setup = setting(rule, problem, steps, h=h)
    oracles = problem.oracles(setup.h)
    wide = [{name: Vector((x, x)) for name, x in each.items()} for each in setup.blocks]
    streams = starts(rule, problem.start, Vector((0.0, 0.0)), unit)
    path, stopped = [streams["X"]], None
    limit = FAR * max(path[0].length, 1.0)
    for number, values in enumerate(wide, 1):
        streams = run_steps(rule.program, streams, oracles, values, _function)
        if not streams["X"].length <= limit:  # also if it is nan
            stopped = number
            break
        path.append(streams["X"])
    first = starts(rule, problem.start, Vector((0.0, 0.0)), unit)

    def block(state: Sequence[float]) -> list[float]:
        inside = {**first, **dict(zip(moving, _pairs(state), strict=True))}
        after = run_steps(rule.program, inside, oracles, wide[0], _function)
        return [number for name in moving for number in after[name]]

    written = {assign.target for assign in rule.assigns}
    moving = [name for name in rule.streams if name in written]
    T = affine(block, 2 * len(moving)) if setup.steady else None
    # An affine block does not mix the axes: each has its own, smaller matrix.
    axes = [] if T is None else [[row[axis::2] for row in T[axis::2]] for axis in (0, 1)]
    return PlainResult(setup, tuple(path), stopped, max(map(spectral_radius, axes), default=None))


def _function(call: Call, arguments: list[Any]) -> Any:
    if call.function == "norm":
        return arguments[0]
    if call.function == "unit":
        return unit(arguments[0])
    first, *others = arguments
    if not isinstance(first, Vector):  # a number, beside a vector or not
        first = Vector((first, first))
    return first.each(FUNCTIONS[call.function], *others)


def _pairs(numbers: Sequence[float]) -> Iterable[Vector]:
    return (Vector(numbers[place : place + 2]) for place in range(0, len(numbers), 2))


Matrix = list[list[float]]


def affine(block: Callable[[Sequence[float]], list[float]], size: int) -> Matrix | None:
    """T where the block is z ← T z + b, from the images of zero and a basis; None if it is not."""
    b = block([0.0] * size)
    basis = [[float(i == k) for i in range(size)] for k in range(size)]
    columns = [[x - y for x, y in zip(block(each), b, strict=True)] for each in basis]
    T = [list(row) for row in zip(*columns, strict=True)]
    probe = [-1.0 + 3.0 * i / max(size - 1, 1) for i in range(size)]
    for seen, row, base in zip(block(probe), T, b, strict=True):
        known = base + math.fsum(a * z for a, z in zip(row, probe, strict=True))
        if not abs(seen - known) <= 1e-6 * (1 + abs(seen)):
            return None
    return T


def spectral_radius(T: Matrix) -> float:
    """The largest eigenvalue's size: roots of the characteristic polynomial, all at once by the
    method of Weierstrass. For a few dimensions; a double root has half of the digits."""
    if not all(math.isfinite(x) for row in T for x in row):
        return math.inf
    polynomial = _characteristic(T)
    size = 1 + max(map(abs, polynomial))  # Cauchy's bound
    roots = [size * (0.4 + 0.9j) ** k for k in range(len(T))]
    for _ in range(ROUNDS):
        moved = 0.0
        for k, root in enumerate(roots):
            others = math.prod((root - r for i, r in enumerate(roots) if i != k), start=1 + 0j)
            value = 1 + 0j
            for c in polynomial:
                value = value * root + c
            step = value / (others or 1e-300)
            roots[k] = root - step
            moved = max(moved, abs(step))
        if moved <= 1e-15 * max(map(abs, roots)):
            break
    return max(map(abs, roots))


def _characteristic(T: Matrix) -> list[float]:
    """The coefficients after the leading 1, by Faddeev and LeVerrier."""
    size, M, found = len(T), T, list[float]()
    for k in range(1, size + 1):
        c = -math.fsum(M[i][i] for i in range(size)) / k
        found.append(c)
        shifted = [[x + c * (i == j) for j, x in enumerate(row)] for i, row in enumerate(M)]
        columns = list(zip(*shifted, strict=True))
        M = [[math.fsum(map(float.__mul__, row, column)) for column in columns] for row in T]
    return found
