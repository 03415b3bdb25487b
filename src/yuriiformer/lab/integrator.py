"""A rule's block as a step of length H of its flow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from yuriiformer.lab.flow import Flow, Schedule, Streams
from yuriiformer.lab.options import OrderLab
from yuriiformer.lab.problems import Problem
from yuriiformer.lab.run import first_streams
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


def short(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")
