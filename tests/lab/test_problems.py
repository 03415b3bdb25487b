"""The functions of the lab: their parts, gradients and what is known about them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import yuriiformer as yf
from yuriiformer.lab.problems import clusters, particles, quadratic

SPLITS = ("even", "spectrum", "shifted")


def gradient(function, X):
    X = X.clone().requires_grad_(True)
    (found,) = torch.autograd.grad(function(X), X)
    return found


def somewhere(problem, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(problem.start.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dim", [1, 2, 7])
def test_a_quadratics_parts_add_up_to_its_gradient(split, dim):
    problem = quadratic(50.0, dim, split, seed=4)
    X = somewhere(problem)
    both = problem.attn(X) + problem.mlp(X)
    torch.testing.assert_close(both, -gradient(problem.value, X), rtol=0, atol=1e-12)
    at_minimum = problem.attn(problem.minimiser) + problem.mlp(problem.minimiser)
    torch.testing.assert_close(at_minimum, torch.zeros_like(X), rtol=0, atol=1e-12)
    assert problem.value(problem.minimiser) == 0


@pytest.mark.parametrize("split", SPLITS)
def test_a_quadratics_curvatures_are_as_asked(split):
    problem = quadratic(1000.0, 5, split)
    hessian = torch.autograd.functional.hessian(problem.value, problem.start).reshape(5, 5)
    expected = torch.logspace(-3, 0, 5, dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.eigvalsh(hessian), expected, rtol=1e-9, atol=0)
    assert (problem.m, problem.L) == (0.001, 1.0)
    for part in problem.parts:
        assert torch.linalg.eigvalsh(part).min() > -1e-12


def test_splits_are_what_they_say():
    even, spectrum, shifted = (quadratic(100.0, 6, split) for split in SPLITS)
    for problem in (even, spectrum):
        assert torch.equal(*problem.centres)
    assert torch.equal(*even.parts)
    first, second = spectrum.parts
    assert (first @ second - second @ first).norm() > 1e-2
    assert torch.linalg.matrix_rank(first) == 3
    apart = shifted.centres[0] - shifted.centres[1]
    along = (apart @ shifted.axes).abs()
    torch.testing.assert_close(along, torch.ones_like(along))
    for centre, oracle in zip(shifted.centres, (shifted.attn, shifted.mlp), strict=True):
        assert oracle(centre).norm() < 1e-12
        assert shifted.value(centre) > 0.1


def test_the_start_is_equally_high_along_every_axis():
    problem = quadratic(100.0, 4)
    along = (problem.start - problem.minimiser) @ problem.axes
    torch.testing.assert_close(problem.eigenvalues * along.square(), torch.ones_like(along))


def test_seeds_make_the_problem():
    assert torch.equal(quadratic(seed=1).start, quadratic(seed=1).start)
    assert not torch.equal(quadratic(seed=1).start, quadratic(seed=2).start)
    assert not torch.equal(particles(seed=1).start, particles(seed=2).start)


def longhand_energy(X):
    """J, token by token."""
    total = 0.0
    for x in X.numpy():
        total -= 0.5 * math.log(sum(math.exp(float(x @ y)) for y in X.numpy()))
        total += 0.5 / 4 * (float(x @ x) - 2.0**2) ** 2
    return total


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_particles_oracles_are_the_exact_gradient(dim):
    problem = particles(9, dim, seed=2)
    X = somewhere(problem)
    assert problem.value(X).item() == pytest.approx(longhand_energy(X), abs=1e-10)
    both = problem.attn(X) + problem.mlp(X)
    torch.testing.assert_close(both, -gradient(problem.value, X), rtol=0, atol=1e-12)


def test_softmax_attention_as_an_oracle():
    problem = particles(6, 3, "attention")
    X = somewhere(problem)
    expected = torch.nn.functional.scaled_dot_product_attention(X, X, X, scale=1.0)
    torch.testing.assert_close(problem.attn(X), expected)
    exact = particles(6, 3)
    assert (exact.attn(X) - expected).norm() > 0.1  # it is not the gradient ...
    angles = torch.arange(6, dtype=torch.float64) * math.pi / 3
    even = torch.stack([angles.cos(), angles.sin()], dim=1)  # ... but where P is symmetric
    torch.testing.assert_close(exact.attn(even), problem.attn(even))


def test_leading_dimensions_are_many_problems_at_once():
    for problem in (quadratic(10.0, 3, "shifted"), particles(5, 2)):
        X = torch.stack([somewhere(problem, seed) for seed in range(4)])
        for function in (problem.attn, problem.mlp, problem.value):
            each = torch.stack([function(x) for x in X])
            torch.testing.assert_close(function(X), each)


@pytest.mark.parametrize("distance", [0.1, 0.3, 0.8, 5.0])
def test_clusters_are_single_linkage(distance):
    from scipy.cluster.hierarchy import fcluster, linkage

    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(40, 2))
        theirs = fcluster(linkage(X, "single"), distance, "distance").max()
        assert clusters(torch.from_numpy(X), distance) == theirs


def test_a_chain_is_one_cluster():
    chain = torch.arange(30, dtype=torch.float64)[:, None].flip(0)
    assert clusters(chain, 1.01) == 1
    assert clusters(chain, 0.99) == 30


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: quadratic(0.5), "--condition must be from 1 to 1e\\+12, not 0.5"),
        (lambda: quadratic(math.nan), "--condition"),
        (lambda: quadratic(math.inf), "--condition"),
        (lambda: quadratic(10.0, 0), "--dim must be at least 1, not 0"),
        (lambda: particles(0), "--tokens must be at least 1, not 0"),
        (lambda: particles(3, -1), "--dim must be at least 1, not -1"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(yf.YuriiError, match=words):
        make()
