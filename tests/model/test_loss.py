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
    """With bfloat16 inputs PyTorch's chunked operator is wrong on CPU, the more the smaller."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(600, 32, generator=generator).bfloat16()
    weight = (0.1 * torch.randn(5000, 32, generator=generator)).bfloat16()
    targets = torch.randint(5000, (600,), generator=generator)
    exact = F.cross_entropy(hidden.float() @ weight.float().T, targets)
    loss = mean_cross_entropy(hidden, weight, targets, rows * 5000)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.parametrize("chunk_elements", [2**25, 64 * 301])
def test_autocast_does_not_reach_it(chunk_elements):
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 32, generator=generator) for n in (200, 301))
    targets = torch.randint(301, (200,), generator=generator)
    alone = mean_cross_entropy(hidden, weight, targets, chunk_elements)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(mean_cross_entropy(hidden, weight, targets, chunk_elements), alone)


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
