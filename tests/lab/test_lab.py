"""The rules on plain optimisation: measured against theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import yuriiformer as yf
from yuriiformer.lab.problems import particles, quadratic
from yuriiformer.lab.run import first_streams, named_rules, parse_given, trajectory
from yuriiformer.lab.setting import classical, momentum_of, setting
from yuriiformer.lab.theory import (
    affine_map,
    bias_order,
    fit_rate,
    gradient_descent_rate,
    nesterov_rate,
    polyak_rate,
    spectral_radius,
    theory,
    tune,
)
from yuriiformer.methods.catalog import paper

CLOSED = {
    "gd-euler": gradient_descent_rate,
    "polyak-euler": polyak_rate,
    "nesterov-euler": nesterov_rate,
}
EULER = list(CLOSED)
UNBIASED = [*EULER, "adams-bashforth"]  # one point at which both oracles are asked
NO_THEORY = ("nesterov-classical", "adam-like")  # blocks that differ, a root
SPLIT_RULES = ["gd-lie-trotter", "polyak-lie-trotter", "nesterov-lie-trotter", "verlet-ama"]


def distances(problem, rule, setup, to):
    path = trajectory(problem, rule, setup)
    return (path.X - to).flatten(1).norm(dim=1).tolist()


def enough(radius: float) -> int:
    """Blocks in which a rule comes to 1e-9 of where it was (or goes to 1e9 times that)."""
    return min(3000, max(60, math.ceil(21 / abs(math.log(radius)))))


@pytest.mark.parametrize("condition", [10.0, 100.0, 1000.0])
@pytest.mark.parametrize("name", CLOSED)
def test_textbook_rates(name, condition):
    """The matrix has the textbook's rate; the run has it too. (A double root is only known to the
    square root of rounding, and d_k ~ k rate^k is harder to fit.)"""
    rule, problem = yf.rules[name], quadratic(condition, 6)
    expected = CLOSED[name](condition)
    setup = setting(rule, problem, enough(expected))
    found = theory(problem, rule, setup)
    assert found.radius == pytest.approx(expected, abs=1e-12 if name == "gd-euler" else 1e-6)
    fitted = fit_rate(distances(problem, rule, setup, problem.minimiser), 1.0)
    assert math.log(fitted) == pytest.approx(math.log(expected), rel=0.015)


@pytest.mark.parametrize("split", ["even", "spectrum"])
@pytest.mark.parametrize("name", [*yf.rules])
def test_every_rule_runs_at_the_rate_of_its_matrix(name, split):
    rule, problem = yf.rules[name], quadratic(15.0, 3, split)
    setup = setting(rule, problem, 2)
    found = theory(problem, rule, setup)
    if name in NO_THEORY:
        assert found is None
        return
    setup = setting(rule, problem, enough(found.radius))
    measured = distances(problem, rule, setup, found.limit)
    fitted = fit_rate(measured, max(measured[0], found.limit.norm().item()))
    assert math.log(fitted) == pytest.approx(math.log(found.radius), rel=0.015)


def test_acceleration():
    """Blocks to a millionth of the first distance: gradient descent needs √κ / 2 times as many."""
    needed = {}
    for condition in (30.0, 300.0):
        problem = quadratic(condition, 6)
        for name in ("gd-euler", "nesterov-euler"):
            setup = setting(yf.rules[name], problem, 2400)
            d = np.array(distances(problem, yf.rules[name], setup, problem.minimiser))
            needed[name, condition] = int(np.argmax(d < 1e-6 * d[0]))
        ratio = needed["gd-euler", condition] / needed["nesterov-euler", condition]
        assert ratio == pytest.approx(math.sqrt(condition) / 2, rel=0.3)
    assert needed["gd-euler", 300.0] / needed["gd-euler", 30.0] == pytest.approx(10, rel=0.05)
    growth = needed["nesterov-euler", 300.0] / needed["nesterov-euler", 30.0]
    assert growth == pytest.approx(math.sqrt(10), rel=0.1)


def test_a_blocks_matrix_longhand():
    """Polyak: V' = βV - hA(X - x*), X' = X + V'."""
    problem = quadratic(20.0, 3, "spectrum")
    h, beta = 0.7, 0.4
    T, b = affine_map(problem, yf.rules["polyak-euler"], h, {"beta": beta, "gamma": 1.0})
    A, one = sum(problem.parts), torch.eye(3, dtype=torch.float64)
    expected = torch.cat(
        [torch.cat([one - h * A, beta * one], 1), torch.cat([-h * A, beta * one], 1)]
    )
    torch.testing.assert_close(T, expected, rtol=0, atol=1e-12)
    kick = h * (problem.minimiser @ A)[0]
    torch.testing.assert_close(b, torch.cat([kick, kick]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in yf.rules if name != "hamiltonian"])
