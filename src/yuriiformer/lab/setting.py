"""What the lab is asked to do, and what a rule runs with: step size, coefficients, how streams
start.

The fields of the `...Lab` classes are the flags of ``yurii lab``. Nothing here needs torch: the lab
on tensors (`run`) and the one on plain numbers (`plain`) both read it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from yuriiformer.errors import ConfigError, whole_number
from yuriiformer.methods.coefficients import implied, resolve
from yuriiformer.methods.rule import Rule

Constants = Literal["classical", "model"]
QuadraticSplit = Literal["even", "spectrum", "shifted"]
Pull = Literal["gradient", "attention"]

FEWEST = 4  # step sizes to fit an order to
MOST_BLOCKS = 20_000
STIFF, LONG = 100.0, 1000.0  # beyond them the reference takes long
FAR = 1e12  # times the first distance: beyond it a run counts as diverged
SHIFT = 0.5  # of the parts' minima from the sum's along every axis, for the split 'shifted'


@dataclass(frozen=True)
class QuadraticLab:
    """A quadratic and how the rules run on it.

    Args:
        condition: the largest curvature divided by the smallest.
        dim: dimensions; paths are drawn along the flattest and the steepest of them.
        split: the parts of attention and MLP: half each (even), parts that do not commute
            (spectrum), or half each with different minima (shifted).
        steps: blocks to run.
        step_size: one for all rules; each gets its classical one if not given.
        coefficients: classical constants for this condition number, or what a model starts with.
        tune: find for each rule the step size and momentum with the least spectral radius.
        given: coefficients; these override all others.
        norm: apply LN_v, as in a model; without it a block is linear, and theory is exact.
        seed: of the basis, the minimum and the start.
    """

    condition: float = 100.0
    dim: int = 2
    split: QuadraticSplit = "even"
    steps: int = 300
    step_size: float | None = None
    coefficients: Constants = "classical"
    tune: bool = False
    given: Mapping[str, float] = field(default_factory=dict)
    norm: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.tune and self.norm:
            raise ConfigError("--tune needs a linear block: leave out --norm")


@dataclass(frozen=True)
class ParticleLab:
    """Particles and how the rules run on them.

    Args:
        tokens: how many.
        dim: dimensions; the first two are drawn.
        oracle: attention's: the exact gradient of J, or softmax attention itself.
        steps: blocks to run.
        step_size: of both oracles.
        distance: tokens nearer than this are of one cluster.
        given: coefficients; the initial values of a model if not given.
        norm: apply LN_v, as in a model.
        seed: of the tokens' positions.
    """

    tokens: int = 32
    dim: int = 2
    oracle: Pull = "gradient"
    steps: int = 200
    step_size: float = 0.05
    distance: float = 0.3
    given: Mapping[str, float] = field(default_factory=dict)
    norm: bool = False
    seed: int = 0


@dataclass(frozen=True)
class OrderLab:
    """A smooth function, the flow on it and the step sizes.

    Args:
        dim: dimensions of the function.
        damping: of the accelerated flow, for the order; a rule's own schedule stays.
        time: how long the flow is followed, from t = time/2.
        blocks: how many blocks take that time, four numbers or more: one step size for each. The
            order is fitted to the four largest.
        step: of the measures of one block: reversibility, symplecticity, energy.
        drift_time: over which energy is watched.
        given: coefficients that do not follow the step.
        seed: of the function.
    """

    dim: int = 3
    damping: float = 0.5
    time: float = 2.0
    blocks: tuple[int, ...] = (64, 128, 256, 512, 1024, 2048)
    step: float = 0.25
    drift_time: float = 100.0
    given: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for number in self.blocks:
            whole_number("--blocks", number, 1)
        if len(set(self.blocks)) < FEWEST:
            raise ConfigError(f"--blocks needs {FEWEST} different numbers or more to fit an order")
        if not 0 <= self.damping <= STIFF:
            raise ConfigError(f"--damping must be from 0 to {STIFF:g}, not {self.damping:g}")
        for name in ("time", "step", "drift_time"):
            value = getattr(self, name)
            if not 0 < value <= LONG:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} must be above 0 and at most {LONG:g}, not {value:g}")
        if max(*self.blocks, self.drift_time / self.step) > MOST_BLOCKS:
            raise ConfigError(
                f"more than {MOST_BLOCKS:,} blocks: give fewer --blocks, a larger --step or a "
                "shorter --drift-time"
            )


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
