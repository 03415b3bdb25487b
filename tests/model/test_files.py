"""Saved models: whole, self-contained, and refused with one clear line when damaged."""

from __future__ import annotations

import hashlib
import json

import pytest
import torch

import yuriiformer as yf
from tests.launcher import FORKS
from tests.model.tiny import tiny, tokens, unsettle
from yuriiformer.errors import ModelFileError
from yuriiformer.model import oracles as registry
from yuriiformer.model.oracles import MLP, Attention, layer_norm

OWN = """
equations = '''
F = attn(X) + mlp(X)
X = X + gamma * (1.5 * F - 0.5 * G)
G = F
'''
[streams]
G = "zero"
[coefficients]
gamma = { initial = "1 / (t + 1)", shape = "channel" }
"""


@pytest.fixture
def saved(tmp_path):
    model = unsettle(tiny())
    yf.save_model(model, tmp_path / "model")
    return model, tmp_path / "model"


@pytest.mark.parametrize("oracles", ["paper", "modern"])
@pytest.mark.parametrize("rule", ["hamiltonian", "nesterov-classical", "gd-table"])
def test_the_same_bits_come_back(tmp_path, rule, oracles):
    model = unsettle(tiny(rule, oracles, velocity_norm="separate", valid_vocab=27))
    yf.save_model(model, tmp_path / "m")
    again = yf.load_model(tmp_path / "m")
    assert again.config == model.config
    assert torch.equal(again(tokens(model)), model(tokens(model)))
    frozen = [n for n, p in again.named_parameters() if not p.requires_grad]
    assert frozen == model.dead_parameters()