def test_where_a_rule_settles_is_its_fixed_point(name):
    """With parts whose minima are apart."""
    rule, problem = yf.rules[name], quadratic(10.0, 3, "shifted")
    found = theory(problem, rule, setting(rule, problem, 2))
    if name in NO_THEORY:
        assert found is None
        return
    h = None if found.radius < 1 else 0.5  # two-step methods need shorter steps
    found = theory(problem, rule, setting(rule, problem, 2, h=h))
    path = trajectory(problem, rule, setting(rule, problem, 600 if h else 300, h=h))
    assert path.stopped is None
    torch.testing.assert_close(path.X[-1], found.limit, rtol=0, atol=1e-8)
    off = (found.limit - problem.minimiser).norm()
    assert off < 1e-9 if name in UNBIASED else off > 0.01


def test_lie_trotters_bias_longhand():
    """x = x* + e with (2 - hA/2) e = -(hA/2) s, for minima at x* ± s."""
    problem = quadratic(10.0, 3, "shifted")
    rule = yf.rules["gd-lie-trotter"]
    setup = setting(rule, problem, 1, h=0.8)
    A, s = sum(problem.parts), (problem.centres[0] - problem.minimiser)[0]
    two = 2 * torch.eye(3, dtype=torch.float64)
    # The first step is attention's, towards x* + s; the second ends nearer to x* - s.
    e = -torch.linalg.solve(two - 0.4 * A, 0.4 * A @ s)
    limit = theory(problem, rule, setup).limit
    after = e - 0.4 * A @ (e - s)
    after = after - 0.4 * A @ (after + s)
    torch.testing.assert_close(after, e)  # the formula is a fixed point
    torch.testing.assert_close((limit - problem.minimiser)[0], e)


@pytest.mark.parametrize("name", SPLIT_RULES)
def test_split_rules_are_off_by_the_order_of_h(name):
    problem = quadratic(30.0, 4, "shifted")
    setup = setting(yf.rules[name], problem, 1)
    assert bias_order(problem, yf.rules[name], setup) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", [name for name in paper if name.startswith("imex")])
def test_imex_rules_are_off_however_small_h(name):
    """What the first oracle says passes through beta once more than what the second says, so the
    limit minimises β f_first + f_second: off by (1 - β) / (1 + β) |s| as h → 0."""
    rule, problem = yf.rules[name], quadratic(30.0, 4, "shifted")
    setup = setting(rule, problem, 1, h=1e-7, given={"beta": 0.6})
    limit = theory(problem, rule, setup).limit
    s = (problem.centres[0] - problem.minimiser).norm().item()
    off = (limit - problem.minimiser).norm().item()
    assert off == pytest.approx((1 - 0.6) / (1 + 0.6) * s, rel=1e-5)
    assert bias_order(problem, rule, setup) == pytest.approx(0, abs=1e-3)


def test_the_printed_hamiltonian_goes_uphill():
    rule, problem = yf.rules["hamiltonian"], quadratic(30.0, 4)
    for h in (1.0, 0.1, 1e-3):
        setup = setting(rule, problem, 40, h=h)
        assert theory(problem, rule, setup).radius > 1
        values = problem.value(trajectory(problem, rule, setup).X)
        assert (values[1:] > values[:-1]).all()
    assert theory(problem, rule, setup).uphill
    turned = {"gamma": -1.0, "gamma_half": -1.0}
    setup = setting(rule, problem, 2000, h=0.1, given=turned)
    found = theory(problem, rule, setup)
    assert found.radius < 1
    assert not found.uphill
    assert problem.value(trajectory(problem, rule, setup).X[-1]) < 1e-6


