"""Coefficients as parameters: ranges, starts, shapes, fixed or learned."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import tiny, tokens, unsettle
from yuriiformer.errors import RuleError


def test_they_start_where_the_rule_says_and_stay_in_range():
    model = tiny("hamiltonian")
    for block in model.blocks:
        values = {name: value.item() for name, value in block.coefficients().items()}
        assert list(values) == list(model.config.rule.coefficients)
        expected = {"mu": 0.9, "beta": 0.9, "gamma": 1.0, "delta": 1.0, "gamma_half": 1.0}
        assert values == pytest.approx(expected, rel=1e-6)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".raw_" in name:
                parameter.copy_(torch.tensor([-9.0]))
    low = model.blocks[0].coefficients()
    assert 0 < low["mu"].item() < 1e-3
    assert 0 < low["gamma"].item() < 1e-3


@pytest.mark.parametrize("value", [1e-4, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("kind", ["unit", "positive", "real"])
def test_storing_and_reading_are_inverse(kind, value):
    from yuriiformer.model.block import READ, STORE

    raw = torch.tensor([STORE[kind](value)], dtype=torch.float64)
    assert READ[kind](raw).item() == pytest.approx(value, rel=1e-9)


def test_schedules_over_depth():
    model = tiny("nesterov-classical", n_layer=4)
    got = [b.coefficients()[n].item() for b in model.blocks for n in ("mu", "mu_half")]
    assert got == pytest.approx([k / (k + 3) for k in range(8)])
    model = tiny("polyak-euler+beta=(t+1)/(L+1)", n_layer=4)
    got = [b.coefficients()["beta"].item() for b in model.blocks]
    assert got == pytest.approx([0.2, 0.4, 0.6, 0.8])


def test_fixed_ones_are_no_parameters_and_survive_training_and_files(tmp_path):
    model = tiny("nesterov-fixed")
    assert not any("raw_" in name for name, _ in model.named_parameters())
    before = {n: v.item() for n, v in model.blocks[0].coefficients().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(tokens(model), tokens(model)).backward()
    optimizer.step()
    yf.save_model(model, tmp_path / "m")
    for again in (model, yf.load_model(tmp_path / "m")):
        assert {n: v.item() for n, v in again.blocks[0].coefficients().items()} == before


def test_per_channel_and_per_head():
    model = unsettle(tiny("nesterov-lie-trotter+channel=mu+head=beta"))
    values = model.blocks[0].coefficients()
    assert values["mu"].shape == (16,)
    assert model.blocks[0].coefficients.raw_beta.shape == (4,)
    assert values["beta"].shape == (16,)
    by_head = values["beta"].view(4, 4)
    assert torch.equal(by_head, by_head[:, :1].expand(4, 4))
    assert values["gamma"].shape == (1,)
    ids = tokens(model)
    model(ids, ids).backward()
    assert model.blocks[0].coefficients.raw_mu.grad.shape == (16,)


def test_equal_channels_are_a_scalar():
    channel, scalar = tiny("nesterov-lie-trotter+channel=mu"), tiny()
    assert torch.equal(channel(tokens(channel)), scalar(tokens(scalar)))


def test_a_schedule_out_of_range_is_refused_when_the_model_is_built():
    with pytest.raises(RuleError, match=r"coefficient 'mu': .* at layer 0 of 3"):
        tiny("nesterov-lie-trotter+mu=t/(t+3)")  # learned, but 0 at the first layer


def test_raw_tensors_have_a_dimension():
    """Sharded training cannot split a 0-dimensional parameter."""
    assert all(p.ndim >= 1 for p in tiny("hamiltonian").parameters())


def test_names_that_modules_also_use():
    rule = yf.Rule(
        "odd",
        "X = X + train * attn(X) + keys * mlp(X) + T_destination",
        coefficients={"train": 0.5, "keys": 0.5},
        streams={"T_destination": "tables"},
    )
    model = tiny(rule)
    assert model(tokens(model)).isfinite().all()
