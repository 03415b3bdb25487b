"""Rules as integrators: orders, reversibility and symplecticity that are known beforehand, and the
table of what was measured."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest
import torch

import yuriiformer as yf
from yuriiformer.errors import ConfigError
from yuriiformer.lab.flow import Schedule, damping_of, read_flow
from yuriiformer.lab.measured import integrator_text, measured_rules, rounded
from yuriiformer.lab.order import fit_order, measure, order_results
from yuriiformer.lab.problems import quadratic, smooth
from yuriiformer.lab.setting import OrderLab
from yuriiformer.lab.theory import affine_map

OPTIONS = OrderLab(blocks=(16, 32, 64, 128, 256), drift_time=25.0)
PROBLEM = smooth()
ROOT = Path(__file__).parent.parent.parent


def found(rule, **changes):
    options = OrderLab(**{"blocks": OPTIONS.blocks, "drift_time": 25.0, **changes})
    return measure(yf.get_rule(rule), PROBLEM, options)


def test_the_functions_parts_are_downhill():
    X = PROBLEM.start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(PROBLEM.value(X), X)
    down = PROBLEM.attn(X) + PROBLEM.mlp(X)
    torch.testing.assert_close(-gradient, down.detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("rule", "order"),
    [
        ("gd-euler", 1),  # explicit Euler
        ("gd-strang-ama", 1),  # its substeps are Euler steps
        ("adams-bashforth", 2),
        ("polyak-euler", 1),  # symplectic Euler
        ("nesterov-lie-trotter", 1),
        ("verlet-ama", 1),  # as printed
        ("verlet-symmetric-ama", 2),
        ("hamiltonian", 1),
        ("imex3-attn-mlp", 1),
    ],
)
def test_orders(rule, order):
    assert found(rule)["order"] == pytest.approx(order, abs=0.1)


def test_explicit_euler_of_the_accelerated_flow():
    """Of somebody's own: x moves by the old velocity. Order 1, and neither of the rest."""
    rule = yf.Rule("euler", "W = V\nV = beta * V + gamma * (attn(X) + mlp(X))\nX = X + W")
    one = measure(rule, PROBLEM, OPTIONS)
    assert one["order"] == pytest.approx(1, abs=0.1)
    assert one["symplectic"] > 0.05
    assert one["reversible"] > 0.05
    assert one["drift"] is None or one["drift"] > 0.5  # it gains energy


def test_leapfrog_with_both_oracles_at_once():
    """The textbook's velocity Verlet for f_A + f_M is of order 2, also with friction."""
    half = "V = V + 0.5 * (attn(X) + mlp(X))\n"
    rule = yf.Rule("leapfrog", f"V = beta * V\n{half}X = X + V\n{half}V = beta * V")
    one = measure(rule, PROBLEM, OPTIONS)
    assert one["order"] == pytest.approx(2, abs=0.05)
    assert max(one["reversible"], one["symplectic"]) < 1e-14


def test_what_the_paper_says_of_verlet():
    """Second order and time-reversible: the printed block is neither, even without damping, norm
    and lookahead; a symmetric order of the same calls is both."""
    for letters in ("ama", "mam"):
        printed = found(f"verlet-{letters}", damping=0.0, given={"mu": 0.0, "mu_half": 0.0})
        symmetric = found(f"verlet-symmetric-{letters}", damping=0.0)
        assert printed["calls"] == symmetric["calls"]
        assert printed["order"] == pytest.approx(1, abs=0.1)
        assert symmetric["order"] == pytest.approx(2, abs=0.1)
        assert printed["reversible"] > 0.05
        assert symmetric["reversible"] < 1e-14
        assert max(printed["symplectic"], symmetric["symplectic"]) < 1e-14
        assert max(abs(printed["drift"]), abs(symmetric["drift"])) < 0.05


def test_verlet_by_hand_on_an_oscillator():
    """The matrices of one block for f = x²/2, half of it each, step 1: T as printed with three
    drifts, and |RTRT - 1|."""
    R = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))

    def kick(s):
        return torch.tensor([[1.0, 0.0], [-s, 1.0]], dtype=torch.float64)

    def drift(s):
        return torch.tensor([[1.0, s], [0.0, 1.0]], dtype=torch.float64)

    def defect(T):
        return torch.linalg.matrix_norm(R @ T @ R @ T - torch.eye(2), 2).item()

    third = drift(1 / 3)
    printed = third @ kick(0.25) @ third @ kick(0.5) @ third @ kick(0.25)
    symmetric = kick(0.25) @ drift(0.5) @ kick(0.5) @ drift(0.5) @ kick(0.25)
    assert defect(printed) > 0.1
    assert defect(symmetric) < 1e-15


def test_verlets_matrix_on_a_quadratic():
    """The block as the rule has it, in its own units, at beta = 1 and mu = 0: the largest entry of
    RTRT - 1."""
    problem = quadratic(10.0, 3)
    R = torch.diag(torch.tensor([1.0] * 3 + [-1.0] * 3, dtype=torch.float64))
    for name, low, high in (("verlet-ama", 0.84, 0.85), ("verlet-symmetric-ama", 0.0, 1e-15)):
        rule = yf.rules[name]
        values = {each: float(not each.startswith("mu")) for each in rule.coefficients}
        T, _ = affine_map(problem, rule, 1.0, values)
        assert low <= (R @ T @ R @ T - torch.eye(6)).abs().max() <= high


@pytest.mark.parametrize("rule", ["nesterov-euler", "hamiltonian", "verlet-mam"])
def test_lookahead_is_friction(rule):
    one = found(rule, drift_time=100.0)
    assert one["symplectic"] < 1e-14
    assert one["lookahead"]["symplectic"] > 0.02
    assert one["lookahead"]["drift"] < -0.9
    assert abs(one["drift"]) < 0.02