@pytest.mark.parametrize("condition", [10.0, 100.0])
def test_tuning_finds_the_optimal_constants(condition):
    """Of Nesterov's method on quadratics with mu = beta: h = 4 / (3L + m), 1 - 2/√(3κ + 1); with
    half the curvature a step, a Lie–Trotter block is two steps."""
    problem = quadratic(condition)
    best = {
        "gd-euler": gradient_descent_rate(condition),
        "polyak-euler": polyak_rate(condition),
        # With the best h and mu = beta for quadratics, h = 4 / (3L + m).
        "nesterov-euler": 1 - 2 / math.sqrt(3 * condition + 1),
    }
    best |= {name.replace("euler", "lie-trotter"): rate**2 for name, rate in best.items()}
    for name, rate in best.items():
        rule = yf.rules[name]
        tuned = tune(problem, rule, setting(rule, problem, 1))
        assert theory(problem, rule, tuned).radius == pytest.approx(rate, abs=2e-6)
    assert tune(
        problem, yf.rules["nesterov-euler"], setting(yf.rules["nesterov-euler"], problem, 1)
    ).h == pytest.approx(4 / (3 + 1 / condition), rel=1e-4)


def test_tuning_keeps_what_is_given():
    rule, problem = yf.rules["nesterov-euler"], quadratic(50.0)
    setup = setting(rule, problem, 1, h=0.5, given={"mu": 0.3})
    tuned = tune(problem, rule, setup, h=0.5, keep=("mu",))
    assert tuned.h == pytest.approx(0.5)
    assert tuned.blocks[0]["mu"] == 0.3
    radii = [
        float(spectral_radius(affine_map(problem, rule, 0.5, {**setup.blocks[0], "beta": b})[0]))
        for b in np.linspace(0, 0.999, 400)
    ]
    assert theory(problem, rule, tuned).radius <= min(radii) + 1e-9
    uphill = yf.rules["hamiltonian"]
    setup = setting(uphill, problem, 1)
    assert tune(problem, uphill, setup) == setup  # nothing converges


def test_what_settings_take():
    problem, rule = quadratic(9.0), yf.rules["nesterov-lie-trotter"]
    setup = setting(rule, problem, 3)
    assert setup.h == 1.0
    assert setup.blocks[0] == pytest.approx(
        {"beta": 0.5, "gamma": 1, "mu": 0.5, "beta_half": 0.5, "gamma_half": 1, "mu_half": 0.5}
    )
    model = setting(rule, problem, 3, constants="model", given={"mu": 0.25})
    assert model.blocks[0]["beta"] == 0.9
    assert model.blocks[0]["mu"] == 0.25
    own = setting(yf.get_rule("nesterov-lie-trotter+mu=0.3"), problem, 3)
    assert own.blocks[0]["mu"] == 0.3
    assert own.blocks[0]["beta"] == 0.5
    schedule = setting(yf.rules["nesterov-classical"], problem, 3)
    assert not schedule.steady
    assert [each["mu"] for each in schedule.blocks] == pytest.approx([0, 2 / 5, 4 / 7])
    assert momentum_of(yf.rules["nesterov-classical"]) == ()
    assert classical(yf.rules["polyak-euler"], 1 / 9, 1.0) == pytest.approx((9 / 4, 1 / 4))
    assert classical(yf.rules["gd-euler"], 1 / 9, 1.0) == pytest.approx((1.8, 0))


def test_how_streams_start():
    rule = yf.Rule(
        "many",
        "V = V + attn(X) + E + N + T\nX = X + V + mlp(X) * 0",
        streams={"E": "tied", "N": "normalized", "T": "tables"},
    )
    X = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    streams = first_streams(rule, X)
    assert torch.equal(streams["X"], X)
    assert torch.equal(streams["E"], X)
    assert not any(streams[name].any() for name in "VNT")
    varied = yf.get_rule("gd-euler+X=normalized")
    normal = torch.nn.functional.layer_norm(X, (3,))
    torch.testing.assert_close(first_streams(varied, X)["X"], normal)


