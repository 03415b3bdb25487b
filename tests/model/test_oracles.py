"""Oracles plug in: the modern pair longhand, and a third party's."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import yuriiformer as yf
from tests.model.tiny import tiny, unsettle
from yuriiformer.errors import ConfigError
from yuriiformer.model import oracles as registry
from yuriiformer.model.context import Context
from yuriiformer.model.oracles import kv_heads, rotate


def test_paper_attention_longhand():
    model = unsettle(tiny()).double()
    attn = model.blocks[0].attn
    Y = torch.randn(2, 6, 16, dtype=torch.float64)
    normed = F.layer_norm(Y, (16,), attn.norm.weight)
    out = torch.zeros_like(Y)
    q, k, v = (normed @ attn.qkv.weight.T).chunk(3, -1)
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        for i in range(6):
            score = torch.einsum("bd,bjd->bj", q[:, i, part], k[:, : i + 1, part]) / math.sqrt(4)
            out[:, i, part] = torch.einsum("bj,bjd->bd", score.softmax(-1), v[:, : i + 1, part])
    expected = out @ attn.out.weight.T
    torch.testing.assert_close(attn(Y, Context(torch.arange(6))), expected)


def test_paper_mlp_longhand():
    model = unsettle(tiny()).double()
    mlp = model.blocks[0].mlp
    Y = torch.randn(2, 6, 16, dtype=torch.float64)
    hidden = F.layer_norm(Y, (16,), mlp.norm.weight) @ mlp.up.weight.T
    gelu = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))
    torch.testing.assert_close(mlp(Y, Context(torch.arange(6))), gelu @ mlp.down.weight.T)


def test_grouped_attention_longhand():
    model = unsettle(tiny(oracles="modern", n_kv_head=2)).double()
    attn = model.blocks[0].attn
    Y = torch.randn(2, 6, 16, dtype=torch.float64)
    positions = torch.arange(3, 9)
    normed = Y / (Y.square().mean(-1, keepdim=True) + 1e-5).sqrt() * attn.norm.weight
    q = normed @ attn.q.weight.T
    k, v = (normed @ attn.kv.weight.T).chunk(2, -1)

    def turned(x: torch.Tensor) -> torch.Tensor:  # as complex numbers, one head of 4 channels
        z = torch.complex(x[..., :2], x[..., 2:])
        angle = positions[:, None] * torch.tensor([1.0, 10_000.0**-0.5]).double()
        z = z * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([z.real, z.imag], -1)

    out = torch.zeros_like(Y)
    for head in range(4):
        own, shared = slice(4 * head, 4 * head + 4), slice(4 * (head // 2), 4 * (head // 2) + 4)
        scores = turned(q[..., own]) @ turned(k[..., shared]).transpose(1, 2) / 2
        mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
        out[..., own] = scores.masked_fill(mask, -torch.inf).softmax(-1) @ v[..., shared]
    expected = out @ attn.out.weight.T
    torch.testing.assert_close(attn(Y, Context(positions)), expected, rtol=1e-5, atol=1e-6)


def test_rotation_sees_only_differences_of_position():
    q, k = torch.randn(2, 1, 1, 7, 8, dtype=torch.float64).unbind(0)
    products = [
        rotate(q, torch.arange(7) + shift) @ rotate(k, torch.arange(7) + shift).transpose(-1, -2)
        for shift in (0, 11)
    ]
    torch.testing.assert_close(*products, rtol=0, atol=1e-4)
    assert torch.equal(rotate(q, torch.zeros(7)), q)


def test_the_modern_pair_has_no_position_tables():
    model = tiny(oracles="modern")
    assert not any("positions" in name for name, _ in model.named_parameters())
    assert isinstance(model.norm, nn.RMSNorm)


HEADS = {1: 1, 2: 1, 4: 1, 6: 1, 8: 2, 12: 3, 16: 4}


@pytest.mark.parametrize(("heads", "expected"), HEADS.items())
def test_default_key_value_heads(heads, expected):
    config = yf.ModelConfig(oracles="modern", n_head=heads, d_model=16 * heads)
    assert kv_heads(config) == expected


def test_the_two_pairs_cost_about_the_same():
    with torch.device("meta"):
        paper = yf.YuriiFormer(yf.ModelConfig()).num_parameters()
        modern = yf.YuriiFormer(yf.ModelConfig(oracles="modern", n_kv_head=12)).num_parameters()
    assert modern == pytest.approx(paper, rel=1e-3)


def test_a_pairs_name_is_given_once(monkeypatch):
    monkeypatch.setattr(registry, "_PAIRS", dict(registry._PAIRS))
    pair = registry._PAIRS["paper"]
    yf.register_oracles("mine", pair)
    yf.register_oracles("mine", pair)  # importing a module twice is no harm
    with pytest.raises(ConfigError, match="registered already"):
        yf.register_oracles("mine", registry._PAIRS["modern"])
