"""One notion of a model: every command takes any format, and nothing is lost on the way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import yuriiformer as yf
from tests.later import Later
from tests.launcher import yurii
from tests.model.tiny import OF_EACH_KIND
from tests.training.corpora import tales as small_words
from tests.training.runs import small, tales
from yuriiformer.errors import ModelFileError, RunError
from yuriiformer.evaluation import evaluate as measuring
from yuriiformer.runs.loading import open_model

ours, transformers = Later("yuriiformer.huggingface"), Later("transformers")
KINDS = ("run", "checkpoint", "model folder", "export", "imported", "gpt2", "nanogpt")
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def kinds(tmp_path_factory) -> dict[str, Path]:
    """A model of every kind; the data are gone, so that text needs the model's own tokeniser."""
    home = tmp_path_factory.mktemp("kinds")
    shutil.copytree(small_words(300, 300), home / "data")
    yf.train(small(steps=2, eval_every=1), home / "data", home / "run")
    found = {"run": home / "run", "checkpoint": home / "run" / "checkpoints" / "best"}
    loaded = open_model(found["run"])
    yf.save_model(loaded.model, home / "model", loaded.tokenizer)
    ours.export_model(loaded.model, home / "export", loaded.tokenizer)
    assert yurii(["import", home / "export", home / "imported"]).returncode == 0
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 32}
    sizes["activation_function"] = "gelu"  # nanoGPT's
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, vocab_size=50257))
    theirs.save_pretrained(home / "gpt2")
    state = {}
    for name, tensor in theirs.state_dict().items():
        is_map = name.startswith("transformer.h.") and tensor.ndim == 2
        state[name] = tensor.T.contiguous() if is_map else tensor
    arguments = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 32, "vocab_size": 50257}
    torch.save({"model": state, "model_args": {**arguments, "bias": True}}, home / "ckpt.pt")
    shutil.move(home / "data", home / "elsewhere")
    return found | {
        "model folder": home / "model",
        "export": home / "export",
        "imported": home / "imported",
        "gpt2": home / "gpt2",
        "nanogpt": home / "ckpt.pt",
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_with_its_tokeniser(kinds, kind):
    loaded = open_model(kinds[kind])
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.decode(loaded.tokenizer.encode(PROMPT)) == PROMPT
    twin = "gpt2" if kind == "nanogpt" else kind if kind == "gpt2" else "run"
    tokens = torch.randint(290, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(loaded.model(tokens), open_model(kinds[twin]).model(tokens))
    assert loaded.tokenizer.name == open_model(kinds[twin]).tokenizer.name


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_takes_it(kinds, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "SEQUENCES", 20)  # where no run says how many
    model, data = kinds[kind], kinds["run"].parent / "elsewhere"
    said = yurii(["sample", model, "--prompt", PROMPT, "--max-new-tokens", "3"])
    assert said.returncode == 0
    assert said.stdout.startswith(PROMPT)
    words = ["trace", model, "--prompt", PROMPT, "--out", tmp_path / "trace"]
    assert yurii(words).returncode == 0
    assert yurii(["export", model, tmp_path / "export"]).returncode == 0
    assert yurii(["import", model, tmp_path / "model"]).returncode == 0
    said = yurii(["evaluate", model, "--data", data, "--out", tmp_path / "evaluation"])
    words = ["train", "--data", data, "--init-from", model, "--steps", "1", "--eval-sequences", "2"]
    trained = yurii([*words, "--out", tmp_path / "run"])
    if kind in ("gpt2", "nanogpt"):  # these data are not theirs
        assert said.returncode == trained.returncode == 2
        assert "they do not belong together" in said.stderr
        assert "prepare the text with --tokenizer gpt2" in trained.stderr
        assert not (tmp_path / "run").exists()
    else:
        assert said.returncode == trained.returncode == 0, said.stderr + trained.stderr
        assert "(+0.0000)" in trained.stderr


@pytest.mark.parametrize(("rule", "oracles"), OF_EACH_KIND)
def test_export_and_back_loses_nothing(rule, oracles, tmp_path):
    config = yf.ModelConfig(
        rule,
        n_layer=2,
        n_head=2,
        d_model=16,
        vocab_size=320,
        valid_vocab=300,
        context=8,
        oracles=oracles,
    )
    model = yf.YuriiFormer(config, seed=3)
    tokenizer = yf.TokenStore.open(small_words(300, 300)).tokenizer()
    ours.export_model(model, tmp_path / "one", tokenizer)
    loaded = open_model(tmp_path / "one")
    assert loaded.model.config == config
    for key, tensor in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[key], tensor)
    ours.export_model(loaded.model, tmp_path / "two", loaded.tokenizer)
    for file in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes(), file.name


def test_a_tokeniser_keeps_its_name_through_a_gpt2(tmp_path):
    config = yf.ModelConfig("gd-lie-trotter", n_layer=1, n_head=2, d_model=16, vocab_size=300)
    tokenizer = yf.TokenStore.open(small_words(300, 300)).tokenizer()
    ours.export_model(yf.YuriiFormer(config), tmp_path / "one", tokenizer, kind="gpt2")
    loaded = open_model(tmp_path / "one")
    assert loaded.tokenizer.name == tokenizer.name == "bpe:300"
    ours.export_model(loaded.model, tmp_path / "two", loaded.tokenizer, kind="gpt2")
    for file in (tmp_path / "one").iterdir():
        if file.name != "README.md":  # it counts the biases too
            assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes(), file.name


def test_what_is_no_model_is_said_in_one_line(kinds, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelFileError, match="there is no model 'nosuch' here"):
        open_model("nosuch")
    with pytest.raises(ModelFileError, match="there is no model"):
        open_model("/no/such/folder here")
    monkeypatch.chdir(kinds["run"].parent)
    with pytest.raises(ModelFileError, match=r"^there is no model '.*/nosuch'$"):
        open_model(f"{kinds['run'].name}/nosuch")  # the folder is here: the hub is not asked
    with pytest.raises(RunError, match="holds prepared data, not a model"):
        open_model(tales())
    with pytest.raises(RunError, match="name the run, or one of them"):
        open_model(kinds["run"] / "checkpoints")
    for name in ("model.safetensors", "model.json"):
        with pytest.raises(ModelFileError, match="is one file of a model: name its folder"):
            open_model(kinds["run"] / "checkpoints" / "best" / name)
    with pytest.raises(RunError, match="/dev/null holds no model"):
        open_model("/dev/null")
    (tmp_path / "suite.json").write_text("{}")
    with pytest.raises(RunError, match="is a suite: name one of its runs"):
        open_model(tmp_path)
    shutil.copytree(kinds["gpt2"], tmp_path / "other")
    text = (tmp_path / "other" / "config.json").read_text()
    (tmp_path / "other" / "config.json").write_text(text.replace('"gpt2"', '"llama"'))
    with pytest.raises(ModelFileError, match="model_type='llama' cannot be taken over"):
        open_model(tmp_path / "other")


def test_a_damaged_best_is_not_passed_over_in_silence(kinds, tmp_path):
    shutil.copytree(kinds["run"], tmp_path / "run")
    weights = tmp_path / "run" / "checkpoints" / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    said = yurii(["sample", tmp_path / "run", "--max-new-tokens", "2"])
    assert said.returncode == 0
    assert "best/model.safetensors is damaged" in said.stderr
    assert "taking the checkpoint 'final', step 2, instead" in said.stderr


def test_in_its_own_folder(kinds, monkeypatch):
    monkeypatch.chdir(kinds["run"])
    assert yurii(["sample", ".", "--max-new-tokens", "2"]).returncode == 0
