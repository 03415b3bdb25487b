"""Work against torch's own counter around the real model, and against formulas."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import yuriiformer as yf
from tests.model.tiny import EVERY, tiny, tokens
from yuriiformer.costs.flops import counter, model_work, muon_work, rule_elementwise
from yuriiformer.costs.run import count_parameters
from yuriiformer.methods.drawing.listing import extra_parameters
from yuriiformer.training.muon import orthogonalize

SHAPES = [
    {"n_layer": 3, "d_model": 16, "context": 24, "vocab_size": 37},
    {"n_layer": 1, "d_model": 32, "context": 8, "vocab_size": 203},
]


def counted(model, *, backward: bool) -> float:
    """Operations a token of the real model on real tensors."""
    ids = tokens(model, batch=2)
    with counter() as found:
        if backward:
            model(ids, ids).backward()
        else:
            with torch.no_grad():
                model(ids)
    return found.get_total_flops() / ids.numel()


@pytest.mark.parametrize("rule", ["nesterov-lie-trotter", "hamiltonian", "imex2-attn-mlp"])
def test_rules_against_the_counter(rule):
    against_the_counter(rule, "paper", SHAPES[0])


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_every_rule_against_the_counter(rule, oracles):
    """Every rule with both pairs of oracles and with both shapes, one shape for each pair."""
    number = list(yf.rules).index(rule) + (oracles == "paper")
    against_the_counter(rule, oracles, SHAPES[number % 2])


@pytest.mark.slow
@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_oracles_against_the_counter_in_both_shapes(oracles):
    for shape in SHAPES:
        against_the_counter("imex2-attn-mlp", oracles, shape)


def against_the_counter(rule, oracles, shape):
    model = tiny(rule, oracles, **shape)
    work = model_work(model.config, recompute=True)
    assert work.total.forward == pytest.approx(counted(model, backward=False), rel=0.02)
    assert work.total.both == pytest.approx(counted(model, backward=True), rel=0.02)
    model.recompute = True
    both = work.total.both + work.recomputed
    assert both == pytest.approx(counted(model, backward=True), rel=0.02)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_grouped_queries_against_the_counter(heads):
    model = tiny("polyak-euler", "modern", n_kv_head=heads, context=20)
    work = model_work(model.config)
    assert work.total.both == pytest.approx(counted(model, backward=True), rel=0.02)


@pytest.mark.parametrize(
    ("rule", "oracles"), list(product(["gd-euler", "verlet-mam"], ["paper", "modern"]))
)
def test_attention_as_torch_counts_plain_products(rule, oracles):
    """The kernel written out: torch counts its products itself, forward the same, backward
    without the scores that the fused kernel computes again."""
    model = tiny(rule, oracles, context=40)
    ids = tokens(model)
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward, torch.no_grad():
            model(ids)
        with FlopCounterMode(display=False) as both:
            model(ids, ids).backward()
    work = model_work(model.config)
    assert work.total.forward == pytest.approx(forward.get_total_flops() / ids.numel(), rel=1e-9)
    again = work.scores.forward / 2
    assert work.total.both - again == pytest.approx(both.get_total_flops() / ids.numel(), rel=1e-9)


def test_the_papers_model_longhand():
    """24 d² and 4 T d a layer, 2 V d for the output."""
    config = yf.ModelConfig(
        "nesterov-lie-trotter", n_layer=2, n_head=4, d_model=64, context=96, vocab_size=512
    )
    work = model_work(config)
    assert work.projections.forward == 2 * 8 * 64**2
    assert work.mlp.forward == 2 * 16 * 64**2
    assert work.scores.forward == 2 * 4 * 96 * 64
    assert work.output.forward == 2 * 512 * 64
    assert work.projections.backward == 2 * work.projections.forward
    assert work.scores.backward == 2.5 * work.scores.forward


def test_dead_steps_cost_nothing():
    """The last block of the Hamiltonian rule leaves its MLP kick out."""
    config = yf.ModelConfig("hamiltonian", n_layer=3, n_head=2, d_model=8, context=8, vocab_size=16)
    work = model_work(config)
    assert work.projections.forward == 3 * 8 * 8**2
    assert work.mlp.forward == 2 * 16 * 8**2


@pytest.mark.parametrize(
    ("rule", "operations"),
    [
        ("gd-lie-trotter", 2),  # X + attn, X + mlp
        # twice: X + mu V is 2, beta V + gamma G is 3, the norm 8, X + V is 1
        ("nesterov-lie-trotter", 2 * (2 + 3 + 8 + 1)),
        ("gd-normalized", 2 * (8 + 1)),
    ],
)
def test_the_rules_own_arithmetic(rule, operations):
    config = yf.ModelConfig(rule, n_layer=1, n_head=2, d_model=8, context=4, vocab_size=16)
    assert rule_elementwise(config) == operations * 8


def test_coefficients_alone_are_free():
    rule = yf.Rule("mine", "c = 2 * mu\nX = X + c * attn(X) - mlp(X)")
    config = yf.ModelConfig(rule, n_layer=3, n_head=2, d_model=8, context=4, vocab_size=16)
    assert rule_elementwise(config) == 3 * 3 * 8  # times, plus, minus


@pytest.mark.parametrize("shape", [(4, 12, 20), (3, 20, 12), (1, 8, 8)])
def test_muon_against_the_counter(shape):
    with FlopCounterMode(display=False) as found:
        orthogonalize(torch.randn(shape), steps=5)
    assert muon_work([shape[1:]] * shape[0], 5) == found.get_total_flops()


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_parameters_by_part(rule, oracles):
    """All of them once, and the rule's own as its equations say."""
    model = tiny(rule, oracles)
    parts = count_parameters(model.config)
    assert parts.all == sum(p.numel() for p in model.parameters())
    assert parts.paper == model.num_parameters()
    assert parts.frozen == sum(p.numel() for p in model.parameters() if not p.requires_grad)
    own = extra_parameters(model.config.rule, n_layer=3, n_head=4, d_model=16, vocab_size=29)
    assert parts.start_tables == own.tables
    assert parts.coefficients == own.coefficients
    assert parts.token_table == 29 * 16
    assert parts.norms == own.norms + (2 * 3 + 1) * 16
    streams = 1 + own.tables // (29 * 16)
    assert parts.positions == (streams * 12 * 16 if oracles == "paper" else 0)
    trained = parts.attention + parts.mlp - sum(r * c for r, c in parts.matrices)
    assert 0 <= trained <= parts.frozen
