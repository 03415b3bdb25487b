"""The energies: their gradients are the oracles under exactly the stated conditions, and not
under others."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import yuriiformer as yf
from tests.model.tiny import tiny, unsettle
from yuriiformer.model.context import Context
from yuriiformer.model.energies import (
    antiderivative,
    interaction_energy,
    interaction_gradient,
    log_interaction_energy,
    log_partition,
    potential_energy,
)
from yuriiformer.model.oracles import MLP, Attention, attention_scores

N, D = 7, 5
OPEN = Context(torch.arange(N), causal=False)
CAUSAL = Context(torch.arange(N))
EXACT = {"rtol": 0.0, "atol": 1e-10}


@pytest.fixture
def X():
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def plain_attention(heads=1, scale=True, norm=False):
    """The model's own attention with Q = K = V = W_O = I; ``scale`` undoes its 1/sqrt(d)."""
    module = Attention(yf.ModelConfig(n_layer=1, n_head=heads, d_model=D, context=N)).double()
    eye = torch.eye(D, dtype=torch.float64)
    with torch.no_grad():
        module.qkv.weight.copy_(torch.cat((eye * (math.sqrt(D) if scale else 1.0), eye, eye)))
        module.out.weight.copy_(eye)
    if not norm:
        module.norm = nn.Identity()
    return module


def preconditioned(X):
    """The gradient of E by autograd, divided by 2 Z_i."""
    X = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(interaction_energy(X), X)
    Z = (X @ X.T).exp().sum(-1, keepdim=True)
    return (gradient / (2 * Z)).detach()


def test_attention_is_the_preconditioned_gradient_of_the_interaction(X):
    wanted = preconditioned(X)
    own = plain_attention()(X[None], OPEN)[0]
    torch.testing.assert_close(own.detach(), wanted, **EXACT)
    torch.testing.assert_close(interaction_gradient(X), wanted, **EXACT)
    by_torch = F.scaled_dot_product_attention(X[None], X[None], X[None], scale=1.0)[0]
    torch.testing.assert_close(by_torch, wanted, **EXACT)


@pytest.mark.parametrize(
    ("options", "context"),
    [({"scale": False}, OPEN), ({"norm": True}, OPEN), ({"heads": 5}, OPEN), ({}, CAUSAL)],
    ids=["scaled", "LayerNorm", "heads", "causal"],
)
def test_it_is_not_without_each_of_the_conditions(X, options, context):
    other = plain_attention(**options)(X[None], context)[0]
    assert (other - preconditioned(X)).abs().max() > 0.05


def jacobian_asymmetry(field, X):
    J = torch.autograd.functional.jacobian(field, X).reshape(X.numel(), X.numel())
    return (J - J.T).abs().max().item() / J.abs().max().item()


def test_a_causal_mask_leaves_no_energy(X):
    """A field is a gradient only if its Jacobian is symmetric: Z_i times attention is, Z_i times
    causal attention is not."""

    def field(X, mask):
        weights = (X @ X.T).exp() * mask
        return weights @ X

    full = torch.ones(N, N, dtype=torch.float64)
    X = 0.4 * X  # so that a token's product with itself does not drown the others
    assert jacobian_asymmetry(lambda X: field(X, full), X) < 1e-10
    assert jacobian_asymmetry(lambda X: field(X, full.tril()), X) > 0.05


def test_an_mlp_of_identities_is_the_gradient_of_the_potential(X):
    module = MLP(yf.ModelConfig(n_layer=1, n_head=1, d_model=D, context=N)).double()
    module.norm = nn.Identity()
    module.up, module.down = (nn.Linear(D, D, bias=False).double() for _ in range(2))
    for layer in (module.up, module.down):
        nn.init.eye_(layer.weight)
    X = (4 * X).requires_grad_()
    (gradient,) = torch.autograd.grad(potential_energy(X), X)
    torch.testing.assert_close(gradient, module(X[None], OPEN)[0].detach(), **EXACT)


ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "gelu-tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x: x / (1 + math.exp(min(700.0, -x))),
    "relu": lambda x: max(x, 0.0),
    "tanh": math.tanh,
    "identity": lambda x: x,
}


