"""The lab's results for several rules, as plain data for tables and figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from yuriiformer.display.page import for_json
from yuriiformer.errors import ConfigError, whole_number
from yuriiformer.lab import theory as lab_theory
from yuriiformer.lab.problems import (
    RADIUS,
    STIFFNESS,
    Problem,
    Quadratic,
    clusters,
    particles,
    quadratic,
)
from yuriiformer.lab.run import Trajectory, trajectory
from yuriiformer.lab.setting import ParticleLab, QuadraticLab, Setting, setting
from yuriiformer.lab.theory import Theory, bias_order, fit_rate, theory, tune
from yuriiformer.methods.rule import Rule
from yuriiformer.model.energies import log_interaction_energy

FRAMES = 200  # positions of particles that are kept, at most
THEORY, TUNED = 500, 32  # dimensions up to which matrices are worked out, and searched over
NEAR = 1e-9  # of the problem's size: a limit nearer than this counts as the minimum


def quadratic_results(chosen: Sequence[Rule], options: QuadraticLab) -> dict[str, Any]:
    """Every rule on one quadratic."""
    _check(options.steps, options.norm, options.dim)
    if options.tune and options.dim > TUNED:
        raise ConfigError(f"--tune searches in up to {TUNED} dimensions, not {options.dim}")
    problem = quadratic(options.condition, options.dim, options.split, options.seed)
    found = [_on_quadratic(rule, problem, options) for rule in chosen]
    condition = options.condition
    return {
        "problem": "quadratic",
        "options": asdict(options),
        "m": problem.m,
        "L": problem.L,
        "closed_forms": {
            "gradient descent": lab_theory.gradient_descent_rate(condition),
            "Nesterov": lab_theory.nesterov_rate(condition),
            "Polyak": lab_theory.polyak_rate(condition),
        },
        "centres": [_drawn(problem, centre)[0] for centre in problem.centres],
        "rules": found,
    }


def _on_quadratic(rule: Rule, problem: Quadratic, options: QuadraticLab) -> dict[str, Any]:
    setup = setting(
        rule,
        problem,
        options.steps,
        h=options.step_size,
        constants=options.coefficients,
        given=options.given,
    )
    tuned = None
    if options.tune:
        before = setup
        setup = tune(problem, rule, setup, h=options.step_size, keep=options.given)
        tuned = setup is not before
    linear = not (options.norm and rule.norm_calls) and options.dim <= THEORY
    known = theory(problem, rule, setup) if linear else None
    path = trajectory(problem, rule, setup, norm=options.norm)
    limit = problem.minimiser if known is None or known.limit is None else known.limit
    size = max(_norm(path.X[0] - limit), _norm(limit))
    to_limit = (path.X - limit).flatten(1).norm(dim=1).tolist()
    to_minimum = (path.X - problem.minimiser).flatten(1).norm(dim=1)
    bias = _bias(problem, known, size)
    order = bias_order(problem, rule, setup) if bias else None
    calls = sum(rule.oracle_calls.values())
    last = to_limit[-1] / to_limit[0] if to_limit[0] else 0.0
    # Without theory the limit is not known: only rules that come near the minimum have a rate.
    fitted = fit_rate(to_limit, size) if known is not None or last <= 0.1 else None
    radius = None if known is None else known.radius
    return {
        **_about(rule, setup, path),
        "theory": _rate(radius, calls),
        "fitted": _rate(fitted, calls),
        "bias": bias,
        "bias_order": order,
        "last_distance": _short(float(to_minimum[-1])),
        "limit": _drawn(problem, limit)[0] if bias else None,
        "remarks": _remarks(rule, setup, path, known, bias, order, last, tuned),
        "gap": _numbers(problem.value(path.X)),
        "distance": _numbers(to_minimum),
        "path": _drawn(problem, path.X),
    }


def _bias(problem: Quadratic, known: Theory | None, size: float) -> float | None:
    """The limit's distance to the minimum; None if there is no limit."""
    if known is None or known.limit is None or known.radius >= 1:
        return None
    distance = _norm(known.limit - problem.minimiser)
    return _short(distance) if distance > NEAR * size else 0.0


def _remarks(
    rule: Rule,
    setup: Setting,
    path: Trajectory,
    known: Theory | None,
    bias: float | None,
    order: float | None,
    last: float,
    tuned: bool | None,
) -> list[str]:
    said = []
    if tuned is False:
        said.append("not tuned: " + ("its blocks differ" if not setup.steady else "no theory"))
    if known is not None and known.uphill:
        said.append("goes uphill, however small the step")
    if path.stopped is not None:
        said.append(f"diverges, stopped at block {path.stopped}")
    elif known is not None and known.radius >= 1 and not known.uphill:
        said.append("does not converge")
    elif bias:
        said.append(f"settles beside the minimum{_growth(order)}")
    if known is None and not setup.steady:
        said.append("blocks differ: no rate of one block")
    elif known is None:
        large = path.X[0].numel() > THEORY
        said.append(
            f"more than {THEORY} dimensions: no theory" if large else "not linear: no theory"
        )
    if known is None and path.stopped is None and last > 0.1:
        said.append(f"ends at {last:.2g} of its first distance to the minimum")
    said += [f"{name} starts at zero" for name in rule.streams if _at_rest(rule, name)]
    return said


