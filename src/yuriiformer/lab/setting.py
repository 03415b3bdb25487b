"""What a rule runs with in the lab: step size, coefficients, and how its streams start.

Nothing here needs torch: the lab on tensors (`run`) and the one on plain numbers (`plain`) both
read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from yuriiformer.errors import ConfigError
from yuriiformer.methods.coefficients import implied, resolve
from yuriiformer.methods.rule import Rule

Constants = Literal["classical", "model"]
FAR = 1e12  # times the first distance: beyond it a run counts as diverged
SHIFT = 0.5  # of the parts' minima from the sum's along every axis, for the split 'shifted'


class Curved(Protocol):
    """A function whose curvatures lie between m and L, where they are known."""

    @property
    def m(self) -> float | None: ...
    @property
    def L(self) -> float | None: ...


@dataclass(frozen=True)
class Setting:
    """What a rule runs with: the step size in its oracles, and its coefficients block by block."""

    h: float
    blocks: tuple[Mapping[str, float], ...]

    @property
    def steady(self) -> bool:
        """Whether all blocks have the same coefficients."""
        return all(each == self.blocks[0] for each in self.blocks)

    def with_momentum(self, h: float, momentum: float, names: Iterable[str]) -> Setting:
        """Another step size, and one value for all the coefficients named."""
        new = dict.fromkeys(names, momentum)
        return replace(self, h=h, blocks=tuple({**each, **new} for each in self.blocks))


def momentum_of(rule: Rule) -> tuple[str, ...]:
    """The coefficients that are momentum by their names and have no value of the rule's own."""
    momenta = [name for name in rule.coefficients if name.startswith(("mu", "beta"))]
    return tuple(
        name
        for name in momenta
        if implied(name) and rule.coefficients[name].initial == resolve(name, None).initial
    )


def classical(rule: Rule, m: float, L: float) -> tuple[float, float]:
    """Step size and momentum that are optimal (or customary) for curvatures from m to L, for the
    method that the rule's coefficients make it: with ``mu*`` Nesterov's, with ``beta*`` alone
    Polyak's, else gradient descent."""
    root = math.sqrt(L / m)
    momentum = (root - 1) / (root + 1)
    if any(name.startswith("mu") for name in rule.coefficients):
        return 1 / L, momentum
    if any(name.startswith("beta") for name in rule.coefficients):
        return 4 / (math.sqrt(L) + math.sqrt(m)) ** 2, momentum**2
    return 2 / (m + L), 0.0


def setting(
    rule: Rule,
    problem: Curved,
    steps: int,
    *,
    h: float | None = None,
    constants: Constants = "classical",
    given: Mapping[str, float] | None = None,
) -> Setting:
    """The step size and coefficients of a rule.

    Classical constants replace ``mu*`` and ``beta*`` that have their default initial value;
    ``gamma*`` and ``delta*`` are 1; values (or schedules) that a rule declares are kept; ``given``
    overrides all. A function without known curvature has no classical constants, and a step size
    must be given.
    """
    new: dict[str, float] = {}
    if problem.m is not None and problem.L is not None:
        best, momentum = classical(rule, problem.m, problem.L)
        h = best if h is None else h
        if constants == "classical":
            new = dict.fromkeys(momentum_of(rule), momentum)
    if h is None:
        raise ConfigError("this function's curvature is not known: give a step size")
    if not (math.isfinite(h) and h > 0):
        raise ConfigError(f"--step-size must be a number above 0, not {h:g}")
    new |= {name: value for name, value in (given or {}).items() if name in rule.coefficients}
    own = {name: spec for name, spec in rule.coefficients.items() if name not in new}
    order = list(rule.coefficients)
    blocks = []
    for t in range(steps):
        values = {**new, **{name: spec.value(t, steps) for name, spec in own.items()}}
        blocks.append({name: values[name] for name in order})
    return Setting(h, tuple(blocks))


def starts(rule: Rule, X: Any, zero: Any, unit: Callable[[Any], Any]) -> dict[str, Any]:
    """How streams start in the lab, which has no tables: X and ``tied`` streams at the problem's
    start, others at zero. ``normalized`` is the same through `unit`."""
    streams = {}
    for name, start in rule.streams.items():
        value = X if name == "X" or start == "tied" else zero
        streams[name] = unit(value) if start == "normalized" else value
    return streams
