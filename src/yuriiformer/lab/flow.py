"""The flow that a rule discretises, and the scales that make its block a step of length H.

    accelerated flow   ẋ = v,  v̇ = -∇f(x) - a(t) v        rules that keep a velocity
    gradient flow      ẋ = -∇f(x)                          all others

A block is read from its answers to constant oracles, so every rule is read alike. Where a rule
keeps its velocity as beta → 1, let V move X by n V in all (n drifts), let an oracle's answer be
added to V with the weight w, and let V be multiplied by beta r times. Then the block is a step of
length H of the accelerated flow with

    V = (H / n) v,    oracles = -∇f times H² / (n w),    beta = mu = exp(-a H / r)

Where V is forgotten (a beta of its own below 1, or no V), streams other than X settle. A block with
settled streams adds w times the oracles to X: a step of the gradient flow with oracles times H / w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from yuriiformer.errors import RuleError
from yuriiformer.lab.setting import momentum_of
from yuriiformer.methods.interpreter import run_rule
from yuriiformer.methods.rule import Rule

SMALL = 1e-6  # of a constant oracle: what is not linear in it shows at larger ones
SETTLE, STILL = 2000, 1e-13  # blocks in which streams must settle, and what counts as settled
NEAR_REST = 1e-4  # a step so short that a schedule is nearly at its limit
LESS = 0.999  # a momentum below 1, to count how often V is multiplied by it
KEPT = 0.05  # how far from 1 the factor of V may be at that step

Streams = dict[str, Tensor]


@dataclass(frozen=True)
class Flow:
    """What a block does as its step shrinks.

    Args:
        accelerated: whether it keeps its velocity.
        drifts: n, how far X moves for a V of 1; 0 in the gradient flow.
        weights: w of attention and of the MLP, in V; in the gradient flow in X.
        dampings: r, how often V is multiplied by the momentum coefficients that follow the step.
    """

    accelerated: bool
    drifts: float
    weights: tuple[float, float]
    dampings: float

    @property
    def weight(self) -> float:
        return sum(self.weights) / 2

    @property
    def even(self) -> bool:
        """Whether both oracles weigh the same."""
        attn, mlp = self.weights
        return abs(attn - mlp) <= 1e-6 * max(abs(attn), abs(mlp))

    def oracle_scale(self, H: Tensor) -> Tensor:
        return H.square() / (self.drifts * self.weight) if self.accelerated else H / self.weight

    def velocity_scale(self, H: Tensor) -> Tensor:
        return H / self.drifts if self.accelerated else torch.ones_like(H)


@dataclass(frozen=True)
class Schedule:
    """A rule's coefficients at any block, for steps of any length."""

    rule: Rule
    given: Mapping[str, float]

    @property
    def following(self) -> tuple[str, ...]:
        """The momentum coefficients that have no value of their own: they follow the step."""
        return tuple(name for name in momentum_of(self.rule) if name not in self.given)

    @property
    def steady(self) -> bool:
        return not any(
            isinstance(spec.initial, str)
            for name, spec in self.rule.coefficients.items()
            if name not in self.given
        )

    def at(
        self, t: float, depth: float, momentum: float | None, lookahead: float | None = None
    ) -> dict[str, float]:
        """Those that follow are ``momentum`` (None: their start value in a model), of them the
        mu ``lookahead`` if it is given."""
        found = {}
        for name, spec in self.rule.coefficients.items():
            if name in self.given:
                found[name] = self.given[name]
            elif name in self.following and momentum is not None:
                ahead = lookahead is not None and name.startswith("mu")
                found[name] = float(lookahead) if ahead and lookahead is not None else momentum
            else:
                # A schedule may be asked for between layers.
                found[name] = spec.value(t, depth)  # type: ignore[arg-type]
        return found


