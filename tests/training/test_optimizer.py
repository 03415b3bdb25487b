"""Muon against PyTorch's and a plain reference; groups; rates."""

from __future__ import annotations

import math

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import EVERY, tiny
from tests.training.reference import newton_schulz, rate
from yuriiformer.config import Recipe
from yuriiformer.errors import ConfigError
from yuriiformer.model.parameters import named_groups, parameter_groups
from yuriiformer.training.muon import Muon, orthogonalize, update_scale
from yuriiformer.training.optimizer import Optimizer, lr_factor

SHAPES = [(24, 24), (24, 24), (72, 24), (24, 96), (96, 24), (72, 24), (1, 7), (7, 1)]


def matrices(dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES
    ]


def stepped(make, steps=3, dtype=torch.float32):
    """Parameters after some steps with the same gradients."""
    parameters = [torch.nn.Parameter(m) for m in matrices(dtype)]
    optimizer = make(parameters)
    for step in range(steps):
        for p, gradient in zip(parameters, matrices(dtype, seed=step + 1), strict=True):
            p.grad = gradient.clone()
        optimizer.step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("scale", ["original", "match_rms_adamw"])
def test_muon_points_where_torchs_does(nesterov, scale):
    """PyTorch's computes in bfloat16: the same direction within that error."""
    ours = stepped(
        lambda p: Muon(
            p,
            0.02,
            nesterov=nesterov,
            weight_decay=0.1,
            scale="original" if scale == "original" else "rms",
        )
    )
    theirs = stepped(
        lambda p: torch.optim.Muon(
            p, 0.02, momentum=0.95, nesterov=nesterov, weight_decay=0.1, adjust_lr_fn=scale
        )
    )
    for start, one, two in zip(matrices(), ours, theirs, strict=True):
        moved, other = (one - start).flatten(), (two - start).flatten()
        assert torch.cosine_similarity(moved, other, dim=0) > 0.9995
        assert (moved - other).norm() < 0.02 * other.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_newton_schulz_is_the_plain_one(dtype):
    for shape in sorted(set(SHAPES)):
        generator = torch.Generator().manual_seed(1)
        stack = torch.randn(5, *shape, generator=generator, dtype=torch.float64)
        plain = torch.stack([newton_schulz(each) for each in stack])
        error = (orthogonalize(stack.to(dtype)).double() - plain).abs().max()
        assert error < (2e-5 if dtype == torch.float32 else 1e-12)


def test_singular_values_come_near_one():
    stack = torch.randn(4, 64, 96, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalize(stack))
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_scales():
    assert update_scale(72, 24, "original") == pytest.approx(math.sqrt(3))
    assert update_scale(24, 96, "original") == 1.0
    assert update_scale(24, 96, "rms") == pytest.approx(0.2 * math.sqrt(96))


def test_a_zero_gradient_moves_nothing():
    parameter = torch.nn.Parameter(torch.ones(4, 4))
    parameter.grad = torch.zeros(4, 4)
    Muon([parameter]).step()
    assert torch.equal(parameter.detach(), torch.ones(4, 4))


def test_fused_maps_apart_are_as_if_they_were_matrices():
    generator = torch.Generator().manual_seed(0)
    start, gradient = (torch.randn(12, 4, generator=generator) for _ in range(2))
    whole = torch.nn.Parameter(start.clone())
    whole.grad = gradient.clone()
    Muon([{"params": [whole], "parts": 3}]).step()
    for index in range(3):
        rows = slice(4 * index, 4 * index + 4)
        alone = torch.nn.Parameter(start[rows].clone())
        alone.grad = gradient[rows].clone()
        Muon([alone]).step()
        torch.testing.assert_close(whole.detach()[rows], alone.detach(), rtol=0, atol=1e-6)
    together = torch.nn.Parameter(start.clone())
    together.grad = gradient.clone()
    Muon([together]).step()
    assert not torch.allclose(whole.detach(), together.detach(), atol=1e-4)


