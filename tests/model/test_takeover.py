"""One model's weights in another: what comes over, and when the function stays the same."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from yuriiformer.errors import ConfigError
from yuriiformer.methods.catalog import upcycling
from yuriiformer.model.takeover import take_over

SIZES = {"n_layer": 2, "n_head": 2, "d_model": 32, "vocab_size": 61, "context": 16}
TOKENS = torch.randint(61, (2, 16), generator=torch.Generator().manual_seed(0))


def model(rule: str | yf.Rule, seed: int, **sizes: object) -> yf.YuriiFormer:
    return yf.YuriiFormer(yf.ModelConfig(rule=rule, **{**SIZES, **sizes}), seed=seed)


@pytest.fixture(scope="module")
def trained():
    """Gradient descent whose parameters are nowhere near a start."""
    found = model("gd-lie-trotter", 1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return found


@pytest.mark.parametrize("rule", ["gd-lie-trotter", *upcycling])
def test_rules_that_contain_gradient_descent_compute_the_same_to_the_bit(trained, rule):
    new = model(rule, 5)
    told = take_over(new, trained)
    assert torch.equal(new(TOKENS), trained(TOKENS))
    assert sorted(told.taken) == sorted(trained.state_dict())
    assert not told.left


@pytest.mark.parametrize("rule", list(upcycling))
def test_their_coefficients_can_leave_that_place(trained, rule):
    """Nothing starts where the loss does not depend on it: else the rule would stay the old one."""
    new = model(rule, 5)
    take_over(new, trained)
    new(TOKENS, TOKENS).backward()
    name = "beta" if rule == "nesterov-from-gd" else "gate"
    gradients = [block.get_parameter(f"coefficients.raw_{name}").grad for block in new.blocks]
    # In the first layer the velocity is at rest: beta then has nothing to carry over.
    assert all(gradient.abs().item() > 0 for gradient in gradients[1:])


def test_the_place_is_found_wherever_the_rule_starts(trained):
    rule = yf.Rule(
        "own",
        "A = attn(X)\nX = X + A + a * unit(A)\nX = X + b * mlp(X)",
        coefficients={"a": {"initial": 0.3}, "b": {"initial": 0.5}},
    )
    new = model(rule, 5)
    assert take_over(new, trained).coefficients == {"a": 0.0, "b": 1.0}
    assert torch.equal(new(TOKENS), trained(TOKENS))


def test_a_rule_that_cannot_be_the_old_one_is_said_to_jump(trained):
    nesterov, table = model("nesterov-lie-trotter", 5), model("gd-table", 5)
    told = take_over(nesterov, trained)
    assert told.remarks == [
        "nesterov-lie-trotter does not contain gd-lie-trotter: the loss will jump"
    ]
    assert {name for name in told.new if name.startswith("starts")} == {
        "starts.V_0.tokens.weight",
        "starts.V_0.positions.weight",
    }
    assert "lam = 0, an end of the range" in take_over(table, trained).remarks[0]
    assert not torch.allclose(nesterov(TOKENS), trained(TOKENS))


def test_other_numbers_of_layers_and_positions(trained):
    small = model("gd-lie-trotter", 5, n_layer=1, context=8)
    told = take_over(small, trained)
    assert told.partly == {"starts.X_0.positions.weight": 8}
    assert told.left == [name for name in trained.state_dict() if name.startswith("blocks.1.")]
    large, drawn = (model("gd-lie-trotter", 5, n_layer=3, context=32) for _ in range(2))
    told = take_over(large, trained)
    assert told.new == [name for name in drawn.state_dict() if name.startswith("blocks.2.")]
    ours, before = large.state_dict(), drawn.state_dict()
    place = "starts.X_0.positions.weight"
    assert torch.equal(ours[place][:16], trained.state_dict()[place])
    assert torch.equal(ours[place][16:], before[place][16:])
    assert all(torch.equal(ours[name], before[name]) for name in told.new)


def test_coefficients_come_over_where_their_numbers_mean_the_same():
    old = model("nesterov-lie-trotter", 1)
    with torch.no_grad():
        for block in old.blocks:
            block.get_parameter("coefficients.raw_mu").fill_(-1.0)
            block.get_parameter("coefficients.raw_beta").fill_(0.5)
    polyak, fixed, real = (
        model(rule, 5) for rule in ("polyak-lie-trotter", "nesterov-fixed", "nesterov-from-gd")
    )
    for new in (polyak, fixed, real):
        take_over(new, old)
    assert polyak.blocks[1].coefficients()["beta"] == old.blocks[1].coefficients()["beta"]
    assert fixed.blocks[1].coefficients()["beta"].item() == pytest.approx(0.9)
    assert real.blocks[1].coefficients()["beta"] == 0  # 0.5 is the logit of a beta in (0, 1)


@pytest.mark.parametrize("field", ["d_model", "vocab_size"])
def test_another_width_or_vocabulary_is_refused(trained, field):
    with pytest.raises(ConfigError, match=f"{field}=64, but the model to begin from has"):
        take_over(model("gd-lie-trotter", 5, **{field: 64}), trained)
