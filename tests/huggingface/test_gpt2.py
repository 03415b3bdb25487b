"""GPT-2 in, trained further here, and out again as a plain GPT-2; other rules by auto_map."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import yuriiformer as yf
from tests.later import Later
from tests.launcher import yurii
from tests.model.tiny import tiny, tokens, unsettle
from tests.training.corpora import corpus
from yuriiformer.data.prepare import Settings
from yuriiformer.errors import ModelFileError
from yuriiformer.model.gpt2 import gpt2_settings

ours, transformers = Later("yuriiformer.huggingface"), Later("transformers")
# Run by a new Python: the first model while it cannot import this package, the other when it can.
FRESH = """
import sys, torch
sys.modules["yuriiformer"] = None
from transformers import AutoModelForCausalLM, AutoTokenizer
plain, own, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(plain)
tokens = AutoTokenizer.from_pretrained(plain)("Once upon a time", return_tensors="pt")
with torch.no_grad():
    logits = model(**tokens).logits
del sys.modules["yuriiformer"]
remote = AutoModelForCausalLM.from_pretrained(own, trust_remote_code=True)
with torch.no_grad():
    others = remote(torch.arange(8)[None], output_hidden_states=True).logits
torch.save([type(model).__name__, tokens["input_ids"], logits, others], out)
"""


def gpt2(**sizes: int):
    """A small GPT-2 of transformers, with biases that are not 0."""
    torch.manual_seed(0)
    settings = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 32, "vocab_size": 50257}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**settings, **sizes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def test_there_and_back_changes_no_bit(tmp_path):
    gpt2().save_pretrained(tmp_path / "one")
    assert yurii(["export", tmp_path / "one", tmp_path / "two", "--as", "gpt2"]).returncode == 0
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_trained_further_and_opened_without_this_package_or_by_trust_remote_code(tmp_path):
    gpt2().save_pretrained(tmp_path / "theirs")
    data = corpus(60, Settings("gpt2", val_fraction=0.1))
    words = ["train", "--data", data, "--init-from", tmp_path / "theirs", "--steps", "2"]
    words += ["--eval-sequences", "4", "--sequences", "4", "--threads", "1", "--eval-every", "1"]
    said = yurii([*words, "--out", tmp_path / "run"])
    assert said.returncode == 0, said.stderr
    assert "0 are new, 0 were left" in said.stderr
    assert "(+0.0000)" in said.stderr
    assert yurii(["export", tmp_path / "run", tmp_path / "out", "--as", "gpt2"]).returncode == 0
    model = unsettle(tiny("nesterov-lie-trotter"))
    ours.export_model(model, tmp_path / "own")
    assert len((tmp_path / "own" / "modeling_yuriiformer.py").read_text().splitlines()) <= 5
    words = [sys.executable, "-c", FRESH, tmp_path / "out", tmp_path / "own", tmp_path / "seen.pt"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kind, given, logits, others = torch.load(tmp_path / "seen.pt")
    assert kind == "GPT2LMHeadModel"
    trained = yf.open_model(tmp_path / "run").model
    with torch.no_grad():
        assert (trained(given) - logits).abs().max() < 1e-5
    assert not torch.allclose(gpt2()(given).logits, logits, atol=1e-3)  # it has learnt
    real = model.config.real_vocab
    with torch.no_grad():
        wanted = model(torch.arange(8)[None])[..., :real]
    assert (others[..., :real] - wanted).abs().max() < 1e-5


def test_zero_biases_and_cut_padding_where_ours_has_them_not(tmp_path):
    config = yf.ModelConfig(
        "gd-lie-trotter", n_layer=2, n_head=2, d_model=16, vocab_size=64, valid_vocab=61, context=16
    )
    model = unsettle(yf.YuriiFormer(config, seed=1))
    ours.export_model(model, tmp_path / "out", kind="gpt2")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert type(theirs).__name__ == "GPT2LMHeadModel"
    given = torch.randint(61, (2, 16), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert (theirs(given).logits - model(given)[..., :61]).abs().max() < 1e-5


def test_the_real_size_on_the_meta_device():
    sizes = {"n_layer": 12, "n_head": 12, "d_model": 768, "vocab_size": 50257, "context": 1024}
    with torch.device("meta"):
        config = yf.ModelConfig("gd-lie-trotter", bias=True, gelu="tanh", **sizes)
        model = yf.YuriiFormer(config)
        theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2_settings(config)))
        shapes = {n: t.shape for n, t in ours.export.gpt2_tensors(model).items()}
    wanted = {n: t.shape for n, t in theirs.state_dict().items() if n != "lm_head.weight"}
    assert shapes == wanted


def test_other_rules_and_oracles_are_refused(tmp_path):
    for model, words in (
        (tiny("nesterov-lie-trotter"), "GPT-2's block is the rule gd-lie-trotter"),
        (tiny("gd-lie-trotter+X=normalized"), "GPT-2's block is the rule"),
        (tiny("gd-lie-trotter", "modern"), "GPT-2 has the oracles 'paper'"),
    ):
        with pytest.raises(ModelFileError, match=words):
            ours.export_model(model, tmp_path / "out", kind="gpt2")
    assert not (tmp_path / "out").exists()


def test_a_foreign_gpt2_is_not_replaced(tmp_path):
    gpt2().save_pretrained(tmp_path / "theirs")
    before = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    with pytest.raises(ModelFileError, match="something else than an export"):
        ours.export_model(tiny("gd-lie-trotter"), tmp_path / "theirs", kind="gpt2")
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    for _ in range(2):  # but an earlier export is
        ours.export_model(tiny("gd-lie-trotter"), tmp_path / "out", kind="gpt2")


@pytest.mark.parametrize("recompute", [False, True])
def test_hidden_states_are_those_between_the_blocks(recompute):
    model = tiny("nesterov-lie-trotter")
    model.recompute = recompute
    given = tokens(model)
    states = ours.YuriiFormerForCausalLM.of(model)(given, output_hidden_states=True).hidden_states
    assert len(states) == model.config.n_layer + 1
    positions = torch.arange(given.shape[1])
    assert torch.equal(states[0], model.starts["X_0"](given, positions))
    assert torch.equal(states[-1], model.hidden(given))
    assert not torch.equal(states[0], states[1])


def test_hidden_states_of_gradient_descent_are_gpt2s(tmp_path):
    theirs = gpt2()
    theirs.save_pretrained(tmp_path / "gpt2")
    mine = ours.YuriiFormerForCausalLM.of(yf.open_model(tmp_path / "gpt2").model)
    given = torch.arange(10)[None]
    with torch.no_grad():
        one, two = (m(given, output_hidden_states=True).hidden_states for m in (theirs, mine))
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert (a - b).abs().max() < 1e-5
