"""The behaviour of a rule on a quadratic, without a long run.

On a quadratic every oracle is affine, so (without a norm, and with the usual arithmetic) a block
is an affine map of the stacked streams,

    z ← T z + b        rate per block: the spectral radius of T;   limit: z = T z + b

whatever the rule's equations are. T and b are found by running the rule itself on a basis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from yuriiformer.display.curves import Floats
from yuriiformer.lab.problems import Problem, Quadratic
from yuriiformer.lab.run import first_streams
from yuriiformer.lab.setting import Setting, momentum_of
from yuriiformer.methods.interpreter import run_rule
from yuriiformer.methods.rule import Rule
from yuriiformer.model.maps import eigenvalues

FLOOR = 1e-11  # of the problem's size: smaller distances are rounding errors
UPHILL = 1e-5  # growth per block at h = 0.001 / L that is more than rounding
FEWEST = 12  # distances to fit a rate to


@dataclass(frozen=True)
class Theory:
    """``radius`` is the rate per block; ``limit`` is the fixed point of X, None unless there is
    exactly one; ``uphill``: it does not converge, however small the step."""

    radius: float
    limit: Tensor | None
    uphill: bool


def gradient_descent_rate(condition: float) -> float:
    """With h = 2 / (m + L), which is optimal."""
    return (condition - 1) / (condition + 1)


def nesterov_rate(condition: float) -> float:
    """With h = 1 / L and mu = beta = (√κ - 1) / (√κ + 1)."""
    return 1 - 1 / math.sqrt(condition)


def polyak_rate(condition: float) -> float:
    """With h = 4 / (√L + √m)² and beta = ((√κ - 1) / (√κ + 1))²."""
    root = math.sqrt(condition)
    return (root - 1) / (root + 1)


def affine_map(
    problem: Problem, rule: Rule, h: float | Tensor, coefficients: Mapping[str, float | Tensor]
) -> tuple[Tensor, Tensor] | None:
    """T and b of a block, or None if it is no affine map."""
    T, b, probe, seen = _probe(problem, rule, h, coefficients)
    # A loose tolerance: these are differences of nearly equal numbers.
    close = (seen - (T @ probe + b)).abs() <= 1e-6 * (1 + seen.abs())
    return (T, b) if bool(close.all()) else None


def _probe(
    problem: Problem, rule: Rule, h: float | Tensor, coefficients: Mapping[str, float | Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """T and b from the images of zero and a basis; one more point, and its image.

    Step size and coefficients may be tensors of shape (n, 1, 1, 1): then there are n maps.
    Streams that a block never writes are part of b.
    """
    first = first_streams(rule, problem.start)
    written = {assign.target for assign in rule.assigns}
    moving = [name for name in rule.streams if name in written]
    size = problem.start.numel()
    probe = torch.linspace(-1.0, 2.0, size * len(moving), dtype=torch.float64)
    points = torch.cat([torch.zeros_like(probe)[None], torch.eye(len(probe)), probe[None]])
    shape = (len(points), *problem.start.shape)
    streams = {name: value.expand(shape) for name, value in first.items()}
    for number, name in enumerate(moving):
        streams[name] = points[:, number * size : (number + 1) * size].reshape(shape)
    attn, mlp = problem.oracles(h)
    after = run_rule(rule, streams, attn=attn, mlp=mlp, coefficients=coefficients)
    flat = [after[name].flatten(-2) for name in moving]
    images = torch.cat(torch.broadcast_tensors(*flat), dim=-1)  # type: ignore[no-untyped-call]
    b, rows, seen = images[..., 0, :], images[..., 1:-1, :], images[..., -1, :]
    return (rows - b[..., None, :]).mT, b, probe, seen


def spectral_radius(T: Tensor) -> Tensor:
    radius: Tensor = eigenvalues(T).abs().amax(-1)
    return radius


def theory(problem: Quadratic, rule: Rule, setup: Setting) -> Theory | None:
    """Rate and limit; None where blocks differ or are not affine."""
    found = affine_map(problem, rule, setup.h, setup.blocks[0]) if setup.steady else None
    if found is None:
        return None
    small = affine_map(problem, rule, 1e-3 / problem.L, setup.blocks[0])
    uphill = small is not None and float(spectral_radius(small[0])) > 1 + UPHILL
    return Theory(float(spectral_radius(found[0])), _limit(*found, problem), uphill)


def _limit(T: Tensor, b: Tensor, problem: Problem) -> Tensor | None:
    """The fixed point of X, which is the first stream."""
    system = torch.eye(len(b), dtype=b.dtype) - T
    if not torch.linalg.cond(system) < 1e12:
        return None
    size = problem.start.numel()
    found: Tensor = torch.linalg.solve(system, b)[:size].reshape(problem.start.shape)
    return found


def bias_order(problem: Quadratic, rule: Rule, setup: Setting) -> float | None:
    """p where the limit's distance to the minimum goes as h^p for small h and fixed coefficients;
    None where there is no distance."""
    distances = []
    for part in (1 / 64, 1 / 128):
        found = affine_map(problem, rule, part * setup.h, setup.blocks[0])
        limit = None if found is None else _limit(*found, problem)
        if limit is None:
            return None
        distances.append(float((limit - problem.minimiser).norm()))
    if min(distances) < 1e-9:
        return None
    return math.log2(distances[0] / distances[1])


def tune(
    problem: Quadratic,
    rule: Rule,
    setup: Setting,
    *,
    h: float | None = None,
    keep: Collection[str] = (),
) -> Setting:
    """The step size (unless it is given) and the one value of all momentum coefficients (but those
    to keep) for which the spectral radius is least: a grid, then ever finer ones around the best.
    What cannot be tuned stays as it is: where no setting converges, or there is no theory."""
    names = [name for name in momentum_of(rule) if name not in keep]
    if not setup.steady or affine_map(problem, rule, setup.h, setup.blocks[0]) is None:
        return setup
    side = 31 if problem.start.numel() <= 8 else 13
    # On log scales: h from 0.01/L to 30/L, and how far the momentum is from 1.
    centre = np.array([math.log(0.55 / problem.L if h is None else h), -5.0])
    width = np.array([4.0 if h is None else 0.0, 5.0 if names else 0.0])
    best, found = 1.0, setup
    for _ in range(24):
        axes = [_around(c, w, side) for c, w in zip(centre, width, strict=True)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        sizes, momenta = np.exp(grid[:, 0]), 1 - np.exp(np.minimum(grid[:, 1], 0.0))
        radii = _radii(problem, rule, setup, sizes, dict.fromkeys(names, momenta))
        least = int(np.argmin(radii))
        if radii[least] < best:
            best, centre = float(radii[least]), grid[least]
            found = setup.with_momentum(float(sizes[least]), float(momenta[least]), names)
        width = width * 0.5
    return found


def _around(centre: float, width: float, side: int) -> Floats:
    return np.linspace(centre - width, centre + width, side) if width else np.array([centre])


def _radii(
    problem: Problem, rule: Rule, setup: Setting, sizes: Floats, momenta: Mapping[str, Floats]
) -> Floats:
    def column(values: Floats) -> Tensor:
        return torch.from_numpy(values)[:, None, None, None]

    changed = {name: column(values) for name, values in momenta.items()}
    T, *_ = _probe(problem, rule, column(sizes), {**setup.blocks[0], **changed})
    found: Floats = spectral_radius(T).nan_to_num(nan=math.inf, posinf=math.inf).numpy()
    return found


def fit_rate(distances: Sequence[float], size: float) -> float | None:
    """The rate per block, fitted to distances d_k from the limit; None if there are too few.

    log d_k ≈ a + k log(rate) by least squares, plus p log(k + 1) where that fits far better: at
    double roots d_k goes as k rate^k. Distances that are rounding errors are left out, and the
    first third of the rest, in which faster modes still decay. Where momentum oscillates, only the
    peaks count.
    """
    d = np.asarray(distances, dtype=np.float64)
    later = np.maximum.accumulate(d[::-1])[::-1]
    rounding = later < FLOOR * size
    end = int(np.argmax(rounding)) if rounding.any() else len(d)
    k = np.arange(end // 3, end)
    k = k[d[k] > 0]
    if len(k) < FEWEST:
        return None
    inner = k[1:-1]
    peaks = inner[(d[inner] >= d[inner - 1]) & (d[inner] > d[inner + 1])]
    k = peaks if len(peaks) >= 4 else k
    logs, columns = np.log(d[k]), [np.ones(len(k)), k, np.log(k + 1.0)]
    plain, left = _least_squares(columns[:2], logs)
    bent, less = _least_squares(columns, logs)
    return float(np.exp(bent[1] if 4 * less < left and bent[2] > 0.5 else plain[1]))


def _least_squares(columns: Sequence[Floats], values: Floats) -> tuple[Floats, float]:
    """Coefficients, and the sum of squares that they leave over."""
    design = np.stack(columns, axis=1)
    found = np.asarray(np.linalg.lstsq(design, values, rcond=None)[0], dtype=np.float64)
    return found, float(np.square(values - design @ found).sum())
