"""Nesterov's momentum without its lookahead is Polyak's, told by the equations and not by names."""

from __future__ import annotations

import yuriiformer as yf
from yuriiformer.methods.lookahead import structure, without_lookahead


def pairs(rules):
    return [
        (one.name, two.name)
        for one in rules
        for two in rules
        if without_lookahead(one) == structure(two) and structure(one) != structure(two)
    ]


def test_the_catalogue():
    assert pairs(yf.rules.values()) == [
        ("nesterov-euler", "polyak-euler"),
        ("nesterov-lie-trotter", "polyak-lie-trotter"),
    ]


def test_a_rule_of_the_users_own():
    mine = yf.Rule(
        "mine",
        """
        Z = X + mu2 * V
        V = norm(beta * V + gamma * attn(Z) - mlp(X + mu * V))
        X = X + V
        """,
        coefficients={"mu2": 0.5},
    )
    plain = yf.Rule("plain", "V = norm(beta * V + gamma * attn(X) - mlp(X))\nX = X + V")
    assert pairs([plain, mine]) == [("mine", "plain")]


def test_starts_and_coefficients_count():
    nesterov = yf.get_rule("nesterov-euler+V=zero")
    assert pairs([nesterov, yf.rules["polyak-euler"]]) == []
    assert pairs([nesterov, yf.get_rule("polyak-euler+V=zero")]) != []
    assert pairs([nesterov, yf.get_rule("polyak-euler+V=zero+beta=0.5")]) == []
