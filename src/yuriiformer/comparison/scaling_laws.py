"""Laws of the loss against size, fitted to many draws of the losses at once.

    in compute           L = E + A C^-a          for each arm; E is shared: it is the text's
    in parameters and    L = E + A N^-α + B D^-β
    tokens

Losses are rows: the measured ones, or draws of a bootstrap. Errors count by Huber's loss, summed:
squared up to `HUBER` nats, linear beyond, so that one bad run does not bend a law. Only E or the
exponents are searched, on grids that close in; what is left is linear, and not negative.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from yuriiformer.display.curves import Floats

HUBER = 0.01  # nats: about two standard deviations of a seed at the sizes of a CPU
LEAST, MOST = 0.005, 3.0  # of an exponent
ROUNDS = 15  # of reweighting


@dataclass(frozen=True)
class ComputeLaws:
    """L = E + A C^-a, a law per draw: three arrays of the same length."""

    floor: Floats
    level: Floats  # the logarithm of A
    exponent: Floats

    def loss(self, compute: float | Floats) -> Floats:
        """The loss of each draw (rows) at each compute (columns)."""
        logs = np.log(np.asarray(compute, dtype=np.float64))
        falling = _column(self.level, compute) - _column(self.exponent, compute) * logs
        return np.asarray(_column(self.floor, compute) + np.exp(falling))

    def compute(self, loss: Floats) -> Floats:
        """Where each draw reaches its loss; infinite where it never does."""
        above = np.maximum(loss - self.floor, 0.0)
        with np.errstate(divide="ignore", over="ignore"):
            return np.exp((self.level - np.log(above)) / self.exponent)

    def __getitem__(self, draws: slice) -> ComputeLaws:
        return ComputeLaws(self.floor[draws], self.level[draws], self.exponent[draws])


def _column(values: Floats, like: float | Floats) -> Floats:
    return values[:, None] if np.ndim(like) else values


def huber(residuals: Floats) -> Floats:
    size = np.abs(residuals)
    return np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2))


def huber_weights(residuals: Floats) -> Floats:
    return HUBER / np.maximum(np.abs(residuals), HUBER)


def fit_compute(computes: Sequence[Floats], losses: Sequence[Floats]) -> list[ComputeLaws]:
    """Laws of several arms with a shared floor. Of each arm, the compute of its runs and a row of
    their losses per draw."""
    lowest = np.min([rows.min(axis=1) for rows in losses], axis=0)
    low, high = np.zeros_like(lowest), lowest - 1e-3
    points = 33
    for _ in range(9):
        floors = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, points)
        errors = np.sum(
            [_power_law(x, y, floors)[2] for x, y in zip(computes, losses, strict=True)], axis=0
        )
        best = np.take_along_axis(floors, errors.argmin(axis=1)[:, None], axis=1)[:, 0]
        reach = 2 * (high - low) / (points - 1)
        low, high = np.maximum(best - reach, 0.0), np.minimum(best + reach, lowest - 1e-3)
        points = 9
    laws = []
    for x, y in zip(computes, losses, strict=True):
        level, exponent, _ = _power_law(x, y, best[:, None])
        laws.append(ComputeLaws(best, level[:, 0], exponent[:, 0]))
    return laws


def _power_law(compute: Floats, losses: Floats, floors: Floats) -> tuple[Floats, Floats, Floats]:
    """log A, a and the summed error of L - E = A C^-a, for every draw and every floor: Gauss and
    Newton's method with Huber's weights, from the straight line through the logarithms."""
    middle = float(np.log(compute).mean())
    x = np.log(compute) - middle
    above = losses[:, None, :] - floors[:, :, None]  # draws, floors, runs
    logs = np.log(np.maximum(above, 1e-6))
    p, a = _line(x, logs, np.maximum(above, 1e-6) ** 2)
    for _ in range(ROUNDS):
        value = np.exp(p[..., None] - a[..., None] * x)
        residual = above - value
        # The line that the tangent makes of this, in p and a.
        step_p, step_a = _line(x, residual / value, huber_weights(residual) * value**2)
        p = p + np.clip(step_p, -1.0, 1.0)
        a = np.clip(a + np.clip(step_a, -0.2, 0.2), LEAST, MOST)
    residual = above - np.exp(p[..., None] - a[..., None] * x)
    return p + a * middle, a, huber(residual).sum(axis=-1)


def _line(x: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """p and a of y = p - a x, by weighted least squares over the last axis."""
    whole = weights.sum(axis=-1)
    centre = (weights * x).sum(axis=-1) / whole
    off = x - centre[..., None]
    level = (weights * y).sum(axis=-1) / whole
    a = -(weights * off * y).sum(axis=-1) / np.maximum((weights * off**2).sum(axis=-1), 1e-300)
    return level + a * centre, a


@dataclass(frozen=True)
class SizeLaws:
    """L = E + A N^-α + B D^-β, a law per draw; A and B for N and D in units of `unit`."""

    floor: Floats
    A: Floats
    alpha: Floats
    B: Floats
    beta: Floats
    unit: tuple[float, float]

    def loss(self, parameters: Floats, tokens: Floats) -> Floats:
        n, d = parameters / self.unit[0], tokens / self.unit[1]
        by_size = self.A[:, None] * n ** -self.alpha[:, None]
        return self.floor[:, None] + by_size + self.B[:, None] * d ** -self.beta[:, None]

    def frontier(self, flops: float) -> ComputeLaws:
        """The lowest loss that a compute buys, where a token costs ``flops`` per parameter: N and D
        with αA N^-α = βB D^-β. It is E + A' C^-a with a = αβ / (α + β)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
            a = self.alpha * self.beta / (self.alpha + self.beta)
            A = self.A * share**-self.alpha + self.B * share**self.beta
            level = np.log(A) + a * np.log(flops * self.unit[0] * self.unit[1])
        return ComputeLaws(self.floor, level, a)


