"""GPT-2 of others as ours: Hugging Face's folders and nanoGPT's checkpoints."""

from __future__ import annotations

import json
import os

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import yuriiformer as yf
from tests.later import Later
from yuriiformer.cli import importing as command
from yuriiformer.errors import ModelFileError, YuriiError
from yuriiformer.methods.catalog import BASELINE

ours, transformers = Later("yuriiformer.huggingface"), Later("transformers")

SIZES = {"n_layer": 2, "n_head": 4, "n_embd": 32, "vocab_size": 101}
IDS = torch.randint(101, (3, 12), generator=torch.Generator().manual_seed(0))


def gpt2(**options):
    """Randomly initialised, every bias and gain moved away from where it starts."""
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**SIZES, n_positions=40, **options)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize("activation", ["gelu_new", "gelu"])
def test_hugging_face(activation, tmp_path, capsys):
    theirs = gpt2(activation_function=activation)
    theirs.save_pretrained(tmp_path / "gpt2")
    command.run([str(tmp_path / "gpt2"), str(tmp_path / "out")])
    assert BASELINE in capsys.readouterr().out
    model = yf.load_model(tmp_path / "out")
    assert model.config.rule.name == BASELINE
    assert all(float(p.detach().abs().max()) > 0 for p in model.parameters() if p.ndim == 1)
    with torch.no_grad():
        torch.testing.assert_close(model(IDS), theirs(IDS).logits, rtol=0, atol=1e-5)
    found = theirs.generate(
        IDS,
        max_new_tokens=20,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=100,
        attention_mask=torch.ones_like(IDS),
    )
    assert torch.equal(model.generate(IDS, 20, temperature=0), found)


def test_older_files(tmp_path):
    """Without 'transformer.', with masks among the weights, as a pickle; with the head as well."""
    theirs = gpt2()
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in tensors
    short = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    short["lm_head.weight"] = short["wte.weight"]
    for layer in range(2):
        short[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 40, 40).tril()
        short[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    (tmp_path / "model.safetensors").unlink()
    torch.save(short, tmp_path / "pytorch_model.bin")
    with torch.no_grad():
        logits = ours.import_gpt2(tmp_path)(IDS)
        torch.testing.assert_close(logits, theirs(IDS).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "llama"}, "model_type='llama' cannot be taken over, only 'gpt2'"),
        ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon=1e-06 cannot be taken over"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=True"),
        ({"scale_attn_weights": False}, "scale_attn_weights=False"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False"),
        ({"add_cross_attention": True}, "add_cross_attention=True"),
        ({"activation_function": "relu"}, "activation_function='relu'"),
        ({"n_inner": 64}, "n_inner=64 is not 4 × n_embd=32"),
        ({"n_layer": 3}, "lacks 12 tensors .* 'blocks.2.attn.norm.bias'"),
        ({"n_layer": 1}, "holds 'transformer.h.1.*, which GPT-2 of this size does not have"),
        ({"n_positions": 39}, r"'transformer.wpe.weight' has shape \(40, 32\), not \(39, 32\)"),
        ({"n_head": 5}, "not divisible by n_head=5"),
        ({"n_layer": "two"}, "n_layer must be a whole number"),
    ],
)
def test_folders_that_are_something_else(change, words, tmp_path):
    gpt2().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(YuriiError, match=words) as error:
        ours.import_gpt2(tmp_path)
    assert "\n" not in str(error.value)


def test_damaged_folders(tmp_path):
    with pytest.raises(ModelFileError, match=r"it has no config\.json"):
        ours.import_gpt2(tmp_path)
    gpt2().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    tensors = load_file(weights)
    head = tensors["transformer.wte.weight"] + 1
    save_file({**tensors, "lm_head.weight": head}, weights)
    with pytest.raises(ModelFileError, match="output projection is not the token table"):
        ours.import_gpt2(tmp_path)
    weights.write_bytes(b"not weights")
    with pytest.raises(ModelFileError, match="not a safetensors file"):
        ours.import_gpt2(tmp_path)
    weights.unlink()
    with pytest.raises(ModelFileError, match=r"has no model.safetensors and no pytorch_model.bin"):
        ours.import_gpt2(tmp_path)
    torch.save([1, 2], tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match="not a table of tensors"):
        ours.import_gpt2(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelFileError, match=r"config.json is damaged"):
        ours.import_gpt2(tmp_path)
    with pytest.raises(ModelFileError, match="there is no"):
        command.run([str(tmp_path / "gone"), str(tmp_path / "out")])


def nanogpt(*, bias, vocabulary=101):
    """A checkpoint laid out as nanoGPT saves it, with random weights."""
    generator = torch.Generator().manual_seed(1)
    d, layers = 32, 2

    def draw(*shape):
        return 0.2 * torch.randn(shape, generator=generator)

    shapes = {"transformer.wte": (vocabulary, d), "transformer.wpe": (40, d)}
    for layer in range(layers):
        h = f"transformer.h.{layer}"
        shapes |= {f"{h}.ln_1": (d,), f"{h}.attn.c_attn": (3 * d, d), f"{h}.attn.c_proj": (d, d)}
        shapes |= {f"{h}.ln_2": (d,), f"{h}.mlp.c_fc": (4 * d, d), f"{h}.mlp.c_proj": (d, 4 * d)}
    shapes["transformer.ln_f"] = (d,)
    state = {}
    for name, shape in shapes.items():
        state[f"{name}.weight"] = draw(*shape)
        if bias and not name.endswith(("wte", "wpe")):
            state[f"{name}.bias"] = draw(shape[0])
    state["lm_head.weight"] = state["transformer.wte.weight"]
    arguments = {
        "n_layer": layers,
        "n_head": 4,
        "n_embd": d,
        "block_size": 40,
        "bias": bias,
        "vocab_size": vocabulary,
        "dropout": 0.1,
    }
    return {
        "model": state,
        "model_args": arguments,
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]},
        "iter_num": 3,
        "best_val_loss": torch.tensor(4.2),
        "config": {"dataset": "shakespeare", "compile": True},
    }