@pytest.mark.parametrize(
    ("rule", "accelerated", "drifts", "weight", "dampings"),
    [
        ("gd-lie-trotter", False, 0, 1, 0),
        ("polyak-euler", True, 1, 1, 1),
        ("nesterov-lie-trotter", True, 2, 1, 2),
        ("imex2-mlp-attn", True, 1, 1, 2),
        ("verlet-ama", True, 3, 1, 3),
        ("hamiltonian", True, 1, -1, 2),
        ("verlet-symmetric-mam", True, 2, 1, 2),
        ("nesterov-from-gd", False, 0, 1, 0),
        ("polyak-euler+beta=0.5", False, 0, 2, 0),  # a velocity that is forgotten: 1 / (1 - beta)
    ],
)
def test_how_a_block_is_read(rule, accelerated, drifts, weight, dampings):
    flow = read_flow(Schedule(yf.get_rule(rule), {}), 1.0)
    assert flow.accelerated == accelerated
    assert flow.drifts == pytest.approx(drifts, abs=1e-9)
    assert flow.weight == pytest.approx(weight, abs=1e-9)
    assert flow.even
    assert flow.dampings == pytest.approx(dampings, abs=1e-9)


def test_nesterovs_own_schedule_is_the_flow_with_three_over_t():
    schedule = Schedule(yf.rules["nesterov-classical"], {})
    for t in (0.5, 1.0, 2.5):
        assert damping_of(schedule, t) == pytest.approx(3 / t, rel=1e-6)
    few = found("nesterov-classical", blocks=(8, 16, 32, 64))
    assert few["order"] == pytest.approx(1, abs=0.1)


def test_what_does_not_follow_the_step_is_not_consistent():
    tied = found("gd-tied")
    assert tied["order"] < 0.5
    assert "not consistent: the error does not vanish with the step" in tied["remarks"]
    uneven = yf.Rule("uneven", "V = beta * V + gamma * (attn(X) + 0.5 * mlp(X))\nX = X + V")
    one = measure(uneven, PROBLEM, OPTIONS)
    assert one["order"] < 0.5
    assert "weighs attention 1 and MLP 0.5" in one["remarks"]


def test_the_start_of_a_two_step_method_counts():
    one = found("adams-bashforth", blocks=(64, 128, 256, 512))
    assert one["order"] == pytest.approx(2, abs=0.1)
    assert one["cold_order"] == pytest.approx(1, abs=0.2)
    assert any("as in a model" in remark for remark in one["remarks"])


def test_an_order_needs_four_steps_above_rounding():
    steps = [2 / n for n in OPTIONS.blocks]
    assert fit_order(OPTIONS, [h**3 for h in steps]) == pytest.approx(3, abs=1e-6)
    assert fit_order(OPTIONS, [1e-13] * 3 + [h**3 for h in steps[3:]]) is None
    assert fit_order(OPTIONS, [math.inf] * 3 + steps[3:]) is None
    for wrong, said in (
        ({"blocks": (8, 16, 32)}, "--blocks"),
        ({"blocks": (8, 16, 32, 0)}, "--blocks"),
        ({"damping": -1.0}, "--damping"),
        ({"damping": math.nan}, "--damping"),
        ({"damping": 1e9}, "--damping"),
        ({"time": math.inf}, "--time"),
        ({"step": 0.0}, "--step"),
        ({"blocks": (8, 16, 32, 10**6)}, "blocks"),
    ):
        with pytest.raises(ConfigError, match=said):
            OrderLab(**wrong)


def test_odd_rules_and_numbers_are_no_accident():
    """Blocks that follow no flow, and coefficients that no float holds: None, and said."""
    rules = [
        yf.Rule("log", "V = log(V) + attn(X) + mlp(X)\nX = X + V"),
        yf.Rule("sign", "X = 0.5 * X + attn(unit(X)) + sign(mlp(X))"),
        yf.rules["verlet-ama"],
    ]
    options = OrderLab(blocks=(4, 8, 16, 32), drift_time=5.0, given={"mu_half": 1e300})
    log, sign, verlet = order_results(rules, options)["rules"]
    assert log["flow"] is log["order"] is None
    assert "no flow" in log["remarks"][0]
    assert sign["order"] < 0.5
    assert verlet["order"] is verlet["reversible"] is None
    json.dumps([log, sign, verlet], allow_nan=False)


def test_the_table_has_every_rule_and_is_said():
    assert list(measured_rules()) == list(yf.rules)
    assert "order 2.00; reversible; symplectic" in integrator_text(yf.rules["verlet-symmetric-ama"])
    assert "order 1.00; not reversible" in integrator_text(yf.rules["verlet-ama"])
    assert "not consistent (order 0)" in integrator_text(yf.rules["gd-tied"])
    for other in ("verlet-ama+V=zero", "imex3-attn-mlp"):
        assert "not measured" in integrator_text(yf.get_rule(other))


def test_the_page_has_the_table():
    spec = importlib.util.spec_from_file_location("make_orders", ROOT / "docs" / "make_orders.py")
    make_orders = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_orders)
    assert make_orders.page_text() == (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")


def agrees(name):
    [each] = order_results([yf.rules[name]], OrderLab())["rules"]
    again, kept = rounded(each), measured_rules()[name]
    assert again.keys() == kept.keys()
    for key, value in again.items():
        assert value == (
            kept[key] if isinstance(value, str) else pytest.approx(kept[key], abs=0.02)
        )


@pytest.mark.parametrize("name", ["gd-euler", "verlet-symmetric-ama"])
def test_the_table_is_measured(name):
    agrees(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", yf.rules)
def test_the_whole_table_is_measured(name):
    agrees(name)
