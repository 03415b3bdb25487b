"""Keeping little for the backward pass changes neither a value nor a gradient."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

import yuriiformer as yf
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.methods import frugal

SIZE = {"n_layer": 3, "n_head": 2, "d_model": 16, "vocab_size": 61, "context": 12}
FUNCTIONS = yf.Rule(
    "functions",
    equations="""
    S = keep * S + (1 - keep) * square(G)
    G = attn(X + mu * unit(X - 0.5 * V)) / sqrt(S + 0.1)
    V = -norm(beta * V - gamma * G * V) / gamma
    W = V
    X = X + W - lift * mlp(norm(W + V))
    """,
    streams={"S": "zero", "G": "zero"},
    coefficients={
        "keep": {"range": "unit", "initial": 0.5, "shape": "channel"},
        "lift": {"range": "real", "initial": 0.3, "shape": "head"},
    },
)
FIXED = yf.Rule(
    "fixed",
    equations="V = norm(beta * V + 0.7 * attn(X))\nX = X + V\nX = X + gamma * mlp(X) * tilt",
    coefficients={"tilt": {"range": "real", "initial": 2.0, "learned": False}},
)


@pytest.fixture(autouse=True)
def all_sizes(monkeypatch):
    monkeypatch.setattr(frugal, "LARGE", 0)


def build(rule, **changes):
    """A model away from its start, where several coefficients are alike."""
    model = yf.YuriiFormer(yf.ModelConfig(rule=rule, **{**SIZE, **changes}))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn(each.shape, generator=generator))
    return model


def batch(model, rows=2):
    generator = torch.Generator().manual_seed(2)
    size = (rows, model.config.context)
    return [torch.randint(model.config.vocab_size, size, generator=generator) for _ in range(2)]


def plain():
    """Somebody else's hooks: then autograd keeps what it always keeps."""
    return saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def loss_and_gradients(model):
    model.zero_grad()
    loss = model(*batch(model))
    loss.backward()
    return loss.detach(), {n: p.grad for n, p in model.named_parameters() if p.grad is not None}


def count_segments(monkeypatch):
    """How many segments run as one function."""
    seen = []
    apply = frugal._Segment.apply
    monkeypatch.setattr(frugal._Segment, "apply", lambda *a: seen.append(1) or apply(*a))
    return seen


def check_same(model, relative=0.0):
    with plain():
        loss, expected = loss_and_gradients(model)
    own, found = loss_and_gradients(model)
    assert torch.equal(own, loss)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        most = relative * gradient.abs().max().item()
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=most, msg=name)


@pytest.mark.parametrize("rule", [*yf.rules.values(), FIXED], ids=lambda rule: rule.name)
def test_gradients_are_autograds_to_the_bit(rule):
    check_same(build(rule))


def test_gradients_where_segments_give_several_terms_each():
    """Autograd adds them one by one, a function adds its own first: equal up to rounding."""
    check_same(build(FUNCTIONS), relative=1e-4)


@pytest.mark.parametrize(
    "changes",
    [{"velocity_norm": "separate"}, {"oracles": "modern"}, {"n_layer": 1}, {"n_layer": 4}],
    ids=str,
)
def test_gradients_of_other_models(changes):
    check_same(build("nesterov-lie-trotter", **changes))


def test_frozen_parts_get_no_gradient():
    model = build("nesterov-lie-trotter")
    for name, each in model.named_parameters():
        each.requires_grad_("raw_beta" not in name and "velocity_norms" not in name)
    check_same(model)


def test_only_what_has_something_to_save_is_a_function(monkeypatch):
    seen = count_segments(monkeypatch)
    loss_and_gradients(build("gd-lie-trotter"))
    assert seen == []
    loss_and_gradients(build("nesterov-lie-trotter"))
    assert len(seen) == 3 * SIZE["n_layer"]


def test_small_models_are_left_to_autograd(monkeypatch):
    monkeypatch.setattr(frugal, "LARGE", 10**6)
    seen = count_segments(monkeypatch)
    loss_and_gradients(build("nesterov-lie-trotter"))
    assert seen == []


def test_bfloat16_streams_are_left_to_autograd(monkeypatch):
    seen = count_segments(monkeypatch)
    model = build("nesterov-lie-trotter")
    model.stream_dtype = torch.bfloat16
    check_same(model)
    assert seen == []


def kept(model):
    tokens, targets = batch(model, rows=4)
    with Watcher() as watcher:
        loss = model(tokens, targets)
        return watcher.alive, loss


def test_momentum_keeps_hardly_more_than_gradient_descent():
    size = {"n_layer": 6, "n_head": 2, "d_model": 64, "context": 64, "vocab_size": 256}
    (gd, _), (nesterov, loss) = (
        kept(build(f"{name}-lie-trotter", **size)) for name in ("gd", "nesterov")
    )
    assert nesterov / gd < 1.10
    model = build("nesterov-lie-trotter", **size)
    with plain():
        assert kept(model)[0] / gd > 1.25
    loss.backward()


def test_memory_is_released_by_the_backward_pass():
    model = build("nesterov-lie-trotter", n_layer=4, context=64, d_model=32)
    tokens, targets = batch(model)
    with Watcher() as watcher:
        loss = model(tokens, targets)
        before = watcher.alive
        loss.backward()
        gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
        assert watcher.alive - gradients < before / 20
    assert loss.grad_fn is not None  # the graph itself is still there


def test_backward_twice():
    model = build("nesterov-lie-trotter")
    once = loss_and_gradients(model)[1]
    model.zero_grad()
    loss = model(*batch(model))
    loss.backward(retain_graph=True)
    loss.backward()
    assert all(torch.equal(p.grad, 2 * once[n]) for n, p in model.named_parameters() if n in once)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_second_derivatives():
    model = build("nesterov-lie-trotter")
    beta = model.blocks[0].coefficients.raw_beta

    def second():
        # Attention's fast kernel has no second derivative.
        with sdpa_kernel(SDPBackend.MATH):
            loss = model(*batch(model))
        (first,) = torch.autograd.grad(loss, beta, create_graph=True)
        return torch.autograd.grad(first.sum(), beta)[0]

    with pytest.raises(RuntimeError, match="run it under"):
        second()
    with plain():
        assert float(second()) != 0.0


def test_activation_checkpointing_has_its_own_hooks(monkeypatch):
    model = build("nesterov-lie-trotter")
    expected = loss_and_gradients(model)[1]
    model.recompute = True
    seen = count_segments(monkeypatch)
    found = loss_and_gradients(model)[1]
    assert seen == []
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_functional_transformations():
    model = build("nesterov-lie-trotter")
    tokens, targets = batch(model)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(given):
        return torch.func.functional_call(model, given, (tokens, targets))

    expected = loss_and_gradients(model)[1]
    found = torch.func.grad(loss)(parameters)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_blocks_in_other_peoples_models():
    block = yf.RuleBlock("nesterov-lie-trotter", torch.nn.Linear(8, 8), torch.nn.Tanh(), d_model=8)
    X = torch.randn(4, 8, requires_grad=True)

    def gradients():
        streams = {"X": X, "V": 0.5 * X}
        for _ in range(3):
            streams = block(streams)
        return torch.autograd.grad(streams["X"].square().sum(), [X, *block.parameters()])

    with plain():
        expected = gradients()
    assert all(map(torch.equal, gradients(), expected))
