"""The loss is the cross-entropy of the logits, in value and gradient, chunked or not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.model.tiny import tiny, tokens, unsettle
from yuriiformer.model.loss import mean_cross_entropy


@pytest.mark.parametrize("ignored", [0, 5])
@pytest.mark.parametrize("chunk_elements", [2**25, 64 * 301, 301, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradients(chunk_elements, ignored, dtype):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(4, 50, 32, generator=generator, dtype=dtype).requires_grad_(True)
    weight = torch.randn(301, 32, generator=generator, dtype=dtype).requires_grad_(True)
    targets = torch.randint(301, (4, 50), generator=generator)
    targets.view(-1)[:ignored] = -100
    plain = F.cross_entropy((hidden @ weight.T).flatten(0, 1), targets.flatten())
    expected = torch.autograd.grad(plain, (hidden, weight))
    loss = mean_cross_entropy(hidden, weight, targets, chunk_elements)
    got = torch.autograd.grad(loss, (hidden, weight))
    exact = dtype == torch.float64
    rounding = {"rtol": 1e-12 if exact else 2e-6, "atol": 1e-14 if exact else 2e-7}
    torch.testing.assert_close(loss, plain, **rounding)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, **rounding)
    with torch.no_grad():
        torch.testing.assert_close(
            mean_cross_entropy(hidden, weight, targets, chunk_elements), plain, **rounding
        )


@pytest.mark.parametrize("rows", [8, 64, 512])
def test_bfloat16_weights_do_not_spoil_it(rows):
    """PyTorch's own chunked operator is wrong here on CPU, the more the smaller the chunks."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(600, 32, generator=generator).bfloat16()
    weight = (0.1 * torch.randn(5000, 32, generator=generator)).bfloat16()
    targets = torch.randint(5000, (600,), generator=generator)
    exact = F.cross_entropy(hidden.float() @ weight.float().T, targets)
    loss = mean_cross_entropy(hidden, weight, targets, rows * 5000)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-4)


@pytest.mark.parametrize("chunk_elements", [2**25, 64 * 301])
def test_under_autocast_only_the_products_round(chunk_elements):
    """The products take bfloat16 arguments; softmax, loss and sums stay float32."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (
        torch.randn(n, 32, generator=generator).requires_grad_(True) for n in (200, 301)
    )
    targets = torch.randint(301, (200,), generator=generator)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = mean_cross_entropy(hidden, weight, targets, chunk_elements)
    got = torch.autograd.grad(loss, (hidden, weight))
    alone = mean_cross_entropy(hidden, weight, targets, chunk_elements)
    expected = torch.autograd.grad(alone, (hidden, weight))
    assert loss.dtype == torch.float32
    assert loss.item() != alone.item()  # it did round
    assert loss.item() == pytest.approx(alone.item(), rel=1e-3)
    for ours, exact in zip(got, expected, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - exact).norm() < 1e-2 * exact.norm()


@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_the_models_loss_is_that_of_its_logits(oracles):
    model = unsettle(tiny(oracles=oracles))
    ids, targets = tokens(model), tokens(model, seed=1)
    targets[0, :4] = -100
    loss = model(ids, targets)
    logits = model(ids)
    torch.testing.assert_close(loss, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


def test_accumulated_gradients_add_up():
    """Two micro-batches of equal size, each weighted by a half, give the whole batch's gradient."""
    whole, parts = tiny().double(), tiny().double()
    ids, targets = tokens(whole, batch=4), tokens(whole, batch=4, seed=1)
    whole(ids, targets).backward()
    for half in (slice(0, 2), slice(2, 4)):
        (parts(ids[half], targets[half]) / 2).backward()
    for one, two in zip(whole.parameters(), parts.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
