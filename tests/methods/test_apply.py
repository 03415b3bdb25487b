"""`apply_rule` and `run_rule`: what they need, and what they say when it is not there."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.methods.worlds import World
from yuriiformer.errors import InputError
from yuriiformer.methods.passes import Query


@pytest.fixture
def world() -> World:
    return World(0)


def call(world, name, V=None, **coefficients):
    return yf.apply_rule(
        yf.rules[name], world.X, V, attn=world.attn, mlp=world.mlp, coefficients=coefficients
    )


def test_wrong_coefficients_are_named(world):
    with pytest.raises(InputError, match=r"missing gamma; unknown gama \(it needs exactly: beta"):
        call(world, "polyak-euler", world.V, beta=0.5, gama=1.0)
    with pytest.raises(InputError, match=r"unknown mu \(it needs exactly: none\)"):
        call(world, "gd-euler", mu=0.5)


def test_a_momentum_rule_needs_v(world):
    with pytest.raises(InputError, match="pass V, a tensor of X's shape"):
        call(world, "polyak-euler", beta=0.5, gamma=1.0)
    with pytest.raises(InputError, match="V has shape"):
        call(world, "polyak-euler", world.V[:1], beta=0.5, gamma=1.0)


def test_a_rule_without_velocity_hands_v_through(world):
    assert call(world, "gd-euler", world.V)[1] is world.V
    assert call(world, "gd-euler")[1] is None


def test_a_rule_may_be_named(world):
    one = yf.apply_rule("gd-euler", world.X, attn=world.attn, mlp=world.mlp)
    assert torch.equal(one[0], call(world, "gd-euler")[0])


def test_a_coefficient_of_zero_divides_to_infinity_as_in_a_model(world):
    rule = yf.Rule("r", "c = 1 / mu\nX = X + c * attn(X) + mlp(X)")
    X, _ = yf.apply_rule(rule, world.X, attn=world.attn, mlp=world.mlp, coefficients={"mu": 0.0})
    assert not X.isfinite().any()


def test_other_streams_go_by_name(world):
    rule = yf.rules["gd-table"]
    with pytest.raises(InputError, match="also carries E: use run_rule"):
        yf.apply_rule(rule, world.X, attn=world.attn, mlp=world.mlp, coefficients={"lam": 1.0})
    streams = {"X": world.X, "E": world.V}
    out = yf.run_rule(rule, streams, attn=world.attn, mlp=world.mlp, coefficients={"lam": 0.3})
    assert out["E"] is world.V
    start = world.X + 0.3 * torch.nn.functional.layer_norm(world.V, (8,))
    middle = start + world.attn(start)
    torch.testing.assert_close(out["X"], middle + world.mlp(middle), rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="streams: missing E"):
        yf.run_rule(rule, {"X": world.X}, attn=world.attn, mlp=world.mlp, coefficients={"lam": 1.0})


def test_every_elementwise_function_is_torchs(world):
    terms = {
        "sqrt(square(X))": world.X.abs(),
        "abs(X)": world.X.abs(),
        "sign(X)": world.X.sign(),
        "exp(X)": world.X.exp(),
        "log(exp(X))": world.X,
        "tanh(X)": world.X.tanh(),
        "sigmoid(X)": world.X.sigmoid(),
        "relu(X)": world.X.clamp(min=0),
        "maximum(X, V)": torch.maximum(world.X, world.V),
        "minimum(X, 0.25)": world.X.clamp(max=0.25),
        "sqrt(1 - beta) * X": (1 - 0.36) ** 0.5 * world.X,
        "-X / 4": -world.X / 4,
    }
    for term, expected in terms.items():
        rule = yf.Rule("r", f"X = X + 0 * attn(X) + 0 * mlp(X) + 0 * beta * V + {term}")
        X, _ = yf.apply_rule(
            rule, world.X, world.V, attn=world.attn, mlp=world.mlp, coefficients={"beta": 0.36}
        )
        torch.testing.assert_close(X - world.X, expected, rtol=0, atol=1e-12)
        assert X.dtype == torch.float64


def test_in_place_looking_assignment_is_shorthand(world):
    short = yf.Rule("s", "X += attn(X)\nX -= mlp(X)")
    long = yf.Rule("s", "X = X + attn(X)\nX = X - mlp(X)")
    assert short == long
    before = world.X.clone()
    yf.apply_rule(short, world.X, attn=world.attn, mlp=world.mlp)
    assert torch.equal(world.X, before)


def test_the_observer_sees_every_step_and_changes_nothing(world):
    rule = yf.rules["verlet-ama"]
    options = {
        "attn": world.attn,
        "mlp": world.mlp,
        "coefficients": world.only(rule.coefficients),
        "velocity_norm": world.norm,
    }
    seen = []
    streams = {"X": world.X, "V": world.V}
    watched = yf.run_rule(rule, streams, observer=lambda *event: seen.append(event), **options)
    alone = yf.run_rule(rule, streams, **options)
    assert all(torch.equal(watched[name], alone[name]) for name in streams)
    assert [step.target for step, _, _ in seen] == [step.target for step in rule.steps]
    for step, value, argument in seen:
        if isinstance(step, Query):
            torch.testing.assert_close(value, getattr(world, step.oracle)(argument))
        else:
            assert argument is None
    assert torch.equal(seen[-1][1], watched["X"])
