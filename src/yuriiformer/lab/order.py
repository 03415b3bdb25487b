"""Rules as integrators: measured order of convergence, and what `geometry_of` measures.

`flow` says which flow a rule discretises and with which scales a block is a step of length H.
LN_v is off: it fixes the length of V, so that no step is short. The order is measured with damping
and lookahead (mu = beta). The geometry belongs to the flow without damping: it is measured at
beta = 1 without lookahead (mu = 0), and again with mu = 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from yuriiformer.display.page import for_json
from yuriiformer.lab.flow import Schedule, damping_of, read_flow, settle
from yuriiformer.lab.integrator import Integrator, first_velocity, geometry_of, significant
from yuriiformer.lab.measured import CONSISTENT, EXACT
from yuriiformer.lab.problems import Problem, smooth
from yuriiformer.lab.setting import FEWEST, OrderLab
from yuriiformer.methods.rule import Rule

ROUNDING = 1e-11  # smaller errors are those of the reference and of float64
BENT = 0.1  # between the order by all and by the shortest steps
NODES = 40  # at which a schedule's damping is read


def order_results(chosen: Sequence[Rule], options: OrderLab) -> dict[str, Any]:
    """Every rule as an integrator of its flow on one function."""
    problem = smooth(options.dim, options.seed)
    known: dict[str, Tensor] = {}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a few numbers at a time: more threads only wait for each other
    try:
        found = [for_json(measure(rule, problem, options, known)) for rule in chosen]
    finally:
        torch.set_num_threads(threads)
    return {"problem": "order", "options": asdict(options), "rules": found}


def measure(
    rule: Rule, problem: Problem, options: OrderLab, known: dict[str, Tensor] | None = None
) -> dict[str, Any]:
    """One rule. ``known`` keeps the references of flows that several rules have in common."""
    given = {name: each for name, each in options.given.items() if name in rule.coefficients}
    schedule = Schedule(rule, given)
    flow = read_flow(schedule, options.time / 2)
    about = {"rule": rule.to_dict(), "calls": rule.oracle_calls}
    if flow is None:
        return {**about, **NOTHING, "remarks": ["no flow: its blocks move X by no fixed share"]}
    each = Integrator(rule, flow, schedule, problem, options)
    wanted = _reference(each, {} if known is None else known)
    errors = _errors(each, wanted, warm=True)
    order = fit_order(options, errors)
    cold = fit_order(options, _errors(each, wanted, warm=False)) if each.others else None
    geometry = geometry_of(each)
    return {
        **about,
        "flow": "accelerated" if flow.accelerated else "gradient",
        "drifts": significant(flow.drifts),
        "weights": [significant(weight) for weight in flow.weights],
        "dampings": significant(flow.dampings),
        "steps": [significant(options.time / n) for n in sorted(options.blocks)],
        "errors": [significant(error) for error in errors],
        "order": order,
        "cold_order": cold,
        **geometry,
        "remarks": [*_convergence(options, errors, order), *_remarks(each, order, cold, geometry)],
    }


NOTHING: dict[str, Any] = {
    "flow": None,
    "drifts": None,
    "weights": None,
    "dampings": None,
    "steps": [],
    "errors": [],
    "order": None,
    "cold_order": None,
    "reversible": None,
    "symplectic": None,
    "drift": None,
    "lookahead": None,
}


def _reference(each: Integrator, known: dict[str, Tensor]) -> Tensor:
    """x and v of the flow at the end, by an integrator of order 8 with a tight tolerance."""
    own = each.flow.accelerated and not each.schedule.steady
    key = each.rule.name if own else f"{each.flow.accelerated}"
    if key not in known:
        known[key] = _solve(each, own)
    return known[key]


def _solve(each: Integrator, own: bool) -> Tensor:
    from scipy.integrate import solve_ivp  # noqa: PLC0415  slow to import

    problem, options, accelerated = each.problem, each.options, each.flow.accelerated
    size = problem.start.numel()

    def force(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        X = torch.from_numpy(x).reshape(problem.start.shape)
        return (problem.attn(X) + problem.mlp(X)).numpy().ravel()

    def field_of(t: float, z: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if not accelerated:
            return force(z)
        return np.concatenate([z[size:], force(z[:size]) - damping(t) * z[size:]])

    ends = (options.time / 2, 1.5 * options.time)
    damping = _damping(each.schedule, ends) if own else lambda t: options.damping
    first = [problem.start, first_velocity(problem)][: 1 + accelerated]
    z = torch.cat([part.ravel() for part in first]).numpy()
    solved = solve_ivp(field_of, ends, z, method="DOP853", rtol=1e-13, atol=1e-14)
    return torch.from_numpy(solved.y[:, -1].copy())


def _damping(schedule: Schedule, ends: tuple[float, float]) -> Any:
    """a(t) as a polynomial: the solver asks for it often."""
    from numpy.polynomial.chebyshev import Chebyshev  # noqa: PLC0415

    def rates(times: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([damping_of(schedule, float(t)) for t in times])

    return Chebyshev.interpolate(rates, NODES, domain=ends)


def _errors(each: Integrator, wanted: Tensor, *, warm: bool) -> list[float]:
    """How far x and v are off at the end, for each step size, the longest first.

    All step sizes run side by side. Streams beyond the flow's own start ``warm``, where they would
    settle if x and v stood still, or as they do in a model.
    """
    options, flow = each.options, each.flow
    counts = sorted(options.blocks)
    H = torch.tensor([options.time / n for n in counts], dtype=torch.float64)[:, None, None]
    streams = each.start(len(counts))
    if warm and each.others:
        held = tuple(name for name in streams if name not in each.others)
        block = each.block(H, _values(each, counts, 0))
        streams = settle(block, streams, held) or streams
    found: dict[int, float] = {}
    block = each.block(H, _values(each, counts, 0))
    for number in range(counts[-1]):
        if number and not each.schedule.steady:
            block = each.block(H, _values(each, counts, number))
        streams = block(streams)
        for row, n in enumerate(counts):
            if n == number + 1:
                parts = [streams["X"][row], *([streams["V"][row]] if flow.accelerated else [])]
                z = torch.cat([part.ravel() for part in parts])
                found[n] = float((z - wanted).norm())
    return [found[n] for n in counts]


def _values(each: Integrator, counts: Sequence[int], number: int) -> dict[str, Any]:
    """The coefficients of a block, one for each step size. Blocks are counted from t = 0, and the
    first one here is at t = time/2."""
    flow, options = each.flow, each.options
    rows = []
    for n in counts:
        decay = options.damping * options.time / n / flow.dampings if flow.dampings else 0.0
        momentum = math.exp(-decay) if flow.accelerated else None
        own = min(number, n - 1)  # a row that has arrived waits for the others
        rows.append(each.schedule.at(n / 2 + own, 1.5 * n, momentum))
    return {
        name: torch.tensor([row[name] for row in rows], dtype=torch.float64)[:, None, None]
        for name in each.rule.coefficients
    }


def fit_order(options: OrderLab, errors: Sequence[float], fewest: int = FEWEST) -> float | None:
    """The slope of log error over log step, by least squares over the four shortest steps that
    rounding leaves; None if there are not four."""
    steps = [options.time / n for n in sorted(options.blocks)]
    pairs = [
        (h, e) for h, e in zip(steps, errors, strict=True) if e > ROUNDING and math.isfinite(e)
    ]
    if len(pairs) < fewest:
        return None
    logs = np.log(np.array(pairs[-fewest:]))
    return significant(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 4)


def _convergence(options: OrderLab, errors: Sequence[float], order: float | None) -> list[str]:
    if order is None:
        return ["no order: fewer than four errors above rounding"]
    if order < CONSISTENT:
        return ["not consistent: the error does not vanish with the step"]
    last = fit_order(options, errors, 2)
    if last is not None and abs(last - order) > BENT:
        return [f"the errors bend: order {last:.2f} by the two shortest steps; try more --blocks"]
    return []


def _remarks(
    each: Integrator, order: float | None, cold: float | None, geometry: Mapping[str, Any]
) -> list[str]:
    said, flow = [], each.flow
    if not flow.even:
        attn, mlp = flow.weights
        said.append(f"weighs attention {attn:.3g} and MLP {mlp:.3g}")
    if flow.weight < 0:
        said.append("its signs are minus: an integrator if the oracles point uphill")
    if flow.accelerated and not each.schedule.steady:
        a = damping_of(each.schedule, each.options.time / 2)
        said.append(f"damping by its own schedule: {a:.3g} at t = {each.options.time / 2:g}")
    if not flow.accelerated and each.rule.uses_velocity:
        said.append("its velocity is forgotten, so its flow is the gradient flow")
    if cold is not None and order is not None and abs(cold - order) > 0.3:
        start = " and ".join(each.others) + (" start" if len(each.others) > 1 else " starts")
        said.append(f"order {cold:.2f} if {start} as in a model")
    ahead = geometry["lookahead"]
    if ahead is not None and geometry["symplectic"] < EXACT < ahead["symplectic"]:
        said.append(f"with lookahead (mu = 1) not symplectic ({ahead['symplectic']:.2g})")
    return said
