"""Models whose files say what cannot be: one clear line, and no memory taken."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import yuriiformer as yf
from tests.fuzz_world import write_gpt2
from yuriiformer.errors import ConfigError, InputError, ModelFileError
from yuriiformer.files import sha256, sha256_of_json
from yuriiformer.model.foreign import import_gpt2, import_nanogpt

SIZES = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 257, "block_size": 16}


def tiny(**values):
    return yf.ModelConfig(
        "gd-lie-trotter",
        **{"n_layer": 2, "n_head": 2, "d_model": 8, "vocab_size": 29, "context": 12, **values},
    )


def rewrite(folder, config=None, tensors=None):
    """A model's files with other contents, their sums right."""
    data = json.loads((folder / "model.json").read_text())
    if tensors is not None:
        save_file(tensors, folder / "model.safetensors")
        data["weights_sha256"] = sha256(folder / "model.safetensors")
    data["config"] |= config or {}
    data["config_sha256"] = sha256_of_json(data["config"])
    (folder / "model.json").write_text(json.dumps(data))


@pytest.fixture
def saved(tmp_path):
    yf.save_model(yf.YuriiFormer(tiny()), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "config",
    [
        {"n_layer": 10**9},
        {"d_model": 10**9 + 7},
        {"context": 10**15},
        {"vocab_size": 10**12},
        {"n_head": 10**9},
        {"d_model": 2**18, "n_layer": 64},
        {"vocab_size": 2**24, "d_model": 2**16},
        {"context": 2**24, "d_model": 2**16},
    ],
)
def test_sizes_are_not_believed(saved, config):
    rewrite(saved, config)
    with pytest.raises(ModelFileError):
        yf.load_model(saved)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float8_e4m3fn", "complex64", "int8", "uint8"])
def test_weights_of_another_kind(saved, dtype):
    tensors = load_file(saved / "model.safetensors")
    kind = getattr(torch, dtype)
    rewrite(saved, tensors={name: tensor.to(kind) for name, tensor in tensors.items()})
    with pytest.raises(ModelFileError, match=rf"cannot be a model's weights: its type is {dtype}"):
        yf.load_model(saved)


def test_weights_of_mixed_kinds(saved):
    tensors = load_file(saved / "model.safetensors")
    tensors["norm.weight"] = tensors["norm.weight"].half()
    rewrite(saved, tensors=tensors)
    with pytest.raises(ModelFileError, match="mixes float16 and float32"):
        yf.load_model(saved)


def test_whole_models_of_other_precisions_are_loaded(tmp_path):
    for kind in (torch.float16, torch.bfloat16, torch.float64):
        yf.save_model(yf.YuriiFormer(tiny()).to(kind), tmp_path / "model")
        assert yf.load_model(tmp_path / "model").token_table.dtype == kind


@pytest.mark.parametrize("key", ["n_layer", "n_head", "n_embd", "vocab_size", "n_positions"])
def test_a_gpt2_with_odd_sizes(tmp_path, key):
    write_gpt2(tmp_path / "gpt2")
    path = tmp_path / "gpt2" / "config.json"
    data = json.loads(path.read_text())
    assert import_gpt2(tmp_path / "gpt2").config.n_layer == 1
    for value in (None, [], {}, "8", 1.5, True, -1, 0, 10**9 + 7, 2**62):
        path.write_text(json.dumps({**data, key: value}))
        with pytest.raises(ModelFileError):
            import_gpt2(tmp_path / "gpt2")


def test_a_gpt2_with_odd_settings(tmp_path):
    write_gpt2(tmp_path / "gpt2")
    path = tmp_path / "gpt2" / "config.json"
    data = json.loads(path.read_text())
    for key in ("activation_function", "n_inner", "layer_norm_epsilon", "model_type"):
        for value in ([], {}, [[]], 10**9):
            path.write_text(json.dumps({**data, key: value}))
            with pytest.raises(ModelFileError):
                import_gpt2(tmp_path / "gpt2")


TENSORS = {  # made when asked for: some warn
    "stride 0": lambda: torch.zeros(1).expand(2**20, 2**12),
    "sparse": lambda: torch.eye(8).to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "meta": lambda: torch.empty(2**30, 2**10, device="meta"),
    "whole numbers": lambda: torch.zeros(257, 8, dtype=torch.int32),
    "no tensor": lambda: 3,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", TENSORS)
def test_a_checkpoint_of_nanogpt_with_odd_tensors(tmp_path, kind):
    path = tmp_path / "ckpt.pt"
    torch.save({"model_args": SIZES, "model": {"transformer.wte.weight": TENSORS[kind]()}}, path)
    with pytest.raises(ModelFileError, match=r"ckpt\.pt"):
        import_nanogpt(path)


def test_a_checkpoint_of_nanogpt_with_odd_keys_and_sizes(tmp_path):
    path = tmp_path / "ckpt.pt"
    wide = {"n_embd": 10**9 + 7}, {"n_layer": 10**9}, {"block_size": None}, {"n_head": [2]}
    for arguments in wide:
        torch.save({"model_args": {**SIZES, **arguments}, "model": {}}, path)
        with pytest.raises(ModelFileError):
            import_nanogpt(path)
    torch.save({"model_args": SIZES, "model": {3: torch.zeros(2), None: torch.zeros(2)}}, path)
    with pytest.raises(ModelFileError):
        import_nanogpt(path)


def test_a_model_larger_than_the_machine_is_refused_before_it_is_made():
    config = tiny(n_layer=4096, d_model=2**16, n_head=1)
    with pytest.raises(ConfigError, match=r"the model needs at least .* GiB"):
        yf.YuriiFormer(config)
    with torch.device("meta"):
        assert yf.YuriiFormer(tiny(n_layer=2, d_model=2**16, n_head=1)).num_parameters() > 2**33


def test_text_of_a_damaged_model_and_odd_draws():
    model = yf.YuriiFormer(tiny())
    tokens = torch.tensor([[1, 2]])
    greedy = model.generate(tokens, 4, temperature=0)
    assert torch.equal(model.generate(tokens, 4, temperature=1e-300), greedy)
    assert torch.equal(model.generate(tokens, 4, top_p=1e-320), greedy)
    with pytest.raises(InputError, match="tokens are whole numbers"):
        model.generate(tokens.float(), 2)
    with torch.no_grad():
        model.token_table.fill_(float("nan"))
    with pytest.raises(InputError, match="predicts no finite numbers"):
        model.generate(tokens, 2)
