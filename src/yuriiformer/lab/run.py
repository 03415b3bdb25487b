"""The update rules on plain optimisation: settings, starts, trajectories.

Rules run by the same interpreter as in a model, with oracles that are downhill directions of a
known function and, unless asked for, without LN_v.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Literal

import torch
from torch import Tensor

from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.lab.problems import Problem
from yuriiformer.methods.coefficients import implied, resolve
from yuriiformer.methods.interpreter import run_rule, unit
from yuriiformer.methods.references import get_rules
from yuriiformer.methods.rule import Rule

Constants = Literal["classical", "model"]
FAR = 1e12  # times the first distance: beyond it a run counts as diverged


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


@dataclass(frozen=True)
class Trajectory:
    """X after every block, the start first; ``stopped`` is the block after which it was too far
    away or not finite."""

    X: Tensor  # (block, token, d)
    stopped: int | None


@cache
def default_rules(problem: str) -> tuple[str, ...]:
    text = (files("yuriiformer.lab") / "lab.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)[problem])


def named_rules(names: Sequence[str]) -> list[Rule]:
    """Rules by name, file or variation; a group's name stands for all of it. Each once."""
    found: dict[str, Rule] = {}
    for name in names:
        for rule in get_rules(name):
            same = found.setdefault(rule.name, rule)
            if same != rule:
                raise ConfigError(f"two different rules are called {rule.name!r}: rename one")
    return list(found.values())


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
    problem: Problem,
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


def parse_given(texts: Sequence[str], chosen: Sequence[Rule]) -> dict[str, float]:
    """``mu=0.5`` … as numbers; each must be a coefficient of some rule."""
    known = list(dict.fromkeys(name for rule in chosen for name in rule.coefficients))
    found = {}
    for text in texts:
        name, equals, number = (part.strip() for part in text.partition("="))
        if not equals:
            raise ConfigError(f"--set {text!r}: write NAME=NUMBER, such as mu=0.5")
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known) or 'none'}"
            raise ConfigError(f"--set {text!r}: no rule here has a coefficient {name!r}{hint}")
        try:
            found[name] = float(number)
        except ValueError:
            raise ConfigError(f"--set {text!r}: {number!r} is not a number") from None
        if not math.isfinite(found[name]):
            raise ConfigError(f"--set {text!r}: the value must be finite")
    return found


def first_streams(rule: Rule, X: Tensor) -> dict[str, Tensor]:
    """How streams start in the lab, which has no tables: X and ``tied`` streams at the problem's
    start, others at zero. ``normalized`` is the same through `unit`."""
    streams = {}
    for name, start in rule.streams.items():
        value = X if name == "X" or start == "tied" else torch.zeros_like(X)
        streams[name] = unit(value) if start == "normalized" else value
    return streams


def trajectory(problem: Problem, rule: Rule, setup: Setting, *, norm: bool = False) -> Trajectory:
    """A rule from the problem's start, as many blocks as the setting has."""
    streams = first_streams(rule, problem.start)
    points = [streams["X"]]
    centre = problem.minimiser if problem.minimiser is not None else torch.zeros_like(points[0])
    limit = FAR * max(float((points[0] - centre).norm()), 1.0)
    attn, mlp = problem.oracles(setup.h)
    for number, values in enumerate(setup.blocks, 1):
        streams = run_rule(
            rule,
            streams,
            attn=attn,
            mlp=mlp,
            coefficients=values,
            velocity_norm=unit if norm else None,
        )
        away = float((streams["X"] - centre).norm())
        if not away <= limit:  # also if it is NaN
            return Trajectory(torch.stack(points), number)
        points.append(streams["X"])
    return Trajectory(torch.stack(points), None)