def test_own_rules(tmp_path):
    """Two-step Adams–Bashforth is affine and runs at its matrix's rate; Adam is not."""
    ab = tmp_path / "ab.toml"
    ab.write_text(
        'equations = """\nF = attn(X) + mlp(X)\nX = X + gamma * (1.5 * F - 0.5 * G)\nG = F\n"""\n'
        '[streams]\nG = "zero"\n'
    )
    rule, problem = yf.get_rule(str(ab)), quadratic(20.0, 3)
    setup = setting(rule, problem, 400, h=0.5)
    found = theory(problem, rule, setup)
    fitted = fit_rate(distances(problem, rule, setup, problem.minimiser), 1.0)
    assert fitted == pytest.approx(found.radius, rel=1e-4)
    adam = yf.Rule(
        "adam",
        "G = attn(X) + mlp(X)\nS = 0.9 * S + 0.1 * square(G)\nX = X + gamma * G / sqrt(S + 0.01)",
        streams={"S": "zero"},
    )
    assert theory(problem, adam, setting(adam, problem, 1)) is None
    path = trajectory(problem, adam, setting(adam, problem, 300, h=0.1))
    assert problem.value(path.X[-1]) < problem.value(path.X[0]) / 10


def test_norm_changes_the_way():
    problem, rule = quadratic(10.0, 8), yf.rules["polyak-euler"]
    setup = setting(rule, problem, 5)
    path = trajectory(problem, rule, setup, norm=True)
    steps = (path.X[1:] - path.X[:-1]).flatten(1).norm(dim=1)
    torch.testing.assert_close(steps, torch.full_like(steps, math.sqrt(8)), rtol=1e-4, atol=0)


def test_descent_lowers_the_particles_energy_and_makes_clusters():
    problem, rule = particles(), yf.rules["gd-euler"]
    values = problem.value(trajectory(problem, rule, setting(rule, problem, 200, h=0.05)).X)
    assert (values[1:] < values[:-1] + 1e-9).all()
    with pytest.raises(yf.YuriiError, match="give a step size"):
        setting(rule, problem, 1)


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, 1.1])
def test_fitting(rate):
    k = np.arange(120 if rate != 1.1 else 60)
    plain, double = 3.0 * rate**k, (k + 2.0) * rate**k
    waves = rate**k * np.abs(np.cos(0.4 * k))
    rng = np.random.default_rng(0)
    rounding = 1e-13 * rng.random(len(k))
    assert fit_rate(plain + rounding, 1.0) == pytest.approx(rate, abs=1e-3)
    assert math.log(fit_rate(double, 1.0)) == pytest.approx(math.log(rate), rel=0.06, abs=2e-4)
    assert math.log(fit_rate(waves, 1.0)) == pytest.approx(math.log(rate), rel=0.06, abs=2e-3)


def test_fitting_needs_something_to_fit():
    assert fit_rate([1.0, 0.5, 0.25], 1.0) is None
    assert fit_rate([0.0] * 50, 1.0) is None
    assert fit_rate([1e-13] * 50, 1.0) is None


def test_naming_rules():
    assert [rule.name for rule in named_rules(["paper"])] == list(paper)
    assert len(named_rules(["all", "gd-euler", "controls"])) == len(yf.rules)
    with pytest.raises(yf.YuriiError, match="did you mean"):
        named_rules(["gd-euller"])
    rules = named_rules(["polyak-euler"])
    assert parse_given(["beta=0.5", "gamma = -1"], rules) == {"beta": 0.5, "gamma": -1.0}
    for text, words in {
        "mu=1": "no rule here has a coefficient 'mu'; there are beta, gamma",
        "beta": "NAME=NUMBER",
        "beta=x": "not a number",
        "beta=nan": "finite",
    }.items():
        with pytest.raises(yf.YuriiError, match=words):
            parse_given([text], rules)