def test_a_model_does_not_need_its_rule_file_again(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    model = unsettle(tiny(str(path)))
    yf.save_model(model, tmp_path / "m")
    path.unlink()
    again = yf.load_model(tmp_path / "m")
    assert again.config.rule == model.config.rule
    assert torch.equal(again(tokens(model)), model(tokens(model)))


def same_logits(folder, path):
    """In another process, which knows of the model what is in the folder."""
    model = yf.load_model(folder)
    expected = torch.load(path, weights_only=True)
    torch.testing.assert_close(model(tokens(model)), expected, rtol=1e-5, atol=1e-6)


def test_another_process_gets_the_same_logits(saved, tmp_path):
    model, folder = saved
    torch.save(model(tokens(model)), tmp_path / "logits.pt")
    process = FORKS.Process(target=same_logits, args=(folder, tmp_path / "logits.pt"))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_dtypes_are_kept(tmp_path):
    model = tiny("nesterov-classical").double()
    yf.save_model(model, tmp_path / "m")
    again = yf.load_model(tmp_path / "m")
    assert again.token_table.dtype == torch.float64
    assert torch.equal(again(tokens(model)), model(tokens(model)))


def test_only_safetensors_and_json(saved):
    _, folder = saved
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
    data = json.loads((folder / "model.json").read_text())
    assert "norm(beta * V + gamma * attn(X + mu * V))" in data["config"]["rule"]["equations"]


def test_saving_again_replaces_and_leaves_nothing_beside(saved, tmp_path):
    model, folder = saved
    with torch.no_grad():
        model.token_table.add_(1.0)
    yf.save_model(model, folder)
    assert torch.equal(yf.load_model(folder).token_table, model.token_table)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_other_files_are_not_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ModelFileError, match="holds something else"):
        yf.save_model(tiny(), tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def edit(path, config=None, **changes):
    """A consistent file that says something else: its digest is made to fit."""
    data = json.loads(path.read_text())
    if config is not None:
        data["config"] = {**data["config"], **config}
        text = json.dumps(data["config"], sort_keys=True, separators=(",", ":"))
        data["config_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps({**data, **changes}))


def replace_text(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


DAMAGE = {
    "a flipped bit in the weights": (lambda f: flip(f / "model.safetensors", -5), "is damaged"),
    "a flipped bit in the header": (lambda f: flip(f / "model.safetensors", 20), "is damaged"),
    "truncated weights": (
        lambda f: (f / "model.safetensors").write_bytes(
            (f / "model.safetensors").read_bytes()[:-100]
        ),
        "is damaged",
    ),
    "empty weights": (lambda f: (f / "model.safetensors").write_bytes(b""), "is damaged"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
    "no configuration": (lambda f: (f / "model.json").unlink(), "has no model.json"),
    "truncated configuration": (
        lambda f: (f / "model.json").write_text((f / "model.json").read_text()[:200]),
        "is damaged",
    ),
    "foreign configuration": (
        lambda f: (f / "model.json").write_text('{"model_type": "gpt2"}'),
        "is damaged: format is missing",
    ),
    "a list": (lambda f: (f / "model.json").write_text("[]"), "it holds no object"),
    "binary": (lambda f: (f / "model.json").write_bytes(b"\xff\x00"), "is damaged"),
    "a later format": (lambda f: edit(f / "model.json", format=99), "update yuriiformer"),
    "an unknown field": (
        lambda f: edit(f / "model.json", config={"n_layers": 3}),
        "unknown field 'n_layers' (did you mean 'n_layer'",
    ),
    "a rule that is none": (
        lambda f: edit(f / "model.json", config={"rule": {"name": "x", "equations": "import os"}}),
        "Import is not",
    ),
    "another shape": (
        lambda f: edit(f / "model.json", config={"d_model": 32}),
        "does not fit its configuration: other shape of",
    ),
    "another depth": (
        lambda f: edit(f / "model.json", config={"n_layer": 4}),
        "no tensor 'blocks.3",
    ),
    "an edited equation": (
        lambda f: replace_text(f / "model.json", "attn(X + mu", "attn(X - mu"),
        "is damaged or was edited",
    ),
    "an edited number": (
        lambda f: replace_text(f / "model.json", "0.9", "0.1"),
        "is damaged or was edited",
    ),
    "oracles that are no name": (
        lambda f: edit(f / "model.json", config={"oracles": ["paper"]}),
        "oracles are named by text",
    ),
    "oracles nobody has registered": (
        lambda f: edit(f / "model.json", config={"oracles": "theirs"}),
        "must be registered",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_one_clear_error(saved, damage):
    _, folder = saved
    harm, reason = DAMAGE[damage]
    harm(folder)
    with pytest.raises(ModelFileError) as caught:
        yf.load_model(folder)
    assert reason in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_that_are_no_safetensors(saved):
    _, folder = saved
    (folder / "model.safetensors").write_bytes(b"not tensors at all")
    edit(folder / "model.json", weights_sha256=hashlib.sha256(b"not tensors at all").hexdigest())
    with pytest.raises(ModelFileError, match="is not a safetensors file"):
        yf.load_model(folder)


def test_no_folder(tmp_path):
    with pytest.raises(ModelFileError, match="no model folder"):
        yf.load_model(tmp_path / "none")


def test_a_failed_save_leaves_the_old_model(saved, monkeypatch):
    model, folder = saved
    from yuriiformer.model import files

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(files, "save_file", broken)
    with pytest.raises(ModelFileError, match="cannot be written: disk full"):
        yf.save_model(tiny(), folder)
    assert torch.equal(yf.load_model(folder).token_table, model.token_table)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_wrapped_models_are_saved_as_what_they_wrap(tmp_path):
    model = tiny()
    yf.save_model(torch.compile(model, backend="eager"), tmp_path / "compiled")
    yf.save_model(torch.nn.DataParallel(model), tmp_path / "parallel")
    for name in ("compiled", "parallel"):
        assert torch.equal(yf.load_model(tmp_path / name).token_table, model.token_table)
    with pytest.raises(ModelFileError, match="only a YuriiFormer"):
        yf.save_model(torch.nn.Linear(2, 2), tmp_path / "linear")


def test_here_links_and_places_that_cannot_be(tmp_path, monkeypatch):
    model = tiny()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yf.save_model(model, ".")
    assert torch.equal(yf.load_model(tmp_path / "here").token_table, model.token_table)
    (tmp_path / "link").symlink_to(tmp_path / "here")
    yf.save_model(model, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "link"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFileError, match="cannot be written"):
        yf.save_model(model, tmp_path / "file" / "model")


def test_a_third_partys_buffers_are_kept(tmp_path, monkeypatch):
    class Scaled(Attention):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("scale", torch.ones(1))

        def forward(self, Y, context):
            return self.scale * super().forward(Y, context)

    monkeypatch.setattr(registry, "_PAIRS", dict(registry._PAIRS))
    yf.register_oracles("scaled", yf.OraclePair(Scaled, MLP, layer_norm))
    model = tiny(oracles="scaled")
    model.blocks[1].attn.scale.fill_(7.0)
    yf.save_model(model, tmp_path / "m")
    again = yf.load_model(tmp_path / "m")
    assert again.blocks[1].attn.scale.item() == 7.0
    assert torch.equal(again(tokens(model)), model(tokens(model)))


@pytest.mark.parametrize("rule", ["nesterov-fixed", "hamiltonian"])
def test_built_on_meta_and_filled_later(rule):
    """The way of large models: nothing may be left unset."""
    reference = unsettle(tiny(rule))
    with torch.device("meta"):
        model = tiny(rule)
    model.to_empty(device="cpu")
    model.load_state_dict(reference.state_dict())
    assert torch.equal(model(tokens(model)), reference(tokens(model)))
