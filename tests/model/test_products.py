"""Generating with oneDNN's products gives the logits of torch's."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from yuriiformer.config import Machine
from yuriiformer.errors import ConfigError
from yuriiformer.model import products
from yuriiformer.model.generate import Predictor, Sampling, stream
from yuriiformer.model.products import Linear, generating, of_one_token, onednn

SIZE = {"n_layer": 2, "n_head": 2, "d_model": 32, "vocab_size": 61, "context": 16}
need_onednn = pytest.mark.skipif(not products._ONEDNN, reason="torch without oneDNN")


@need_onednn
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("oracles", ["paper", "modern"])
@pytest.mark.parametrize("tokens", [9, products.TOKENS])
def test_logits_while_generating(rows, oracles, tokens):
    model = yf.YuriiFormer(yf.ModelConfig("nesterov-lie-trotter", oracles=oracles, **SIZE))
    texts = torch.randint(61, (rows, 9)).tolist()

    def logits(table):
        predict = Predictor(model)
        predict.table = table
        return torch.stack([predict([text[:end] for text in texts]) for end in range(1, 10)])

    with torch.inference_mode():
        expected = logits(None)
        with generating(model, model.token_table, tokens) as table:
            copied = table.data_ptr() != model.token_table.data_ptr()
            assert copied == (tokens >= products.TOKENS)
            found = logits(table)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert not torch.equal(found, 0 * found)


@need_onednn
def test_products_with_and_without_bias():
    x, weight, bias = torch.randn(5, 1, 24), torch.randn(7, 24), torch.randn(7)
    for added in (None, bias):
        expected = torch.nn.functional.linear(x, weight, added)
        torch.testing.assert_close(onednn(x, weight, added), expected)
        turned = weight.mT.contiguous().mT
        for stored in (weight, turned):
            torch.testing.assert_close(of_one_token(x, stored, added), expected)
            torch.testing.assert_close(of_one_token(x[:1], stored, added), expected[:1])


@need_onednn
def test_copies_are_of_modest_size(monkeypatch):
    monkeypatch.setattr(products, "COPIES", 2 * 8 * 8 * 4 - 1)
    layer = Linear(8, 8)
    with generating(layer, layer.weight, products.TOKENS) as table:
        assert table.data_ptr() == layer.weight.data_ptr()
        assert layer.generates.data_ptr() == layer.weight.data_ptr()


@need_onednn
def test_a_short_text_and_then_a_long_one():
    layer = Linear(8, 8)
    for tokens in (1, products.TOKENS, 1):
        with generating(layer, layer.weight, tokens):
            assert dict(layer.named_parameters()) == {"weight": layer.weight}


@need_onednn
def test_only_while_generating(monkeypatch):
    seen = []
    monkeypatch.setattr(products, "onednn", lambda *a: seen.append(1) or onednn(*a))
    layer = Linear(8, 8)
    torch.nn.init.ones_(layer.weight)
    x = torch.randn(2, 1, 8)
    with torch.inference_mode():
        layer(x)
        assert seen == []
        with generating(layer, layer.weight, 1):
            layer(x)
            assert seen == [1]
            layer(torch.randn(2, 3, 8))  # a prompt
    assert seen == [1]
    with generating(layer, layer.weight, 1):  # somebody trains it meanwhile
        layer(x).sum().backward()
    assert seen == [1]
    assert layer.weight.grad is not None
    assert layer.generates is None


def test_other_numbers_are_left_to_torch():
    model = yf.YuriiFormer(yf.ModelConfig("gd-lie-trotter", **SIZE)).double()
    greedy = Sampling(temperature=0)
    tokens = list(stream(model, [[1, 2, 3]], 5, greedy))
    assert tokens == list(stream(model, [[1, 2, 3]], 5, greedy, cached=False))
    table = torch.zeros(2, 2)
    assert not products.can_use_onednn(table.double(), 1)
    assert not products.can_use_onednn(table, products.ROWS + 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not products.can_use_onednn(table, 1)


@pytest.mark.parametrize("faster", [False, need_onednn.args[0] is False])
def test_products_of_the_loss(monkeypatch, faster):
    monkeypatch.setattr(products, "_is_faster", lambda a: faster)
    a, b, total = torch.randn(5, 7), torch.randn(9, 7), torch.randn(7, 3)
    torch.testing.assert_close(products.product(a, b, torch.empty(5, 9)), a @ b.mT)
    expected = total + a.mT @ (c := torch.randn(5, 3))
    products.add_product(total, a, c)
    torch.testing.assert_close(total, expected)


@need_onednn
@pytest.mark.parametrize("bias", [False, True])
def test_training_with_onednn(monkeypatch, bias):
    """Losses and gradients up to rounding; the products are really oneDNN's."""
    model = yf.YuriiFormer(yf.ModelConfig("nesterov-lie-trotter", bias=bias, **SIZE))
    tokens, targets = torch.randint(61, (2, 3, 16))

    def loss_and_gradients():
        model.zero_grad()
        loss = model(tokens, targets)
        loss.backward()
        return [loss.detach(), *(p.grad for p in model.parameters())]

    expected = loss_and_gradients()
    products.use_onednn(model)
    seen = []
    monkeypatch.setattr(products, "onednn", lambda *a: seen.append(1) or onednn(*a))
    found = loss_and_gradients()
    assert len(seen) == 3 * (4 * SIZE["n_layer"] + 1)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_onednn_is_for_float32():
    with pytest.raises(ConfigError, match="precision=float32"):
        Machine(products="onednn", precision="bfloat16")
