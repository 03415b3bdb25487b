"""A rule's block as a step of length H of its flow, and what makes it geometric, for one block at
beta = 1 (no damping):

    reversible    R(x, v) = (x, -v):  R Φ R Φ = 1     (gradient flow: Φ with -H undoes Φ with H)
    symplectic    Jᵀ Ω J = Ω for the Jacobian J of a block
    energy drift  of ½ |v|² + f(x), over many blocks

The first two are spectral norms of what should be zero, the largest over several points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from yuriiformer.lab.flow import Flow, Schedule, Streams
from yuriiformer.lab.problems import Problem
from yuriiformer.lab.run import first_streams
from yuriiformer.lab.setting import OrderLab
from yuriiformer.methods.interpreter import run_rule
from yuriiformer.methods.rule import Rule


@dataclass(frozen=True)
class Integrator:
    """A rule with the scales of its flow."""

    rule: Rule
    flow: Flow
    schedule: Schedule
    problem: Problem
    options: OrderLab

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Streams beyond the flow's own that a block changes."""
        written = {assign.target for assign in self.rule.assigns}
        own = ("X", "V") if self.flow.accelerated else ("X",)
        return tuple(name for name in self.rule.streams if name in written and name not in own)

    def block(self, H: Tensor, values: Mapping[str, Any]) -> Callable[[Streams], Streams]:
        """A step of length H (..., 1, 1), with x and v in place of X and V."""
        scale, size = self.flow.oracle_scale(H), self.flow.velocity_scale(H)
        attn, mlp = self.problem.oracles(scale)

        def step(streams: Streams) -> Streams:
            inside = dict(streams)
            if self.flow.accelerated:
                inside["V"] = streams["V"] * size
            after = run_rule(self.rule, inside, attn=attn, mlp=mlp, coefficients=values)
            if self.flow.accelerated:
                after["V"] = after["V"] / size
            return after

        return step

    def start(self, many: int = 1) -> Streams:
        """``many`` copies of the start, as a leading dimension."""
        streams = first_streams(self.rule, self.problem.start)
        if self.flow.accelerated:
            streams["V"] = first_velocity(self.problem)
        return {name: value.expand(many, *value.shape) for name, value in streams.items()}

    def geometric(self, lookahead: float) -> dict[str, float]:
        """Coefficients without damping."""
        layer = self.options.time / 2 / self.options.step
        values = self.schedule.at(layer, 3 * layer, 1.0, lookahead)
        free = [n for n in self.rule.coefficients if n not in self.schedule.given]
        for name in free if not self.schedule.steady and self.flow.accelerated else ():
            if isinstance(self.rule.coefficients[name].initial, str):
                values[name] = lookahead if name.startswith("mu") else 1.0
        return values


def first_velocity(problem: Problem) -> Tensor:
    """Not at rest, and not along a symmetry of the start."""
    size = problem.start.shape[-1]
    return torch.linspace(1.0, -0.5, size, dtype=torch.float64).expand_as(problem.start).clone()


def significant(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")


POINTS = 8  # at which Jacobians are taken


def geometry_of(each: Integrator) -> dict[str, Any]:
    """Without damping; None where a measure has no meaning."""
    if each.others:
        return dict.fromkeys(("reversible", "symplectic", "drift", "lookahead"))
    plain = _defects(each, 0.0)
    looks = any(name.startswith("mu") for name in each.schedule.following) or any(
        name.startswith("mu") and isinstance(spec.initial, str)
        for name, spec in each.rule.coefficients.items()
    )
    ahead = _defects(each, 1.0) if looks and each.flow.accelerated else None
    return {**plain, "lookahead": ahead}


def _defects(each: Integrator, lookahead: float) -> dict[str, float | None]:
    H = torch.tensor(each.options.step, dtype=torch.float64)
    values = each.geometric(lookahead) if each.flow.accelerated else each.geometric(0.0)
    accelerated = each.flow.accelerated
    forward, first = each.block(H, values), {k: v[0] for k, v in each.start().items()}
    backward = forward if accelerated else each.block(-H, values)
    names = ("X", "V") if accelerated else ("X",)
    size = each.problem.start.numel()
    flip = torch.ones(size * len(names), dtype=torch.float64)
    flip[size:] = -1

    def phi(z: Tensor, block: Callable[[Streams], Streams] = forward) -> Tensor:
        parts = [part.reshape(each.problem.start.shape) for part in z.view(len(names), -1)]
        after = block({**first, **dict(zip(names, parts, strict=True))})
        return torch.cat([after[name].ravel() for name in names])

    reversible, symplectic = 0.0, 0.0
    omega = _omega(size)
    for z in _points(torch.cat([first[name].ravel() for name in names])):
        there_and_back = _jacobian(lambda z: flip * phi(flip * phi(z), backward), z)
        reversible = max(reversible, _norm(there_and_back - torch.eye(len(z))))
        if accelerated:
            J = _jacobian(phi, z)
            symplectic = max(symplectic, _norm(J.T @ omega @ J - omega))
    return {
        "reversible": significant(reversible),
        "symplectic": significant(symplectic) if accelerated else None,
        "drift": _drift(each, forward, first) if accelerated else None,
    }


def _points(z: Tensor) -> Tensor:
    noise = torch.randn(POINTS, len(z), generator=torch.Generator().manual_seed(0)).double()
    return z + 0.3 * noise


def _jacobian(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    found: Tensor = torch.autograd.functional.jacobian(function, z)  # type: ignore[no-untyped-call]
    return found


def _omega(size: int) -> Tensor:
    eye, zero = torch.eye(size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    return torch.cat([torch.cat([zero, eye], 1), torch.cat([-eye, zero], 1)])


def _drift(each: Integrator, block: Callable[[Streams], Streams], streams: Streams) -> float | None:
    """The mean energy (above the function's minimum) of the last quarter over that of the first,
    minus 1: 0 keeps it, -1 loses it. None if it left the range of numbers."""
    value, energies = each.problem.value, []
    for _ in range(max(8, round(each.options.drift_time / each.options.step))):
        energies.append(float(0.5 * streams["V"].square().sum() + value(streams["X"])))
        if not abs(energies[-1]) < 1e12:
            return None
        streams = block(streams)
    quarter, lowest = len(energies) // 4, _minimum(each.problem)
    first, last = (fmean(part) - lowest for part in (energies[:quarter], energies[-quarter:]))
    return significant(last / first - 1)


def _minimum(problem: Problem) -> float:
    """By Newton's method: the function is convex and smooth."""
    X = problem.start
    size = X.numel()
    for _ in range(50):

        def force(x: Tensor) -> Tensor:
            at = x.reshape(problem.start.shape)
            return (problem.attn(at) + problem.mlp(at)).ravel()

        step = torch.linalg.solve(_jacobian(force, X.ravel()), force(X.ravel()))
        X = X - step.reshape(X.shape)
        if float(step.norm()) < 1e-13 * size:
            break
    return float(problem.value(X))


def _norm(matrix: Tensor) -> float:
    """Spectral; infinite if an entry is not finite."""
    return float(torch.linalg.matrix_norm(matrix, 2)) if matrix.isfinite().all() else math.inf
