"""A rule contains another where its block does the same: found on symbols, checked on tensors."""

from __future__ import annotations

import pytest
import torch

from yuriiformer.methods.catalog import controls, paper, rules, upcycling
from yuriiformer.methods.containing import coefficients_of_equality
from yuriiformer.methods.interpreter import run_rule
from yuriiformer.methods.rule import Rule

GD = rules["gd-lie-trotter"]
REST = rules["polyak-lie-trotter"].vary(streams={"V": "zero"})
PLAIN = Rule(
    "plain",
    """
    V = beta * V + gamma * attn(X + mu * V)
    X = X + V
    V = beta_half * V + gamma_half * mlp(X + mu_half * V)
    X = X + V
    """,
)
BESIDE = Rule(
    "beside",
    """
    A = attn(X + mu * V)
    V = norm(beta * V + A)
    X = X + A + share * V
    M = mlp(X)
    X = M + X
    """,
    coefficients={"share": {"range": "real", "initial": 0.5}},
)


def check_on_tensors(rule, other, found):
    """The streams of the other rule are the same after both blocks, whatever they were before."""
    generator = torch.Generator().manual_seed(0)
    streams = {n: torch.randn(2, 3, 8, generator=generator) for n in {*rule.streams}}
    matrices = torch.randn(2, 8, 8, generator=generator)
    oracles = {
        "attn": lambda y: torch.tanh(y @ matrices[0]),
        "mlp": lambda y: torch.sin(y @ matrices[1]),
        "velocity_norm": lambda y: torch.nn.functional.layer_norm(y, (8,)),
    }
    after = run_rule(rule, streams, coefficients=found, **oracles)
    own = {name: each.value(0, 1) for name, each in other.coefficients.items()}
    wanted = run_rule(other, {n: streams[n] for n in other.streams}, coefficients=own, **oracles)
    for name in other.streams:
        assert torch.equal(after[name], wanted[name])


@pytest.mark.parametrize(
    ("rule", "other", "some"),
    [
        (PLAIN, GD, {"mu": 0.0, "beta": 0.0, "gamma": 1.0}),
        (BESIDE, GD, {"mu": 0.0, "share": 0.0}),
        (rules["gd-table"], GD, {"lam": 0.0}),
        (rules["nesterov-lie-trotter"], rules["polyak-lie-trotter"], {"mu": 0.0, "beta": 0.9}),
        (GD, GD, {}),
        *((rule, GD, {"mu": 0.0}) for rule in upcycling.values()),
        (rules["nesterov-gated"], REST, {"gate": 1.0, "mu": 0.0, "beta": 0.9}),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_what_is_contained(rule, other, some):
    found = coefficients_of_equality(rule, other)
    assert found is not None
    assert found.items() >= some.items()
    check_on_tensors(rule, other, found)


def test_what_is_not():
    """LN_v is in every momentum rule of the paper, another order or another start is another."""
    for rule in (*paper.values(), *controls.values()):
        if rule.norm_calls:
            assert coefficients_of_equality(rule, GD) is None, rule.name
    assert coefficients_of_equality(rules["gd-euler"], GD) is None
    assert coefficients_of_equality(GD, PLAIN) is None
    assert coefficients_of_equality(rules["nesterov-lie-trotter"], REST) is None
    fixed = PLAIN.vary(coefficients={"mu": {"learned": False}})
    assert coefficients_of_equality(fixed, GD) is None