def read_flow(schedule: Schedule, start: float) -> Flow | None:
    """The flow of a rule at the time ``start``; None if it has none."""
    try:
        far, near = (_read(schedule, start, step) for step in (NEAR_REST, NEAR_REST / 2))
    except RuleError:  # a schedule that is only defined at whole layers
        return None
    if far is None or near is None or far.accelerated != near.accelerated:
        return None
    if schedule.steady:
        return far
    return Flow(  # the limit, to second order
        far.accelerated,
        2 * near.drifts - far.drifts,
        (2 * near.weights[0] - far.weights[0], 2 * near.weights[1] - far.weights[1]),
        far.dampings,
    )


def _read(schedule: Schedule, start: float, step: float) -> Flow | None:
    rule = schedule.rule
    layer, depth = start / step, 2 * start / step
    if rule.uses_velocity:
        values = schedule.at(layer, depth, 1.0)
        factor, drifts = _coast(rule, values)
        weights = (_kick(rule, values, attn=SMALL), _kick(rule, values, mlp=SMALL))
        if abs(factor - 1) < KEPT and drifts and all(weights):
            less, _ = _coast(rule, schedule.at(layer, depth, LESS))
            times = math.log(less / factor) / math.log(LESS) if less / factor > 0 else 0.0
            return Flow(True, drifts, weights, times)
    values = schedule.at(layer, depth, None)
    pulls = (_pull(rule, values, attn=SMALL), _pull(rule, values, mlp=SMALL))
    if pulls[0] is None or pulls[1] is None or not pulls[0] or not pulls[1]:
        return None
    return Flow(False, 0.0, (pulls[0], pulls[1]), 0.0)


def damping_of(schedule: Schedule, t: float) -> float:
    """a(t) of a rule whose momentum is a schedule of its own, as the step shrinks."""
    rates = []
    for step in (NEAR_REST, NEAR_REST / 2):
        values = schedule.at(t / step, 2 * t / step, 1.0)
        rates.append((1 - _coast(schedule.rule, values)[0]) / step)
    return 2 * rates[1] - rates[0]


def _constant(value: float) -> Tensor:
    return torch.full((1, 1), value, dtype=torch.float64)


def _block(
    rule: Rule, streams: Streams, values: Mapping[str, float], attn: float, mlp: float
) -> Streams:
    return run_rule(
        rule,
        streams,
        attn=lambda Y: _constant(attn),
        mlp=lambda Y: _constant(mlp),
        coefficients=values,
    )


def _resting(rule: Rule) -> Streams:
    return dict.fromkeys(rule.streams, _constant(0.0))


def _coast(rule: Rule, values: Mapping[str, float]) -> tuple[float, float]:
    """Without oracles, from X = 0 and V = 1: V and X afterwards."""
    after = _block(rule, {**_resting(rule), "V": _constant(1.0)}, values, 0.0, 0.0)
    return float(after["V"]), float(after["X"])


def _kick(rule: Rule, values: Mapping[str, float], attn: float = 0.0, mlp: float = 0.0) -> float:
    """What V gains of a constant oracle, per unit of it."""
    after = _block(rule, _resting(rule), values, attn, mlp)
    return float(after["V"]) / (attn + mlp)


def _pull(
    rule: Rule, values: Mapping[str, float], attn: float = 0.0, mlp: float = 0.0
) -> float | None:
    """What X gains of a constant oracle per block once the other streams have settled."""

    def block(streams: Streams) -> Streams:
        return _block(rule, streams, values, attn, mlp)

    settled = settle(block, _resting(rule), ("X",), STILL * SMALL)
    return None if settled is None else float(block(settled)["X"]) / (attn + mlp)


def settle(
    block: Callable[[Streams], Streams],
    streams: Streams,
    held: tuple[str, ...],
    still: float = STILL,
) -> Streams | None:
    """The streams as blocks leave them while those ``held`` are put back after each; None if they
    do not come to rest."""
    for _ in range(SETTLE):
        after = {**block(streams), **{name: streams[name] for name in held}}
        change = max(float((after[name] - streams[name]).abs().max()) for name in streams)
        streams = after
        if change <= still:
            return streams
        if not change < 1e12:
            return None
    return None
