"""Functions to minimise, in two parts: attention's oracle sees one, the MLP's the other.

    f(X) = f_A(X) + f_M(X)        attn(Y) = -h ∇f_A(Y),   mlp(Y) = -h ∇f_M(Y)

so ``X = X + attn(X) + mlp(X)`` is gradient descent on f with step size h. X is (token, d) in
float64; everything also takes leading dimensions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from yuriiformer.errors import ConfigError, whole_number
from yuriiformer.lab.setting import SHIFT, Pull, QuadraticSplit
from yuriiformer.model.energies import Function, interaction_gradient, log_partition

WORST = 1e12  # condition number: beyond it, float64 cannot resolve the flattest direction
RADIUS, STIFFNESS = 2.0, 0.5  # of the ring that keeps the particles together


@dataclass(frozen=True)
class Problem:
    """A function in two parts and where to start.

    ``attn`` and ``mlp`` are the parts' downhill directions, minus their gradients. ``m`` and ``L``
    bound the curvature of the sum, where they are known.
    """

    start: Tensor
    value: Function
    attn: Function
    mlp: Function
    minimiser: Tensor | None = None
    m: float | None = None
    L: float | None = None

    def oracles(self, h: float | Tensor) -> tuple[Function, Function]:
        """Both oracles, multiplied by the step size: some rules have no coefficient for it."""
        return (lambda Y: h * self.attn(Y)), (lambda Y: h * self.mlp(Y))


@dataclass(frozen=True, kw_only=True)
class Quadratic(Problem):
    """f(x) = ½ (x - x*)ᵀ A (x - x*) for one token; ``axes`` are A's eigenvectors as columns, the
    flattest first, and ``centres`` the minima of the two parts."""

    minimiser: Tensor
    m: float
    L: float
    axes: Tensor
    eigenvalues: Tensor
    parts: tuple[Tensor, Tensor]
    centres: tuple[Tensor, Tensor]


def quadratic(
    condition: float = 100.0, dim: int = 2, split: QuadraticSplit = "even", seed: int = 0
) -> Quadratic:
    """Eigenvalues from m = 1 / condition to L = 1, evenly on a log scale, in a random basis.

    - ``even``: half of A each, with the same minimum.
    - ``spectrum``: A_A = √A P √A and A_M = √A (1 - P) √A, where P projects on half of the
      directions of another random basis. Their sum is A, they do not commute, and each is flat
      in directions in which the other is not.
    - ``shifted``: half of A each, with minima at x* + s and x* - s. The sum's stays at x*.
    """
    whole_number("--dim", dim, 1)
    if not 1 <= condition <= WORST:
        raise ConfigError(f"--condition must be from 1 to {WORST:g}, not {condition:g}")
    generator = torch.Generator().manual_seed(seed)
    m, L = 1.0 / condition, 1.0
    eigenvalues = torch.logspace(math.log10(m), math.log10(L), dim, dtype=torch.float64)
    axes, other = _rotation(dim, generator), _rotation(dim, generator)
    A = axes * eigenvalues @ axes.T
    minimiser = _normal((1, dim), generator)
    # Equally high along every eigenvector, so that every direction is measured.
    start = minimiser + (_signs(dim, generator) / eigenvalues.sqrt()) @ axes.T
    first = _part(axes, eigenvalues, other) if split == "spectrum" else A / 2
    shift = SHIFT * _signs(dim, generator) @ axes.T if split == "shifted" else 0.0
    parts, centres = (first, A - first), (minimiser + shift, minimiser - shift)

    def value(X: Tensor) -> Tensor:
        away = X - minimiser
        return 0.5 * (away @ A * away).sum((-2, -1))

    return Quadratic(
        start=start,
        value=value,
        attn=_downhill(parts[0], centres[0]),
        mlp=_downhill(parts[1], centres[1]),
        minimiser=minimiser,
        m=m,
        L=L,
        axes=axes,
        eigenvalues=eigenvalues,
        parts=parts,
        centres=centres,
    )


def _part(axes: Tensor, eigenvalues: Tensor, other: Tensor) -> Tensor:
    """√A P √A, where P projects on the first half of another basis."""
    root = axes * eigenvalues.sqrt() @ axes.T
    half = other[:, : (len(other) + 1) // 2]
    return root @ half @ half.T @ root


def _downhill(A: Tensor, centre: Tensor) -> Function:
    return lambda Y: (centre - Y) @ A


def particles(tokens: int = 32, dim: int = 2, pull: Pull = "gradient", seed: int = 0) -> Problem:
    """Tokens that attract each other, on a soft ring (a sphere in more dimensions):

        J(X) = -½ Σ_i log Z_i + (c/4) Σ_i (|x_i|² - r²)²,    Z_i = Σ_j exp<x_i, x_j>

    Going down -½ Σ log Z is going up in the interaction energy E = Σ Z_i, each token's part on a
    log scale. Its exact gradient is -½ (P + Pᵀ) X with P = softmax(X Xᵀ): softmax attention and
    its transpose, one and the same where P is symmetric. ``attention`` takes P X alone, which is
    the gradient of E divided by 2 Z_i token by token, and no gradient of one function.

    (With -(n/2) log E, which weighs all tokens by one number, a single token would dominate: its
    own exp|x|² outweighs all others.)
    """
    whole_number("--tokens", tokens, 1)
    whole_number("--dim", dim, 1)
    generator = torch.Generator().manual_seed(seed)
    start = _normal((tokens, dim), generator)

    def value(X: Tensor) -> Tensor:
        ring = (X.square().sum(-1) - RADIUS**2).square().sum(-1)
        return -0.5 * log_partition(X).sum(-1) + STIFFNESS / 4 * ring

    def confine(X: Tensor) -> Tensor:
        return -STIFFNESS * (X.square().sum(-1, keepdim=True) - RADIUS**2) * X

    attract = interaction_gradient if pull == "attention" else _attraction
    return Problem(start, value, attract, confine)


def _attraction(X: Tensor) -> Tensor:
    """The gradient of ½ Σ log Z_i."""
    P = (X @ X.mT).softmax(-1)
    return 0.5 * (P + P.mT) @ X


def smooth(dim: int = 3, seed: int = 0) -> Problem:
    """A convex function whose parts are neither quadratic nor of one minimum, for one token:

        f_A(x) = Σ_i log cosh<u_i, x>,    f_M(x) = ½ yᵀ B y + (1/16) Σ_l (y^(l))⁴,  y = x - c

    The u_i are random directions, B has eigenvalues from ½ to 3/2.
    """
    whole_number("--dim", dim, 1)
    generator = torch.Generator().manual_seed(seed)
    directions, axes = 1.5 * _rotation(dim, generator), _rotation(dim, generator)
    B = axes * torch.linspace(0.5, 1.5, dim, dtype=torch.float64) @ axes.T
    centre = 0.5 * _signs(dim, generator)
    start = centre + _signs(dim, generator)

    def value(X: Tensor) -> Tensor:
        along, away = X @ directions, X - centre
        bowl = 0.5 * (away @ B * away).sum((-2, -1)) + 0.0625 * away.pow(4).sum((-2, -1))
        return (torch.logaddexp(along, -along) - math.log(2.0)).sum((-2, -1)) + bowl

    def attn(X: Tensor) -> Tensor:
        return -(X @ directions).tanh() @ directions.T

    def mlp(X: Tensor) -> Tensor:
        away = X - centre
        return -(away @ B) - 0.25 * away.pow(3)

    return Problem(start, value, attn, mlp)


def clusters(X: Tensor, distance: float) -> int:
    """Number of groups of tokens when all nearer than ``distance`` are joined (single linkage)."""
    near = torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist") < distance
    n = len(X)
    label = torch.arange(n)
    near |= torch.eye(n, dtype=torch.bool)
    while True:  # the smallest label spreads through each group
        new = torch.where(near, label, n).amin(1)
        if torch.equal(new, label):
            return len(set(label.tolist()))
        label = new


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _rotation(dim: int, generator: torch.Generator) -> Tensor:
    basis: Tensor = torch.linalg.qr(_normal((dim, dim), generator))[0]
    return basis


def _signs(dim: int, generator: torch.Generator) -> Tensor:
    return torch.randint(2, (1, dim), generator=generator).double() * 2 - 1
