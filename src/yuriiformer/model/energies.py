"""The paper's two energies, their gradients, and what is left of them in a trained model.

For tokens X = (x_1, ..., x_n), each of width d, with the paper's changes of coordinates:

    E(X) = sum_ij exp(x_i' B x_j),  B = scale Q'K          interaction; Z_i = sum_j exp(x_i' B x_j)
    F(X) = sum_i sum_l v((A x_i + b)_l),  v' = sigma       potential

Exact. If B is symmetric, the gradient of E in x_i divided by 2 Z_i is softmax attention with the
value-output map V = B: one head, no bias, no mask, no LayerNorm before it. (With B = I this is
Q = K = V = I and scale 1.) For any other V and an invertible symmetric B, attention is V B^-1 times
it: the paper's preconditioner. The gradient of F is an MLP with any A, b and hidden width and
W = A', without LayerNorm before it.

Exact, of any model: with the keys of a head held fixed, the log-partition

    log Z_i(q) = log sum_(j seen) exp(scale <q, k_j>)

has the gradient scale * sum_j a_ij k_j in the query: the mean of the keys under the head's own
weights a_ij, which is what that head reads. (What it hands on is the mean of its *values* under
the same weights: the same vector only where V = K.) Likewise sum_l v(u_l) has, in the hidden
pre-activations u of an MLP, the gradient sigma(u).

Analogy. With an asymmetric Q'K, a causal mask or a LayerNorm, attention is in general not the
gradient of any energy of the tokens, whatever the factors before it: the keys move too, and a
causal sum's gradient has terms from later tokens. Several heads are a sum of gradients, each
divided by its own 2 Z_i. So a model's log-partitions may rise or fall through depth; nothing says
they must.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from yuriiformer.errors import InputError, did_you_mean

Function = Callable[[Tensor], Tensor]


def interaction_energy(X: Tensor, B: Tensor | None = None) -> Tensor:
    """E of tokens (..., token, d), one number for each leading index. B is (d, d); None is I."""
    return _products(X, B).exp().sum((-2, -1))


def log_interaction_energy(X: Tensor, B: Tensor | None = None) -> Tensor:
    """log E, which does not overflow."""
    return _products(X, B).logsumexp((-2, -1))


def log_partition(X: Tensor, B: Tensor | None = None) -> Tensor:
    """log Z_i of each token: (..., token)."""
    return _products(X, B).logsumexp(-1)


def interaction_gradient(X: Tensor, B: Tensor | None = None) -> Tensor:
    """The gradient of E divided by 2 Z_i, for a symmetric B: B times each token's softmax-weighted
    mean of all tokens."""
    mean = _products(X, B).softmax(-1) @ X
    return mean if B is None else mean @ B.mT


def potential_energy(
    X: Tensor,
    activation: str | Function = "gelu",
    A: Tensor | None = None,
    b: Tensor | None = None,
) -> Tensor:
    """F of tokens (..., token, d), one number for each leading index. A is (hidden, d), b is
    (hidden,); None is I, and 0."""
    U = X if A is None else X @ A.mT
    U = U if b is None else U + b
    return antiderivative(U, activation).sum((-2, -1))


def antiderivative(x: Tensor, activation: str | Function = "gelu") -> Tensor:
    """v with v' = activation and v(0) = 0, elementwise.

    In closed form for ``gelu`` (the exact one), ``relu``, ``tanh`` and ``identity``; ``silu``,
    ``gelu-tanh`` and any smooth activation given as a function are integrated numerically, which
    costs more.
    """
    if callable(activation):
        return _integrate(activation, x)
    if activation not in ANTIDERIVATIVES:
        known = ", ".join(ANTIDERIVATIVES)
        hint = did_you_mean(activation, ANTIDERIVATIVES) or f"; known are {known}"
        raise InputError(f"unknown activation {activation!r}{hint}; or give a function of tensors")
    return ANTIDERIVATIVES[activation](x)


def _products(X: Tensor, B: Tensor | None = None) -> Tensor:
    if X.ndim < 2:
        raise InputError(f"tokens are (..., token, d), not of shape {tuple(X.shape)}")
    return X @ X.mT if B is None else X @ B @ X.mT


def _gelu(x: Tensor) -> Tensor:
    """The antiderivative of x Phi(x), Phi and phi being the normal distribution and density:

    v(x) = ((x² - 1) Phi(x) + x phi(x)) / 2 + 1/4
    """
    density = torch.exp(-0.5 * x.square()) / math.sqrt(2 * math.pi)
    below: Tensor = torch.special.ndtr(x)
    return 0.5 * ((x.square() - 1) * below + x * density) + 0.25


ANTIDERIVATIVES: dict[str, Function] = {
    "gelu": _gelu,
    # GPT-2's approximation has no closed form. Beyond 8 it is x, or 0, to double precision.
    "gelu-tanh": lambda x: _with_tails(partial(F.gelu, approximate="tanh"), x, 8.0),
    # Of x sigmoid(x): a dilogarithm, which torch does not have. Beyond 40 it is x, or 0.
    "silu": lambda x: _with_tails(F.silu, x, 40.0),
    "relu": lambda x: 0.5 * x.relu().square(),
    "tanh": lambda x: torch.logaddexp(x, -x) - math.log(2.0),  # log cosh
    "identity": lambda x: 0.5 * x.square(),
}


def _with_tails(function: Function, x: Tensor, far: float) -> Tensor:
    """The integral of a function that is x above ``far`` and 0 below -``far``: the work does not
    grow with the largest x."""
    above = x.clamp(min=far)
    return _integrate(function, x.clamp(-far, far)) + 0.5 * (above.square() - far**2)


NODES, WIDTH = 24, 2.0  # Gauss-Legendre nodes on each piece, and the width of a piece


def _integrate(function: Function, x: Tensor) -> Tensor:
    """The integral from 0 to x: pieces of equal width, at most `WIDTH`, each by Gauss-Legendre.

    scipy's quadratures are of scalars and have no gradient.
    """
    finite = x.detach()[x.detach().isfinite()].abs()
    pieces = max(1, math.ceil(float(finite.max()) / WIDTH)) if finite.numel() else 1
    nodes, weights = _gauss(NODES)
    total = torch.zeros_like(x)
    for piece in range(pieces):
        for node, weight in zip(nodes, weights, strict=True):
            total = total + weight * function(x * ((piece + node) / pieces))
    return total * x / pieces


@cache
def _gauss(n: int) -> tuple[list[float], list[float]]:
    """Nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return list((nodes + 1) / 2), list(weights / 2)