def fit_sizes(parameters: Floats, tokens: Floats, losses: Floats) -> SizeLaws:
    """The law in parameters and tokens, for every row of losses."""
    unit = (float(np.exp(np.log(parameters).mean())), float(np.exp(np.log(tokens).mean())))
    n, d = parameters / unit[0], tokens / unit[1]
    grid = np.geomspace(0.03, 1.5, 16)
    pairs = np.array(list(itertools.product(grid, grid)))[None]  # draws, pairs, 2
    pairs = np.repeat(pairs, len(losses), axis=0)
    reach = np.log(grid[1] / grid[0]) * 1.5
    offsets = np.array(list(itertools.product(np.linspace(-1, 1, 5), repeat=2)))
    for _ in range(12):
        linear, errors = _linear(n, d, losses, pairs)
        place = errors.argmin(axis=1)[:, None, None]
        best = np.take_along_axis(pairs, place, axis=1)
        numbers = np.take_along_axis(linear, place, axis=1)[:, 0]
        pairs = np.clip(best * np.exp(reach * offsets)[None], LEAST, MOST)
        reach *= 0.6
    alpha, beta = best[:, 0].T
    return SizeLaws(numbers[:, 0], numbers[:, 1], alpha, numbers[:, 2], beta, unit)


def _linear(n: Floats, d: Floats, losses: Floats, pairs: Floats) -> tuple[Floats, Floats]:
    """E, A and B for every draw and pair of exponents, and the summed error."""
    columns = np.stack(
        [
            np.ones((*pairs.shape[:2], len(n))),
            n ** -pairs[..., :1],
            d ** -pairs[..., 1:],
        ],
        axis=-1,
    )
    y = losses[:, None, :]
    weights = np.ones(columns.shape[:-1])
    for _ in range(4):
        found = nonnegative(columns, y, weights)
        residual = y - np.einsum("...nk,...k->...n", columns, found)
        weights = huber_weights(residual)
    return found, huber(residual).sum(axis=-1)


def nonnegative(columns: Floats, y: Floats, weights: Floats) -> Floats:
    """Weighted least squares with no negative coefficient, exactly: the best of all subsets of the
    columns whose solution has none. There are few columns, and thousands of problems at once."""
    squares = np.einsum("...ni,...n,...nj->...ij", columns, weights, columns)
    along = np.einsum("...ni,...n,...n->...i", columns, weights, y)
    count = columns.shape[-1]
    best = np.zeros(along.shape)
    gain = np.zeros(along.shape[:-1])  # by which the squared error falls below that of zeros
    for size in range(1, count + 1):
        for subset in itertools.combinations(range(count), size):
            own = list(subset)
            part = squares[..., own, :][..., own]
            ridge = 1e-12 * np.trace(part, axis1=-2, axis2=-1)[..., None, None] * np.eye(size)
            found = np.linalg.solve(part + ridge, along[..., own][..., None])[..., 0]
            falls = np.einsum("...i,...i->...", found, along[..., own])
            better = (found >= 0).all(axis=-1) & (falls > gain)
            gain = np.where(better, falls, gain)
            whole = np.zeros(along.shape)
            whole[..., own] = found
            best = np.where(better[..., None], whole, best)
    return best