def test_muon_refuses_what_is_no_matrix():
    with pytest.raises(ConfigError, match="matrices"):
        Muon([torch.nn.Parameter(torch.zeros(3))])
    with pytest.raises(ConfigError, match="3 part"):
        Muon([{"params": [torch.nn.Parameter(torch.zeros(4, 4))], "parts": 3}])


def test_a_tensor_of_more_dimensions_is_a_matrix_of_its_first_by_all_others():
    """The paper's "2D+ weight matrices": a convolution's kernel goes to Muon, unfolded."""
    generator = torch.Generator().manual_seed(0)
    start, gradient = (torch.randn(6, 2, 3, generator=generator) for _ in range(2))
    kernel, matrix = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.reshape(6, 6))
    kernel.grad, matrix.grad = gradient.clone(), gradient.reshape(6, 6).clone()
    for parameter in (kernel, matrix):
        Muon([parameter]).step()
    assert torch.equal(kernel.detach().reshape(6, 6), matrix.detach())
    groups = parameter_groups(torch.nn.Conv1d(4, 6, 3))
    assert [p.ndim for p in groups["muon"]] == [3]
    assert [p.ndim for p in groups["norms"]] == [1]


def test_muons_momentum_is_a_field_of_the_recipe():
    """Nesterov's unless the recipe says no; the same start and gradients, other steps."""
    moved = []
    for recipe in (Recipe(), Recipe(muon_nesterov=True), Recipe(muon_nesterov=False)):
        model = tiny(seed=1)
        optimizer = Optimizer(model, recipe)
        for step in range(2):
            generator = torch.Generator().manual_seed(step)
            for p in optimizer.parameters:
                p.grad = torch.randn(p.shape, generator=generator)
            optimizer.set_rates(step)
            optimizer.step()
        moved.append(model.blocks[0].attn.qkv.weight.detach())
    assert torch.equal(moved[0], moved[1])
    assert not torch.allclose(moved[0], moved[2])


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
@pytest.mark.parametrize("split", [False, True])
def test_every_parameter_is_in_exactly_one_group(rule, oracles, split):
    model = tiny(rule, oracles)
    names = [name for group in named_groups(model, split_fused=split) for name in group.names]
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert sorted(names) == sorted(trained)
    assert len(names) == len(set(names))
    assert set(model.dead_parameters()).isdisjoint(names)


def test_groups_are_those_of_the_recipe():
    groups = {g.kind: set(g.names) for g in named_groups(tiny(bias=True))}
    assert {n.split(".")[0] for n in groups["embeddings"]} == {"starts"}
    assert all(".raw_" in n for n in groups["coefficients"])
    assert {n.split(".")[-2] for n in groups["matrices"]} == {"qkv", "out", "up", "down"}
    assert all(
        n.endswith((".bias", "norm.weight", "norms.0.weight")) or n == "norm.weight"
        for n in groups["norms"]
    )
    split = [g for g in named_groups(tiny(), split_fused=True) if g.parts == 3]
    assert [n.split(".")[-2] for g in split for n in g.names] == ["qkv"] * 3


def test_rates_and_decays():
    recipe = Recipe(steps=100, warmup=10)
    optimizer = Optimizer(tiny(), recipe)
    expected = {0: 0.1, 9: 1.0, 10: 1.0, 55: 0.55, 100: 0.1, 1000: 0.1}
    for step, factor in expected.items():
        rates = optimizer.set_rates(step)
        assert rates == pytest.approx({"muon": 0.02 * factor, "adamw": 6e-4 * factor})
        muon, adamw = (each.param_groups for each in optimizer.both.values())
        assert [g["lr"] for g in muon] == pytest.approx([0.02 * factor])
        assert [g["lr"] for g in adamw] == pytest.approx(
            [6e-4 * factor, 6e-4 * factor, 3e-3 * factor]
        )
    assert [g["weight_decay"] for g in adamw] == [0.1, 0.0, 0.0]
    assert [g["weight_decay"] for g in muon] == [0.0]
    for step in range(100):
        assert lr_factor(step, steps=100, warmup=10, final=0.1) == pytest.approx(
            rate(step, 100, 10)
        )