def _growth(order: float | None) -> str:
    if order is None:
        return ""
    if abs(order) < 0.1:
        return ", however small h"
    known = {1.0: " by O(h)", -1.0: " by O(1/h)"}
    return known.get(round(order, 1), f" by O(h^{order:.1f})")


def _at_rest(rule: Rule, name: str) -> bool:
    """Whether a table of a model is taken as zero here (for a velocity that is usual)."""
    return name not in ("X", "V") and rule.streams[name] in ("tables", "normalized")


def particle_results(chosen: Sequence[Rule], options: ParticleLab) -> dict[str, Any]:
    """Every rule on the same particles."""
    _check(options.steps, options.norm, options.dim)
    if not (math.isfinite(options.distance) and options.distance > 0):
        raise ConfigError(f"--distance must be a number above 0, not {options.distance:g}")
    problem = particles(options.tokens, options.dim, options.oracle, options.seed)
    found = [_on_particles(rule, problem, options) for rule in chosen]
    ring = {"radius": RADIUS, "stiffness": STIFFNESS}
    return {"problem": "particles", "options": asdict(options), "ring": ring, "rules": found}


def _on_particles(rule: Rule, problem: Problem, options: ParticleLab) -> dict[str, Any]:
    setup = setting(rule, problem, options.steps, h=options.step_size, given=options.given)
    path = trajectory(problem, rule, setup, norm=options.norm)
    values = torch.stack([problem.value(X) for X in path.X])  # one at a time: each needs n² numbers
    rises = int((values[1:] > values[:-1] + 1e-9 * values[:-1].abs()).sum())
    remarks = [] if path.stopped is None else [f"diverges, stopped at block {path.stopped}"]
    if path.stopped is None and values[-1] > values[0]:
        remarks.append("goes uphill: J rises")
    elif path.stopped is None and rises:
        remarks.append(f"J rises in {rises} block{'s' * (rises > 1)} on its way down")
    remarks += [f"{name} starts at zero" for name in rule.streams if _at_rest(rule, name)]
    every = max(1, math.ceil((len(path.X) - 1) / FRAMES))
    frames = sorted({*range(0, len(path.X), every), len(path.X) - 1})
    return {
        **_about(rule, setup, path),
        "value": _numbers(values),
        "log_energy": _numbers(torch.stack([log_interaction_energy(X) for X in path.X])),
        "clusters": [clusters(X, options.distance) for X in path.X],
        "rises": rises,
        "remarks": remarks,
        "frames": frames,
        "trajectories": [[_numbers(token[:2], 4) for token in X] for X in path.X[frames]],
    }


def _check(steps: int, norm: bool, dim: int) -> None:
    whole_number("--steps", steps, 1)
    if norm and dim == 1:
        raise ConfigError("--norm needs --dim 2 or more: LayerNorm makes zero of a single number")


def _about(rule: Rule, setup: Setting, path: Trajectory) -> dict[str, Any]:
    first, last = setup.blocks[0], setup.blocks[-1]
    return {
        "rule": rule.to_dict(),
        "calls": rule.oracle_calls,
        "step_size": _short(setup.h),
        "coefficients": {name: [_short(first[name]), _short(last[name])] for name in first},
        "blocks": len(path.X) - 1,
        "stopped": path.stopped,
    }


def _rate(rate: float | None, calls: int) -> dict[str, float | None]:
    """Per block, and per oracle call."""
    if rate is None:
        return {"block": None, "call": None}
    return {"block": _short(rate), "call": _short(rate ** (1 / max(calls, 1)))}


def _drawn(problem: Quadratic, X: Tensor) -> list[list[float | None]]:
    """Points as (along the flattest axis, along the steepest one), from the minimum."""
    along = ((X - problem.minimiser) @ problem.axes)[..., 0, :]
    return [_numbers(point) for point in along[..., [0, -1]].reshape(-1, 2)]


def _norm(X: Tensor) -> float:
    return float(X.norm())


def _short(value: float, digits: int = 8) -> float:
    return float(f"{value:.{digits}g}")


def _numbers(values: Tensor, digits: int = 8) -> list[float | None]:
    found: list[float | None] = for_json(values.tolist(), digits)
    return found
