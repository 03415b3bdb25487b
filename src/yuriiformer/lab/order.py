"""Rules as integrators: order of convergence, reversibility, symplecticity, energy drift.

`flow` says which flow a rule discretises and with which scales a block is a step of length H.
LN_v is off: it fixes the length of V, so that no step is short.

The order is measured with damping. What makes an integrator geometric belongs to the flow without
it, so these are measured at beta = 1: without lookahead (mu = 0), and again with mu = 1.

    reversible    R(x, v) = (x, -v):  R Φ R Φ = 1     (gradient flow: Φ with -H undoes Φ with H)
    symplectic    Jᵀ Ω J = Ω for the Jacobian J of a block
    energy drift  of ½ |v|² + f(x), the trend over many blocks
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from yuriiformer.errors import ConfigError, whole_number
from yuriiformer.lab.flow import Flow, Schedule, Streams, damping_of, read_flow, settle
from yuriiformer.lab.problems import Problem, smooth
from yuriiformer.lab.run import first_streams
from yuriiformer.methods.interpreter import run_rule
from yuriiformer.methods.rule import Rule

FEWEST = 4  # step sizes to fit an order to
ROUNDING = 1e-11  # smaller errors are those of the reference and of float64
CONSISTENT = 0.5  # an order below it: the error does not vanish with the step
POINTS = 8  # at which Jacobians are taken
EXACT = 1e-10  # a defect below it is rounding
MOST_BLOCKS = 20_000


@dataclass(frozen=True)
class OrderLab:
    """A smooth function, the flow on it and the step sizes.

    Args:
        damping: a of the accelerated flow, for the order; schedules of a rule's own stay.
        time: the flow is followed from t = time/2 for this long.
        blocks: how many blocks take that time: one step size for each.
        step: the step of the geometric measures.
        drift_time: over which energy is watched.
    """

    dim: int = 3
    damping: float = 0.5
    time: float = 2.0
    blocks: tuple[int, ...] = (16, 32, 64, 128, 256, 512)
    step: float = 0.25
    drift_time: float = 100.0
    given: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        for number in self.blocks:
            whole_number("--blocks", number, 1)
        if len(set(self.blocks)) < FEWEST:
            raise ConfigError(f"--blocks needs {FEWEST} different numbers or more to fit an order")
        if self.damping < 0 or not math.isfinite(self.damping):
            raise ConfigError(f"--damping must be a number from 0, not {self.damping:g}")
        for name in ("time", "step", "drift_time"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} must be a number above 0, not {value:g}")
        if max(*self.blocks, self.drift_time / self.step) > MOST_BLOCKS:
            raise ConfigError(
                f"more than {MOST_BLOCKS:,} blocks: give fewer --blocks, a larger --step or a "
                "shorter --drift-time"
            )


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


def order_results(chosen: Sequence[Rule], options: OrderLab) -> dict[str, Any]:
    """Every rule as an integrator of its flow on one function."""
    problem = smooth(options.dim, options.seed)
    known: dict[str, Tensor] = {}
    found = [measure(rule, problem, options, known) for rule in chosen]
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
    geometry = _geometry(each)
    return {
        **about,
        "flow": "accelerated" if flow.accelerated else "gradient",
        "drifts": _short(flow.drifts),
        "weights": [_short(weight) for weight in flow.weights],
        "dampings": _short(flow.dampings),
        "steps": [_short(options.time / n) for n in sorted(options.blocks)],
        "errors": [_short(error) for error in errors],
        "order": order,
        "cold_order": cold,
        **geometry,
        "remarks": _remarks(each, order, cold, geometry),
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
        damping = damping_of(each.schedule, t) if own else options.damping
        return np.concatenate([z[size:], force(z[:size]) - damping * z[size:]])

    first = [problem.start, first_velocity(problem)][: 1 + accelerated]
    z = torch.cat([part.ravel() for part in first]).numpy()
    ends = (options.time / 2, 1.5 * options.time)
    solved = solve_ivp(field_of, ends, z, method="DOP853", rtol=1e-13, atol=1e-14)
    return torch.from_numpy(solved.y[:, -1].copy())


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
        rows.append(each.schedule.at(n / 2 + number, 1.5 * n, momentum))
    return {
        name: torch.tensor([row[name] for row in rows], dtype=torch.float64)[:, None, None]
        for name in each.rule.coefficients
    }


def fit_order(options: OrderLab, errors: Sequence[float]) -> float | None:
    """The slope of log error over log step, by least squares over the shortest steps (four, or all
    beyond them that rounding leaves); None if there are not four."""
    steps = [options.time / n for n in sorted(options.blocks)]
    pairs = [(h, e) for h, e in zip(steps, errors, strict=True) if e > ROUNDING and math.isfinite(e)]
    if len(pairs) < FEWEST:
        return None
    logs = np.log(np.array(pairs[-FEWEST:]))
    return _short(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 4)


def _geometry(each: Integrator) -> dict[str, Any]:
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
        parts = [part.reshape(each.problem.start.shape) for part in z.split(size)]
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
        "reversible": _short(reversible),
        "symplectic": _short(symplectic) if accelerated else None,
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


def _drift(
    each: Integrator, block: Callable[[Streams], Streams], streams: Streams
) -> float | None:
    """The trend of the energy over the whole time, as a share of the first energy (above the
    function's minimum); None if it left the range of numbers."""
    value, energies = each.problem.value, []
    for _ in range(round(each.options.drift_time / each.options.step) + 1):
        energies.append(float(0.5 * streams["V"].square().sum() + value(streams["X"])))
        if not abs(energies[-1]) < 1e12:
            return None
        streams = block(streams)
    if len(energies) < 3:
        return None
    share = np.linspace(0.0, 1.0, len(energies))
    slope = float(np.polyfit(share, np.array(energies), 1)[0])
    return _short(slope / (energies[0] - _minimum(each.problem)))


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


def _remarks(
    each: Integrator, order: float | None, cold: float | None, geometry: Mapping[str, Any]
) -> list[str]:
    said, flow = [], each.flow
    if order is not None and order < CONSISTENT:
        said.append("not consistent: the error does not vanish with the step")
    if order is None:
        said.append("no order: fewer than four errors above rounding")
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
        said.append(f"order {cold:.2f} if {' and '.join(each.others)} start as in a model")
    ahead = geometry["lookahead"]
    if ahead is not None and geometry["symplectic"] < EXACT < ahead["symplectic"]:
        said.append(f"with lookahead (mu = 1) not symplectic ({ahead['symplectic']:.2g})")
    return said


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def _short(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")
