"""Rules beyond the paper's and the controls, written out by hand."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.methods.worlds import World
from yuriiformer.methods.catalog import further
from yuriiformer.methods.interpreter import run_rule


def gradient_descent(s, c, first, second, N):
    half = s["X"] + first(s["X"])
    return {"X": half + second(half)}


def polyak(s, c, first, second, N):
    V = N(c["beta"] * s["V"] + c["gamma"] * first(s["X"]))
    X = s["X"] + V
    V = N(c["beta_half"] * V + c["gamma_half"] * second(X))
    return {"X": X + V, "V": V}


def nesterov(s, c, first, second, N):
    V = N(c["beta"] * s["V"] + c["gamma"] * first(s["X"] + c["mu"] * s["V"]))
    X = s["X"] + V
    V = N(c["beta_half"] * V + c["gamma_half"] * second(X + c["mu_half"] * V))
    return {"X": X + V, "V": V}


def strang(s, c, outer, inner, N):
    X = s["X"] + outer(s["X"]) / 2
    X = X + inner(X)
    return {"X": X + outer(X) / 2}


def symmetric_verlet(s, c, outer, inner, N):
    V = N(c["beta"] * s["V"] + c["gamma"] / 2 * outer(s["X"]))
    X = s["X"] + V
    V = N(V + c["gamma_half"] * inner(X))
    X = X + V
    return {"X": X, "V": c["beta"] * N(V + c["gamma"] / 2 * outer(X))}


def adams_bashforth(s, c, A, M, N):
    F = A(s["X"]) + M(s["X"])
    return {"X": s["X"] + c["gamma"] * (3 * F - s["G"]) / 2, "G": F}


def adam_like(s, c, A, M, N):
    G = A(s["X"]) + M(s["X"])
    first = c["beta"] * s["M"] + (1 - c["beta"]) * G
    second = c["beta_slow"] * s["S"] + (1 - c["beta_slow"]) * G**2
    step = c["gamma"] * first / (second + c["eps"]) ** 0.5
    return {"X": s["X"] + step, "M": first, "S": second}


BLOCKS = {  # name: block, which oracle is its first argument, calls of attention and MLP
    "gd-lie-trotter-mlp-attn": (gradient_descent, "mlp", (1, 1)),
    "polyak-lie-trotter-mlp-attn": (polyak, "mlp", (1, 1)),
    "nesterov-lie-trotter-mlp-attn": (nesterov, "mlp", (1, 1)),
    "gd-strang-ama": (strang, "attn", (2, 1)),
    "gd-strang-mam": (strang, "mlp", (1, 2)),
    "verlet-symmetric-ama": (symmetric_verlet, "attn", (2, 1)),
    "verlet-symmetric-mam": (symmetric_verlet, "mlp", (1, 2)),
    "adams-bashforth": (adams_bashforth, "attn", (1, 1)),
    "adam-like": (adam_like, "attn", (1, 1)),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("seed", range(2))
def test_equals_longhand(name, seed):
    block, first, (attn, mlp) = BLOCKS[name]
    world, rule = World(seed), yf.rules[name]
    values = [world.X, world.V, world.V.square() + 0.1]  # a second moment is positive
    streams = dict(zip(rule.streams, values, strict=False))
    c = {each: 0.1 + 0.17 * number for number, each in enumerate(rule.coefficients)}
    found = run_rule(
        rule,
        streams,
        attn=world.attn,
        mlp=world.mlp,
        coefficients=c,
        velocity_norm=world.norm,
    )
    assert world.calls == {"attn": attn, "mlp": mlp} == rule.oracle_calls
    oracles = (world.attn, world.mlp) if first == "attn" else (world.mlp, world.attn)
    wanted = block(streams, c, *oracles, world.norm)
    assert set(found) == set(wanted)
    for stream, value in wanted.items():
        torch.testing.assert_close(found[stream], value, rtol=0, atol=1e-12)


def test_every_further_rule_is_written_out():
    assert list(further) == list(BLOCKS)


def test_the_last_kick_of_a_symmetric_block_is_skipped():
    """Nothing reads the last velocity: its attention call is not made, and freezes no parameter."""
    programs = yf.rules["verlet-symmetric-ama"].programs(3)
    calls = [len([step for step in each.steps if hasattr(step, "oracle")]) for each in programs]
    assert calls == [3, 3, 2]
    assert {"beta", "gamma", "gamma_half"} <= set(programs[-1].reads())
