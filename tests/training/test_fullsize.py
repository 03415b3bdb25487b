"""The paper's presets at full size, without a GPU and without memory: on fake CPU tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import yuriiformer as yf
from yuriiformer.methods.catalog import paper
from yuriiformer.model.context import Context
from yuriiformer.model.device import autocast
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.presets import preset
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import MicroBatch, accumulate

CPU = torch.device("cpu")
WIDTHS = ("tinystories-small", "openwebtext-medium")
DEEP = ("gd-lie-trotter", "nesterov-lie-trotter", "hamiltonian")
PAPER_PRESETS = ("tinystories-small", "openwebtext-small", "openwebtext-medium")


def fake_step(
    name: str, rule: str, *, layers: int | None = 2, recompute: bool = False, streams=None
) -> None:
    """Two micro-batches, clip, both optimisers, as in training; every shape and dtype checked. At
    full width; two layers are a first and a last one, None is the preset's own depth."""
    config = preset(name, rule)
    if layers is not None:
        config = replace(config, model=replace(config.model, n_layer=layers))
    micro = config.machine.micro_batch
    with FakeTensorMode(), CPU:
        model = yf.YuriiFormer(config.model, seed=None)
        model.recompute, model.stream_dtype = recompute, streams
        optimizer = Optimizer(model, config.recipe, torch.bfloat16)
        tokens = torch.zeros(micro, config.model.context, dtype=torch.int64)
        batches = [MicroBatch((tokens, tokens), 0.5)] * 2
        seen = watch(model)
        losses = accumulate(model, batches, Processes(0, 1, CPU), torch.bfloat16)
        assert losses.shape == (2,)
        shape = (micro, config.model.context, config.model.d_model)
        assert seen
        assert set(seen) == {(shape, streams or torch.float32)}
        for parameter_name, parameter in model.named_parameters():
            if parameter.requires_grad:
                assert parameter.grad is not None, parameter_name
                assert parameter.grad.dtype == parameter.dtype == torch.float32
                assert parameter.grad.shape == parameter.shape
            else:
                assert parameter.grad is None
        before = {n: p.dtype for n, p in model.named_parameters()}
        optimizer.set_rates(0)
        torch.nn.utils.clip_grad_norm_(optimizer.parameters, 1.0)
        optimizer.step()
        assert {n: p.dtype for n, p in model.named_parameters()} == before
        for tensor in optimizer.state_tensors().values():
            assert tensor.dtype == torch.float32


def watch(model):
    """The shape and dtype of every stream that enters or leaves a block."""
    seen = []
    for block in model.blocks:
        block.register_forward_hook(
            lambda _, inputs, output: seen.extend(
                (tuple(s.shape), s.dtype)
                for streams in (inputs[0], output)
                for s in streams.values()
            )
        )
    return seen


def test_the_widths_are_all_there_are():
    """The two small presets are one model, so one of them stands for both."""
    sizes = {name: preset(name, "gd-lie-trotter").model for name in PAPER_PRESETS}
    assert sizes["tinystories-small"] == sizes["openwebtext-small"]
    assert {sizes[name].d_model for name in WIDTHS} == {m.d_model for m in sizes.values()}


@pytest.mark.parametrize(
    ("rule", "recompute", "streams"),
    [
        ("nesterov-lie-trotter", False, None),
        ("hamiltonian", True, None),
        ("verlet-ama", False, torch.bfloat16),
    ],
)
def test_a_step_of_the_small_model(rule, recompute, streams):
    fake_step("tinystories-small", rule, recompute=recompute, streams=streams)


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("rule", paper)
def test_a_step_of_every_rule_at_every_width(rule, name):
    """With three layers, so that one is neither first nor last."""
    fake_step(name, rule, layers=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("rule", DEEP)
def test_a_step_at_full_depth(rule, name):
    fake_step(name, rule, layers=None)


def test_oracles_and_projection_run_in_bfloat16():
    """Under autocast the products are bfloat16 while streams, norms and coefficients are not."""
    model = yf.YuriiFormer(yf.ModelConfig(n_layer=1, n_head=2, d_model=8, vocab_size=16, context=4))
    seen = {}
    for label in ("attn.qkv", "attn.out", "mlp.up", "mlp.down"):
        module = model.blocks[0].get_submodule(label)
        module.register_forward_hook(
            lambda _, __, out, label=label: seen.update({label: out.dtype})
        )
    streams = {s: torch.randn(1, 4, 8) for s in "XV"}
    with autocast(torch.bfloat16, CPU):
        after = model.blocks[0](streams, Context(torch.arange(4)))
    assert set(seen.values()) == {torch.bfloat16}
    assert {s.dtype for s in after.values()} == {torch.float32}
    assert {c.dtype for c in model.blocks[0].coefficients().values()} == {torch.float32}