def test_adamw_for_everything_is_torchs_over_all_parameters():
    """One step more than once, against AdamW called by hand with the recipe's rates and decays."""
    recipe = Recipe(steps=10, warmup=0, final_lr=1.0, matrices="adamw", matrix_lr=1e-3)
    ours, theirs = tiny(seed=1), tiny(seed=1)
    optimizer = Optimizer(ours, recipe)
    assert "muon" not in optimizer.both
    decayed = {"matrices": 0.1, "embeddings": 0.1, "norms": 0.0, "coefficients": 0.0}
    rates = {"matrices": 1e-3, "embeddings": 6e-4, "norms": 6e-4, "coefficients": 3e-3}
    names = dict(theirs.named_parameters())
    reference = torch.optim.AdamW(
        [
            {
                "params": [names[n] for n in group.names],
                "lr": rates[group.kind],
                "weight_decay": decayed[group.kind],
            }
            for group in named_groups(theirs)
        ],
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    for number in range(3):
        ids = torch.randint(29, (2, 8), generator=torch.Generator().manual_seed(number))
        for model, each in ((ours, optimizer), (theirs, reference)):
            each.zero_grad()
            model(ids, ids).backward()
        assert optimizer.set_rates(number) == {"matrices": 1e-3, "adamw": 6e-4}
        optimizer.step()
        reference.step()
    for name, p in ours.named_parameters():
        torch.testing.assert_close(p, names[name], rtol=0, atol=1e-6)
    state = optimizer.state_tensors()
    assert not [name for name in state if name.startswith("muon/")]
    moments = sum(t.nbytes for name, t in state.items() if not name.endswith("/step"))
    assert optimizer.state_bytes() == moments
    again = Optimizer(tiny(seed=1), recipe)
    again.load_state_tensors(state)
    assert again.state_tensors().keys() == state.keys()


def test_state_bytes_are_those_of_the_state():
    model = tiny()
    optimizer = Optimizer(model, Recipe())
    ids = torch.zeros(2, 8, dtype=torch.int64)
    model(ids, ids).backward()
    optimizer.step()
    state = optimizer.state_tensors().items()
    assert optimizer.state_bytes() == sum(t.nbytes for n, t in state if not n.endswith("/step"))


def test_the_rate_of_matrices_is_adamws_unless_said():
    assert Recipe(matrices="adamw", adamw_lr=0.003).matrix_peak == 0.003
    with pytest.raises(ConfigError, match="matrix_lr is for matrices=adamw"):
        Recipe(matrix_lr=0.1)
    with pytest.raises(ConfigError, match="not one of muon, adamw"):
        Recipe(matrices="sgd")


def test_warmup_is_a_tenth_unless_said():
    assert Recipe(steps=30_000).warmup_steps == 3_000
    assert lr_factor(0, steps=5, warmup=0, final=0.1) == 1.0
    assert lr_factor(3, steps=3, warmup=3, final=0.1) == 1.0
    with pytest.raises(ConfigError, match="longer than the run"):
        Recipe(steps=5, warmup=6)


def test_state_goes_out_and_in_to_the_bit():
    models = [tiny(seed=1), tiny(seed=1)]
    optimizers = [Optimizer(model, Recipe(steps=10)) for model in models]

    def step(model, optimizer, number):
        optimizer.zero_grad()
        ids = torch.randint(29, (2, 8), generator=torch.Generator().manual_seed(number))
        model(ids, ids).backward()
        optimizer.set_rates(number)
        optimizer.step()

    for number in range(3):
        step(models[0], optimizers[0], number)
    models[1].load_state_dict(models[0].state_dict())
    optimizers[1].load_state_tensors(optimizers[0].state_tensors())
    for model, optimizer in zip(models, optimizers, strict=True):
        step(model, optimizer, 3)
    for one, two in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, two)
    with pytest.raises(ConfigError, match="not of this model"):
        Optimizer(tiny("gd-lie-trotter"), Recipe()).load_state_tensors(
            optimizers[0].state_tensors()
        )


def test_muon_is_public():
    assert yf.Muon is Muon
