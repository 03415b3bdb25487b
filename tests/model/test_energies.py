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


# The paper's modulations: any coordinates Q, K, A, b, under the conditions that make them exact.


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 0.5 * torch.randn(*shape, dtype=torch.float64, generator=generator)


def modulated(heads=1, *, symmetric=True, value=True, scale=True, norm=False, bias=False):
    """The model's own attention whose Q, K, V, W_O are no identities; where all conditions hold,
    W_O W_V = QᵀK / √d_head is symmetric, head by head."""
    config = yf.ModelConfig(n_layer=1, n_head=heads, d_model=6, context=N, bias=bias)
    module = Attention(config).double()
    size = 6 // heads
    with torch.no_grad():
        if bias:
            module.qkv.bias.copy_(drawn(18, seed=30))
            module.out.bias.zero_()
        parts = []
        for head in range(heads):
            Q, M = drawn(size, 6, seed=head), drawn(size, size, seed=9 + head)
            form = M + M.T if symmetric else M
            K = form @ Q  # QᵀK = Qᵀ form Q
            parts.append((Q, K, K if value else drawn(size, 6, seed=20), Q.T))
        stacked = [torch.cat([part[i] for part in parts]) for i in range(3)]
        module.qkv.weight.copy_(torch.cat(stacked))
        out = torch.cat([part[3] for part in parts], dim=1)
        module.out.weight.copy_(out / math.sqrt(size) if scale else out)
    if not norm:
        module.norm = nn.Identity()
    return module


def modulated_gradient(module, X):
    """The gradient of each head's energy by autograd, divided by its own 2 Z_i; summed."""
    total = torch.zeros_like(X)
    for B in module.maps().query_key.matrix:
        Y = X.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(interaction_energy(Y, B), Y)
        total += gradient / (2 * (X @ B @ X.T).exp().sum(-1, keepdim=True))
    return total


def wide():
    return drawn(N, 6, seed=5)


def test_attention_in_any_coordinates_is_a_preconditioned_gradient():
    """QᵀK symmetric, V = QᵀK (both with the scale), one head, no mask, no LayerNorm."""
    module, X = modulated(), wide()
    wanted = modulated_gradient(module, X)
    torch.testing.assert_close(module(X[None], OPEN)[0].detach(), wanted, **EXACT)
    B = module.maps().query_key.matrix[0]
    torch.testing.assert_close(interaction_gradient(X, B), wanted, **EXACT)
    torch.testing.assert_close(B, module.maps().value_output.matrix[0], **EXACT)
    torch.testing.assert_close(log_partition(X, B).logsumexp(0), log_interaction_energy(X, B))


@pytest.mark.parametrize(
    ("options", "context"),
    [
        ({"symmetric": False}, OPEN),
        ({"value": False}, OPEN),
        ({"scale": False}, OPEN),
        ({"norm": True}, OPEN),
        ({"bias": True}, OPEN),
        ({}, CAUSAL),
    ],
    ids=["QᵀK not symmetric", "V is not QᵀK", "scale", "LayerNorm", "biases", "causal"],
)
def test_each_condition_of_the_modulated_attention_is_needed(options, context):
    module, X = modulated(**options), wide()
    assert (module(X[None], context)[0] - modulated_gradient(module, X)).abs().max() > 0.01


def test_several_heads_are_a_sum_of_gradients_each_divided_by_its_own_partition():
    """Not one gradient divided by one partition."""
    module, X = modulated(heads=2), wide()
    own = module(X[None], OPEN)[0].detach()
    torch.testing.assert_close(own, modulated_gradient(module, X), **EXACT)
    maps, Y = module.maps().query_key.matrix, X.clone().requires_grad_()
    energy = sum(interaction_energy(Y, B) for B in maps)
    (gradient,) = torch.autograd.grad(energy, Y)
    Z = sum((X @ B @ X.T).exp().sum(-1, keepdim=True) for B in maps)
    assert (own - gradient / (2 * Z)).abs().max() > 0.01


def test_any_value_map_is_a_preconditioner():
    """V B⁻¹ times the gradient over 2 Z, if B is symmetric and invertible; not if it is not."""
    for symmetric in (True, False):
        module, X = modulated(value=False, symmetric=symmetric), wide()
        maps = module.maps()
        B, V = maps.query_key.matrix[0], maps.value_output.matrix[0]
        wanted = modulated_gradient(module, X) @ (V @ B.inverse()).T
        off = (module(X[None], OPEN)[0] - wanted).abs().max().item()
        assert off < 1e-10 if symmetric else off > 0.01


def test_z_times_the_modulated_attention_is_a_gradient_only_if_it_is_symmetric():
    """No other energy exists either: the Jacobian of Z times attention is not symmetric."""
    X = 0.4 * wide()
    for symmetric in (True, False):
        B = modulated(symmetric=symmetric).maps().query_key.matrix[0]
        asymmetry = jacobian_asymmetry(lambda X, B=B: (X @ B @ X.T).exp() @ X @ B.T, X)
        assert asymmetry < 1e-10 if symmetric else asymmetry > 0.02


@pytest.mark.parametrize("hidden", [3, 6, 24])
@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_an_mlp_with_transposed_matrices_is_the_gradient_of_the_potential(hidden, gelu):
    """Any A, b and hidden width; not with another W, not with a LayerNorm before it, and not with
    a bias after it."""
    config = yf.ModelConfig(n_layer=1, n_head=1, d_model=6, context=N, bias=True, gelu=gelu)
    module, X = MLP(config).double(), 3 * wide()
    A, b = drawn(hidden, 6, seed=1), drawn(hidden, seed=2)
    module.up, module.down = nn.Linear(6, hidden).double(), nn.Linear(hidden, 6).double()
    norm, module.norm = module.norm, nn.Identity()
    nn.init.zeros_(module.down.bias)
    with torch.no_grad():
        module.up.weight.copy_(A)
        module.up.bias.copy_(b)
        module.down.weight.copy_(A.T)
    Y = X.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(potential_energy(Y, module.activation, A, b), Y)

    def off():
        return (module(X[None], OPEN)[0] - wanted).abs().max().item()

    assert off() < 1e-10
    module.norm = norm
    assert off() > 0.01
    module.norm = nn.Identity()
    nn.init.constant_(module.down.bias, 0.1)
    assert off() > 0.05
    nn.init.zeros_(module.down.bias)
    with torch.no_grad():
        module.down.weight.copy_(drawn(6, hidden, seed=8))
    assert off() > 0.01
    J = torch.autograd.functional.jacobian(lambda x: module(x[None, None], OPEN)[0, 0], X[0])
    assert (J - J.T).abs().max() > 0.01  # with another W it is no gradient of anything
