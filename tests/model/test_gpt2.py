"""`gd-lie-trotter` is GPT-2: against Hugging Face's model with the same weights."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

import yuriiformer as yf
from tests.later import Later
from tests.model.tiny import tiny, tokens, unsettle

transformers = Later("transformers")
pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers")

SETTINGS = {
    "GPT-2's own: biases and tanh-GELU": {"bias": True, "gelu": "tanh"},
    "the paper's: no biases, exact GELU": {"bias": False, "gelu": "exact"},
}


def hugging_face(model: yf.YuriiFormer):
    """A `GPT2LMHeadModel` with the model's weights, and zero biases where the model has none."""
    c = model.config
    config = transformers.GPT2Config(
        vocab_size=c.vocab_size,
        n_positions=c.context,
        n_embd=c.d_model,
        n_layer=c.n_layer,
        n_head=c.n_head,
        activation_function="gelu_new" if c.gelu == "tanh" else "gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    theirs = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter.copy_(ours(model, name))
    return theirs


def ours(model: yf.YuriiFormer, name: str) -> torch.Tensor:
    """The tensor of ours that a tensor of theirs is; their linear maps are transposed."""
    weights = dict(model.named_parameters())
    if name == "transformer.wte.weight":
        return weights["starts.X_0.tokens.weight"]
    if name == "transformer.wpe.weight":
        return weights["starts.X_0.positions.weight"]
    name = name.removeprefix("transformer.")
    for theirs, own in (
        ("h.", "blocks."),
        ("ln_1", "attn.norm"),
        ("ln_2", "mlp.norm"),
        ("ln_f", "norm"),
        ("attn.c_attn", "attn.qkv"),
        ("attn.c_proj", "attn.out"),
        ("mlp.c_fc", "mlp.up"),
        ("mlp.c_proj", "mlp.down"),
    ):
        name = name.replace(theirs, own)
    if name not in weights:
        assert name.endswith("bias")
        return torch.zeros(())
    is_matrix = weights[name].ndim == 2
    return weights[name].T if is_matrix else weights[name]


@pytest.mark.parametrize("setting", SETTINGS)
def test_logits(setting):
    model = unsettle(tiny("gd-lie-trotter", d_model=32, context=20, **SETTINGS[setting]))
    theirs = hugging_face(model).eval()
    ids = tokens(model, batch=3)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("setting", SETTINGS)
def test_twenty_adamw_steps(setting):
    """The same optimiser on both from equal weights: equal losses, step by step."""
    model = tiny("gd-lie-trotter", d_model=32, context=20, **SETTINGS[setting])
    theirs = hugging_face(model)
    if not model.config.bias:
        for name, parameter in theirs.named_parameters():
            parameter.requires_grad_(not name.endswith("bias"))
    options = {"lr": 3e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}
    optimizers = [
        torch.optim.AdamW((p for p in m.parameters() if p.requires_grad), **options)
        for m in (model, theirs)
    ]
    losses = []
    for step in range(20):
        ids = tokens(model, batch=4, seed=step)
        one = model(ids[:, :-1], ids[:, 1:])
        two = theirs(ids, labels=ids).loss
        losses.append((one.item(), two.item()))
        for loss, optimizer in zip((one, two), optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for one, two in losses:
        assert one == pytest.approx(two, abs=1e-5)
    assert losses[0][0] != pytest.approx(losses[-1][0], abs=1e-2)  # it did train
