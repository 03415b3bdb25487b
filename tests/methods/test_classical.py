"""With oracles = minus a gradient and no norm, the rules are the textbook methods."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.longhand import LONGHAND
from tests.methods.worlds import World


class Quadratic:
    """f(x) = x·Hx/2 − b·x, split into the part attention sees and the part the MLP sees."""

    def __init__(self, eigenvalues: torch.Tensor, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        d = eigenvalues.numel()
        basis = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0]
        self.hessian = basis @ torch.diag(eigenvalues) @ basis.T
        self.basis = basis
        self.share = torch.rand(1, generator=generator, dtype=torch.float64).item()

    def value(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x @ self.hessian * x).sum()

    def oracles(self, lr: float):
        return {
            "attn": lambda x: -lr * self.share * (x @ self.hessian),
            "mlp": lambda x: -lr * (1 - self.share) * (x @ self.hessian),
        }


def torch_sgd(problem: Quadratic, x0: torch.Tensor, lr: float, steps: int, **options):
    x = x0.clone().requires_grad_(True)
    optimizer = torch.optim.SGD([x], lr=lr, **options)
    path = []
    for _ in range(steps):
        optimizer.zero_grad()
        problem.value(x).backward()
        optimizer.step()
        path.append(x.detach().clone())
    return path


@pytest.fixture
def problem() -> Quadratic:
    return Quadratic(torch.logspace(-2, 0, 12, dtype=torch.float64))


@pytest.fixture
def x0() -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(3, 12, generator=generator, dtype=torch.float64)


def test_polyak_euler_is_sgd_with_momentum(problem, x0):
    X, V = x0, torch.zeros_like(x0)
    for expected in torch_sgd(problem, x0, 0.4, 50, momentum=0.8):
        X, V = yf.apply_rule(
            yf.rules["polyak-euler"],
            X,
            V,
            coefficients={"beta": 0.8, "gamma": 1.0},
            **problem.oracles(0.4),
        )
        torch.testing.assert_close(X, expected, rtol=1e-12, atol=1e-14)


def test_nesterov_euler_is_sgd_with_nesterov_at_its_lookahead(problem, x0):
    """PyTorch's parameter is the lookahead point p = X + mu V."""
    mu = 0.8
    X, V = x0, torch.zeros_like(x0)
    for expected in torch_sgd(problem, x0, 0.4, 50, momentum=mu, nesterov=True):
        X, V = yf.apply_rule(
            yf.rules["nesterov-euler"],
            X,
            V,
            coefficients={"mu": mu, "beta": mu, "gamma": 1.0},
            **problem.oracles(0.4),
        )
        torch.testing.assert_close(X + mu * V, expected, rtol=1e-12, atol=1e-14)


def test_gd_euler_is_sgd(problem, x0):
    X = x0
    for expected in torch_sgd(problem, x0, 0.4, 50):
        X, _ = yf.apply_rule(yf.rules["gd-euler"], X, **problem.oracles(0.4))
        torch.testing.assert_close(X, expected, rtol=1e-12, atol=1e-14)


def test_nesterovs_sequence_reaches_the_accelerated_rate_and_gradient_descent_does_not():
    """f(x_k) ≤ 2 |x_0|² / (k + 1)² for smoothness 1: Nesterov's bound, on a bad quadratic."""
    steps = 600
    problem = Quadratic(torch.logspace(-5, 0, 60, dtype=torch.float64))
    x0 = problem.basis.sum(dim=1)  # equally far along every eigenvector
    sequence = yf.Coefficient("unit", "t / (t + 3)", learned=False)
    bound = [2 * (x0 @ x0).item() / (k + 1) ** 2 for k in range(1, steps + 1)]

    X, V, nesterov = x0, torch.zeros_like(x0), []
    for t in range(steps):
        mu = sequence.value(t, steps)
        X, V = yf.apply_rule(
            yf.rules["nesterov-euler"],
            X,
            V,
            coefficients={"mu": mu, "beta": mu, "gamma": 1.0},
            **problem.oracles(1.0),
        )
        nesterov.append(problem.value(X).item())
    X, descent = x0, []
    for _ in range(steps):
        X, _ = yf.apply_rule(yf.rules["gd-euler"], X, **problem.oracles(1.0))
        descent.append(problem.value(X).item())

    assert all(value <= limit for value, limit in zip(nesterov, bound, strict=True))
    assert descent[-1] > bound[-1]
    assert nesterov[-1] < descent[-1] / 10


PAIRS = [("nesterov-euler", "polyak-euler"), ("nesterov-lie-trotter", "polyak-lie-trotter")]


@pytest.mark.parametrize(("nesterov", "polyak"), PAIRS)
def test_without_lookahead_nesterov_is_polyak(nesterov, polyak):
    world = World(3)
    options = {"attn": world.attn, "mlp": world.mlp, "velocity_norm": world.norm}
    zero = {**world.coefficients, "mu": 0.0, "mu_half": 0.0}
    results = [
        yf.apply_rule(
            yf.rules[name],
            world.X,
            world.V,
            coefficients={key: zero[key] for key in yf.rules[name].coefficients},
            **options,
        )
        for name in (nesterov, polyak)
    ]
    for with_zero_mu, without in zip(*results, strict=True):
        assert torch.equal(with_zero_mu, without)


SWAPPED = [(name, name.replace("attn-mlp", "mlp-attn")) for name in LONGHAND if "attn-mlp" in name]
SWAPPED.append(("verlet-ama", "verlet-mam"))


@pytest.mark.parametrize(("original", "swapped"), SWAPPED)
def test_a_swapped_rule_is_the_original_with_swapped_oracles(original, swapped):
    assert original != swapped
    world = World(4)
    first, second = yf.rules[original], yf.rules[swapped]
    assert first.coefficients == second.coefficients
    options = {"coefficients": world.only(first.coefficients), "velocity_norm": world.norm}
    one = yf.apply_rule(first, world.X, world.V, attn=world.attn, mlp=world.mlp, **options)
    two = yf.apply_rule(second, world.X, world.V, attn=world.mlp, mlp=world.attn, **options)
    assert torch.equal(one[0], two[0])
    assert torch.equal(one[1], two[1])


def test_imex_with_one_refinement_is_the_form_the_paper_prints():
    world = World(5)
    c, N, A, M, X_t, V_t = world.coefficients, world.norm, world.attn, world.mlp, world.X, world.V
    X_half = X_t + c["mu"] * V_t
    V_half = c["beta"] * V_t + c["gamma"] * A(X_half)
    X_in = X_t + c["mu_half"] * V_half
    V_next = N(c["beta"] * V_half + c["gamma_half"] * M(X_in))
    X_next = X_t + V_next
    rule = yf.rules["imex1-attn-mlp"]
    X, V = yf.apply_rule(
        rule,
        X_t,
        V_t,
        attn=A,
        mlp=M,
        coefficients=world.only(rule.coefficients),
        velocity_norm=N,
    )
    torch.testing.assert_close(X, X_next, rtol=0, atol=1e-12)
    torch.testing.assert_close(V, V_next, rtol=0, atol=1e-12)
