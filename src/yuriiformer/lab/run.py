"""The update rules on plain optimisation: which rules, starts, trajectories.

Rules run by the same interpreter as in a model, with oracles that are downhill directions of a
known function and, unless asked for, without LN_v.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.files import packaged_table
from yuriiformer.lab.problems import Problem
from yuriiformer.lab.setting import FAR, Setting, starts
from yuriiformer.methods.interpreter import run_rule, unit
from yuriiformer.methods.references import get_rules
from yuriiformer.methods.rule import Rule


@dataclass(frozen=True)
class Trajectory:
    """X after every block, the start first; ``stopped`` is the block after which it was too far
    away or not finite."""

    X: Tensor  # (block, token, d)
    stopped: int | None


@cache
def default_rules(problem: str) -> tuple[str, ...]:
    return tuple(packaged_table("lab/lab.toml")[problem])


def named_rules(names: Sequence[str]) -> list[Rule]:
    """Rules by name, file or variation; a group's name stands for all of it. Each once."""
    found: dict[str, Rule] = {}
    for name in names:
        for rule in get_rules(name):
            same = found.setdefault(rule.name, rule)
            if same != rule:
                raise ConfigError(f"two different rules are called {rule.name!r}: rename one")
    return list(found.values())


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
    """How streams start (`starts`), as tensors."""
    return starts(rule, X, torch.zeros_like(X), unit)


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