def longhand(checkpoint, ids):
    """GPT-2 written out: the logits of a checkpoint."""
    w, heads = checkpoint["model"], checkpoint["model_args"]["n_head"]

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w.get(f"{name}.bias"), 1e-5)

    def linear(name, x):
        return F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))

    batch, time = ids.shape
    x = w["transformer.wte.weight"][ids] + w["transformer.wpe.weight"][:time]
    hidden = torch.ones(time, time).triu(1).bool()
    for layer in range(checkpoint["model_args"]["n_layer"]):
        h = f"transformer.h.{layer}"
        parts = linear(f"{h}.attn.c_attn", norm(f"{h}.ln_1", x)).chunk(3, -1)
        q, k, v = (part.view(batch, time, heads, -1).transpose(1, 2) for part in parts)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        mixed = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        x = x + linear(f"{h}.attn.c_proj", mixed.transpose(1, 2).reshape(batch, time, -1))
        inner = F.gelu(linear(f"{h}.mlp.c_fc", norm(f"{h}.ln_2", x)))
        x = x + linear(f"{h}.mlp.c_proj", inner)
    return norm("transformer.ln_f", x) @ w["lm_head.weight"].T


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_nanogpt(bias, compiled, tmp_path):
    checkpoint = nanogpt(bias=bias)
    saved = dict(checkpoint)
    if compiled:
        saved["model"] = {f"_orig_mod.{name}": t for name, t in checkpoint["model"].items()}
    torch.save(saved, tmp_path / "ckpt.pt")
    command.run([str(tmp_path / "ckpt.pt"), str(tmp_path / "out")])
    model = yf.load_model(tmp_path / "out")
    assert (model.config.bias, model.config.gelu, model.config.valid_vocab) == (bias, "exact", None)
    torch.testing.assert_close(model(IDS).detach(), longhand(checkpoint, IDS), rtol=0, atol=1e-5)


def test_nanogpts_padded_vocabulary(tmp_path):
    torch.save(nanogpt(bias=False, vocabulary=50304), tmp_path / "ckpt.pt")
    config = ours.import_nanogpt(tmp_path / "ckpt.pt").config
    assert (config.vocab_size, config.valid_vocab) == (50304, 50257)


class Evil:
    """Would make a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_nothing_is_executed(tmp_path):
    mark = str(tmp_path / "mark")
    torch.save({**nanogpt(bias=True), "config": Evil(mark)}, tmp_path / "ckpt.pt")
    with pytest.raises(ModelFileError, match=r"more than tensors .* could run code"):
        command.run([str(tmp_path / "ckpt.pt"), str(tmp_path / "out")])
    gpt2().save_pretrained(tmp_path / "gpt2")
    (tmp_path / "gpt2" / "model.safetensors").unlink()
    torch.save({"wte.weight": Evil(mark)}, tmp_path / "gpt2" / "pytorch_model.bin")
    with pytest.raises(ModelFileError, match=r"more than tensors .* could run code"):
        ours.import_gpt2(tmp_path / "gpt2")
    assert not os.path.exists(mark)
    with pytest.raises(FileNotFoundError):
        os.rmdir(mark)
    torch.load(tmp_path / "ckpt.pt", weights_only=False)  # it would have
    assert os.path.isdir(mark)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda c: {"weights": 1}, "not a checkpoint of nanoGPT"),
        (lambda c: [c], "not a checkpoint of nanoGPT"),
        (lambda c: {**c, "model_args": {"n_layer": 2}}, "model_args have no 'n_head'"),
        (lambda c: {**c, "model": {**c["model"], "x": 1}}, "cannot be a model's weights"),
        (lambda c: {**c, "model": {**c["model"], "x": torch.ones(1)}}, "holds 'x'"),
        (lambda c: {**c, "model_args": {**c["model_args"], "bias": False}}, "holds '.*bias'"),
    ],
)
def test_checkpoints_that_are_something_else(make, words, tmp_path):
    torch.save(make(nanogpt(bias=True)), tmp_path / "ckpt.pt")
    with pytest.raises(ModelFileError, match=words):
        ours.import_nanogpt(tmp_path / "ckpt.pt")


def test_files_that_are_something_else(tmp_path):
    path = tmp_path / "ckpt.pt"
    with pytest.raises(ModelFileError, match="no file"):
        ours.import_nanogpt(path)
    torch.save(nanogpt(bias=True), tmp_path / "whole")
    for contents in (b"", b"PK\x03\x04", b"hello", (tmp_path / "whole").read_bytes()[:5000]):
        path.write_bytes(contents)
        with pytest.raises(ModelFileError, match=r"ckpt\.pt is damaged or was not written by"):
            ours.import_nanogpt(path)
