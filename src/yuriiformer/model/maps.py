"""The linear maps of an attention head, and what their spectra say.

A head with the matrices Q, K, V (each d_head × d, the gain of the norm before them included) and
its part O (d × d_head) of the output projection does two things to normalised tokens:

    query–key       B = scale · QᵀK    which tokens it looks at: scores x_iᵀ B x_j
    value–output    V = O V            what it adds of them

Both are d × d and of rank d_head, so all is computed from their factors. Biases are not in them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

STRONG = 0.5  # attraction beyond which a map counts as attractive, or below minus it as repulsive


@dataclass(frozen=True)
class LinearMap:
    """``left @ right`` (head, d, d), of rank d_head."""

    left: Tensor  # (head, d, d_head)
    right: Tensor  # (head, d_head, d)

    @property
    def matrix(self) -> Tensor:
        return self.left @ self.right

    @property
    def eigenvalues(self) -> Tensor:
        """Those that may differ from zero, complex: (head, d_head). They are those of
        ``right @ left``. By real part, the largest first."""
        found = eigenvalues(self.right @ self.left)
        order = found.real.argsort(dim=-1, descending=True)
        return found.gather(-1, order)

    @property
    def norm(self) -> Tensor:
        """Frobenius norm."""
        return inner(self, self).clamp(min=0).sqrt()

    @property
    def attraction(self) -> Tensor:
        """Σ Re λ / Σ |λ|, from -1 to 1: 1 if all eigenvalues are positive, -1 if all are negative,
        about 0 if they are mixed, or turn."""
        values = self.eigenvalues
        return values.real.sum(-1) / values.abs().sum(-1)

    @property
    def symmetric(self) -> Tensor:
        """The share of the symmetric part in the squared norm, |S|² / (|S|² + |A|²): 1 for a
        symmetric map, 0 for an antisymmetric one, about ½ for a random one."""
        core = self.right @ self.left
        squared = (core * core.mT).sum((-2, -1))  # the trace of the map's square: |S|² - |A|²
        return 0.5 * (1 + squared / inner(self, self))


def eigenvalues(matrices: Tensor) -> Tensor:
    """NaN for a matrix with entries that are not finite: LAPACK raises an error there, or kills
    the process (MKL on some processors)."""
    finite = matrices.isfinite().all(-1).all(-1)[..., None]
    found: Tensor = torch.linalg.eigvals(matrices.where(finite[..., None], 0.0))
    return found.where(finite, torch.nan)


def inner(a: LinearMap, b: LinearMap) -> Tensor:
    """tr(aᵀ b) of each head."""
    return ((a.left.mT @ b.left) * (a.right @ b.right.mT)).sum((-2, -1))


def alignment(a: LinearMap, b: LinearMap) -> Tensor:
    """The cosine between two maps: 1 if one is a positive multiple of the other."""
    return inner(a, b) / (a.norm * b.norm)


@dataclass(frozen=True)
class HeadMaps:
    query_key: LinearMap
    value_output: LinearMap


def head_maps(q: Tensor, k: Tensor, v: Tensor, out: Tensor, n_head: int) -> HeadMaps:
    """From matrices (head · d_head, d) of queries, keys and values, and (d, head · d_head) of the
    output; keys and values may be of fewer heads, which groups of query heads share."""
    d = q.shape[1]
    size = q.shape[0] // n_head
    q, k, v = (each.detach().double().reshape(-1, size, d) for each in (q, k, v))
    k, v = (each.repeat_interleave(n_head // len(each), dim=0) for each in (k, v))
    output = out.detach().double().reshape(d, n_head, size).transpose(0, 1)
    return HeadMaps(LinearMap(size**-0.5 * q.mT, k), LinearMap(output, v))


def with_gain(matrix: Tensor, norm: nn.Module) -> Tensor:
    """A matrix that follows a norm, with the norm's gain."""
    gain = getattr(norm, "weight", None)
    return matrix if gain is None else matrix * gain


def kind(attraction: float) -> str:
    """attractive, repulsive or mixed."""
    if attraction >= STRONG:
        return "attractive"
    return "repulsive" if attraction <= -STRONG else "mixed"
