"""Starts: nanoGPT's distributions, drawn by tensor name."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import tiny


def test_rules_share_their_start_wherever_both_have_a_tensor():
    models = {name: dict(tiny(name, seed=5).named_parameters()) for name in yf.rules}
    reference = models["nesterov-table"]  # has every table
    for name, parameters in models.items():
        common = parameters.keys() & reference.keys()
        assert {n for n in parameters if "coefficients" not in n} - common <= {
            n for n in parameters if "velocity_norms" in n
        }
        for tensor in common:
            if "coefficients" not in tensor:
                assert torch.equal(parameters[tensor], reference[tensor]), (name, tensor)


def test_the_seed_matters_and_the_global_generator_does_not():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = tiny()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(one.token_table, tiny().token_table)
    assert not torch.equal(one.token_table, tiny(seed=1).token_table)
    tables = one.starts
    assert not torch.equal(tables["X_0"].tokens.weight, tables["V_0"].tokens.weight)
    assert not torch.equal(one.blocks[0].attn.qkv.weight, one.blocks[1].attn.qkv.weight)


def test_depth_and_device_do_not_move_a_tensor():
    """Only the output projections know the depth; everything else is the same tensor."""
    deep, shallow = tiny(n_layer=6), tiny(n_layer=2)
    for name, parameter in shallow.named_parameters():
        other = dict(deep.named_parameters())[name]
        if name.endswith(("attn.out.weight", "mlp.down.weight")):
            torch.testing.assert_close(parameter * 2**-0.5, other * (6 / 2) ** 0.5 * 2**-0.5)
        else:
            assert torch.equal(parameter, other), name


@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_distributions(oracles):
    model = tiny(oracles=oracles, d_model=128, vocab_size=997, context=64, n_layer=8)
    scale = (2 * 8) ** -0.5
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            std = 0.02 * (scale if name.endswith(("out.weight", "down.weight")) else 1.0)
            assert parameter.std().item() == pytest.approx(std, rel=0.05), name
            assert abs(parameter.mean().item()) < 4 * std / parameter.numel() ** 0.5
        elif "norm" in name:
            assert (parameter == 1).all()


def test_biases_start_at_zero():
    model = tiny(bias=True)
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    assert len(biases) == 3 * (1 + 2 + 1 + 2) + 1  # norm, qkv, out; norm, up, down; final norm
    assert not any(p.any() for p in biases)
    assert not any("velocity_norms" in n and "bias" in n for n, _ in model.named_parameters())


GOLDEN = {
    "starts.X_0.tokens.weight": [0.004241893, -0.003091061, -0.019904360],
    "blocks.1.attn.qkv.weight": [0.017445570, -0.002934866, 0.012776555],
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_start(name):
    """The first numbers of two tensors: a change of start would change every result."""
    tensor = tiny(seed=0).get_parameter(name)
    assert tensor[0, :3].tolist() == pytest.approx(GOLDEN[name], rel=1e-6)
