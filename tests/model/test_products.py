"""oneDNN's products give the losses and gradients of torch's."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from yuriiformer.config import Machine
from yuriiformer.errors import ConfigError
from yuriiformer.model import products
from yuriiformer.model.products import onednn

SIZE = {"n_layer": 2, "n_head": 2, "d_model": 32, "vocab_size": 61, "context": 16}
need_onednn = pytest.mark.skipif(not products._ONEDNN, reason="torch without oneDNN")


@need_onednn
def test_products_with_and_without_bias():
    x, weight, bias = torch.randn(5, 1, 24), torch.randn(7, 24), torch.randn(7)
    for added in (None, bias):
        expected = torch.nn.functional.linear(x, weight, added)
        torch.testing.assert_close(onednn(x, weight, added), expected)


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