def by_quadrature(function, x):
    """From 0 to x; a long way in two parts, the bend near 0 being one."""
    from scipy.integrate import quad

    near = max(-30.0, min(30.0, x))
    parts = [
        quad(function, a, b, epsabs=1e-13, epsrel=1e-13, limit=200)[0]
        for a, b in ((0.0, near), (near, x))
    ]
    return sum(parts)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_antiderivatives_against_quadrature(name):
    points = [
        -3e4,
        -45.0,
        -30.0,
        -8.0,
        -3.1,
        -1.0,
        -1e-3,
        0.0,
        1e-3,
        0.5,
        1.0,
        2.7,
        8.0,
        30.0,
        45.0,
        3e4,
    ]
    found = antiderivative(torch.tensor(points, dtype=torch.float64), name)
    for x, value in zip(points, found.tolist(), strict=True):
        wanted = by_quadrature(ACTIVATIONS[name], x)
        assert value == pytest.approx(wanted, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_antiderivatives_have_the_activation_as_their_slope(name):
    x = torch.linspace(-6, 6, 49, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(antiderivative(x, name).sum(), x)
    wanted = torch.tensor([ACTIVATIONS[name](value) for value in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(slope, wanted, **EXACT)


def test_any_activation_can_be_given_as_a_function():
    x = torch.linspace(-5, 5, 21, dtype=torch.float64)
    found = antiderivative(x, torch.sin)
    torch.testing.assert_close(found, 1 - x.cos(), **EXACT)
    with pytest.raises(yf.YuriiError, match=r"unknown activation 'gleu'.*gelu"):
        antiderivative(x, "gleu")


def test_logarithms_do_not_overflow(X):
    torch.testing.assert_close(log_interaction_energy(X), interaction_energy(X).log())
    torch.testing.assert_close(log_partition(X).logsumexp(0), log_interaction_energy(X))
    assert interaction_energy(100 * X).isinf()
    assert log_interaction_energy(100 * X).isfinite()
    batch = torch.stack((X, 2 * X))
    assert log_interaction_energy(batch).shape == (2,)
    with pytest.raises(yf.YuriiError, match="token, d"):
        interaction_energy(X[0])


@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_scores_are_what_the_model_attends_by(oracles):
    model = unsettle(tiny(oracles=oracles)).double()
    block, Y = model.blocks[0], torch.randn(2, 9, 16, dtype=torch.float64)
    context = Context(torch.arange(9))
    weights = block.attn.scores(Y, context).softmax(-1)
    assert (weights.triu(1) == 0).all()
    v = block.attn.project(*((Y,) if oracles == "paper" else (Y, context)))[2]
    v = v.repeat_interleave(4 // v.shape[1], dim=1)
    mixed = (weights @ v).transpose(1, 2).reshape(2, 9, 16)
    torch.testing.assert_close(block.attn.out(mixed), block.attn(Y, context), **EXACT)


@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_the_frozen_key_partition_has_what_a_head_reads_as_gradient(oracles):
    """In the query, keys held fixed: the attention-weighted mean of the keys, times the scale.
    Where the values are the keys, that is what the head hands on."""
    model = unsettle(tiny(oracles=oracles)).double()
    Y = torch.randn(1, 9, 16, dtype=torch.float64)
    context = Context(torch.arange(9))
    attn = model.blocks[1].attn
    q, k, _ = attn.project(*((Y,) if oracles == "paper" else (Y, context)))
    q, k = q.detach().requires_grad_(), k.detach()
    (gradient,) = torch.autograd.grad(attention_scores(q, k, context).logsumexp(-1).sum(), q)
    read = F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(gradient, read.detach() / math.sqrt(4), **EXACT)


def test_scores_know_masks():
    q = torch.randn(1, 2, 3, 4)
    mask = torch.tensor([[True, False, True]] * 3)
    scores = attention_scores(q, q, Context(torch.arange(3), mask=mask, causal=False))
    assert scores[..., 1].isneginf().all()
    wanted = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    torch.testing.assert_close(scores.softmax(-1) @ q, wanted)
