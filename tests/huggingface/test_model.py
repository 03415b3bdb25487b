"""`YuriiFormerForCausalLM` is the model itself: its logits, losses, gradients and bits."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

import yuriiformer as yf
from tests.later import Later
from tests.model.tiny import OF_EACH_KIND, tiny, tokens, unsettle
from yuriiformer.errors import ConfigError, InputError, ModelFileError
from yuriiformer.model import parameters

ours, transformers = Later("yuriiformer.huggingface"), Later("transformers")

REAL = 23  # of tiny's 29 ids


def wrapped(rule="nesterov-lie-trotter", oracles="paper", **options):
    model = unsettle(tiny(rule, oracles, valid_vocab=REAL, **options))
    return ours.YuriiFormerForCausalLM.of(model, end_of_text=0).eval()


@pytest.mark.parametrize(("rule", "oracles"), OF_EACH_KIND)
def test_saved_and_loaded_it_is_the_same_to_the_bit(rule, oracles, tmp_path, monkeypatch):
    net = wrapped(rule, oracles)
    net.save_pretrained(tmp_path)

    def draw(*_):
        raise AssertionError("a start was drawn for nothing")

    monkeypatch.setattr(parameters, "_normal", draw)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is ours.YuriiFormerForCausalLM
    assert again.model.config == net.model.config
    own, other = net.model.state_dict(), again.model.state_dict()
    assert list(own) == list(other)
    assert all(torch.equal(own[name], other[name]) for name in own)
    frozen = [[n for n, p in m.named_parameters() if not p.requires_grad] for m in (net, again)]
    assert frozen[0] == frozen[1]
    ids = tokens(net.model)
    expected = net.model(ids)
    for each in (net, again):
        logits = each(ids).logits
        assert torch.equal(logits[..., :REAL], expected[..., :REAL])
        assert (logits[..., REAL:] == -torch.inf).all()


def test_what_is_written(tmp_path):
    net = wrapped("nesterov-classical")
    net.save_pretrained(tmp_path)
    data = json.loads((tmp_path / "config.json").read_text())
    assert data["model_type"] == "yuriiformer"
    assert yf.Rule.from_dict(data["yuriiformer"]["rule"]) == yf.rules["nesterov-classical"]
    assert (data["vocab_size"], data["hidden_size"], data["num_hidden_layers"]) == (29, 16, 3)
    assert (data["max_position_embeddings"], data["eos_token_id"]) == (12, 0)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert names == {f"model.{name}" for name in net.model.state_dict()}  # the tied table once
    assert any("raw_mu" in name for name, _ in net.named_buffers())  # and the fixed coefficients


def test_the_same_again_from_what_was_loaded(tmp_path):
    wrapped().save_pretrained(tmp_path / "one")
    ours.YuriiFormerForCausalLM.from_pretrained(tmp_path / "one").save_pretrained(tmp_path / "two")
    for name in ("config.json", "model.safetensors", "generation_config.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_new_model_starts_as_ours():
    config = tiny().config
    net = transformers.AutoModelForCausalLM.from_config(ours.YuriiFormerConfig.of(config), seed=7)
    own = yf.YuriiFormer(config, seed=7).state_dict()
    assert all(torch.equal(own[name], tensor) for name, tensor in net.model.state_dict().items())


def test_other_precision(tmp_path):
    net = wrapped("imex2-attn-mlp")
    net.save_pretrained(tmp_path)
    half = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {tensor.dtype for tensor in half.state_dict().values()} == {torch.bfloat16}
    ids = tokens(net.model)
    expected = net.model.to(torch.bfloat16)(ids)[..., :REAL]
    assert torch.equal(half(ids).logits[..., :REAL], expected)


@pytest.mark.parametrize("training", [True, False])
def test_loss(training):
    net = wrapped().train(training)
    ids = tokens(net.model, batch=3)
    labels = ids.clone()
    labels[0, :5] = -100
    out = net(ids, labels=labels)
    targets = torch.full_like(ids, -100)
    targets[:, :-1] = labels[:, 1:]
    expected = net.model(ids, targets)
    assert torch.equal(out.loss, expected)
    assert (out.logits is None) == training
    assert torch.equal(net(ids, shift_labels=targets).loss, expected)
    raw = net.model(ids)[:, :-1].flatten(0, 1)  # padded ids count, as when it was trained
    longhand = torch.nn.functional.cross_entropy(raw, labels[:, 1:].flatten())
    torch.testing.assert_close(out.loss, longhand)


def test_a_mean_over_several_batches():
    net = wrapped()
    ids = tokens(net.model, batch=4)
    labels = ids.clone()
    labels[3] = -100
    labels[1, 4:] = -100
    count = (labels[:, 1:] != -100).sum()
    parts = [net(i[None], labels=l[None], num_items_in_batch=count) for i, l in zip(ids, labels)]  # noqa: B905
    torch.testing.assert_close(sum(part.loss for part in parts), net(ids, labels=labels).loss)
    assert parts[3].loss.item() == 0


@pytest.mark.parametrize(
    ("rule", "oracles"),
    [("nesterov-lie-trotter", "modern"), ("verlet-ama", "paper"), ("hamiltonian", "paper")],
)
def test_gradient_checkpointing(rule, oracles):
    net = wrapped(rule, oracles).train()
    ids = tokens(net.model)
    found = []
    for enable in (net.gradient_checkpointing_disable, net.gradient_checkpointing_enable):
        enable()
        assert net.is_gradient_checkpointing == net.model.recompute
        net.zero_grad()
        net(ids, labels=ids, use_cache=True).loss.backward()
        found.append({n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None})
    assert net.model.recompute
    assert found[0].keys() == found[1].keys() != set()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_what_is_kept_and_how_it_is_given():
    net = wrapped()
    ids = tokens(net.model)
    whole = net(ids).logits
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(net(ids, logits_to_keep=1).logits, whole[:, -1:], **close)
    which = torch.tensor([2, 5])
    torch.testing.assert_close(net(ids, logits_to_keep=which).logits, whole[:, which], **close)
    assert torch.equal(net(ids, use_cache=False, return_dict=False)[0], whole)
    assert net(ids, use_cache=False).past_key_values is None
    assert net.train()(ids).past_key_values is None


def test_loading_runs_nothing_of_the_folder(tmp_path):
    net = wrapped()
    net.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is ours.YuriiFormerForCausalLM
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"input_ids": None}, "input_ids are needed"),
        ({"inputs_embeds": torch.zeros(2, 3, 16)}, "inputs_embeds"),
        ({"output_attentions": True}, "output_attentions"),
        ({"input_ids": torch.tensor([[29]])}, "29 is out of range"),
        ({"input_ids": torch.zeros(1, 13, dtype=torch.long)}, "13 tokens do not fit"),
        ({"labels": torch.tensor([[1, 2], [3, 4]])}, "targets have shape"),
        ({"attention_mask": torch.ones(2, 5)}, r"attention_mask has shape \(2, 5\)"),
        ({"position_ids": torch.tensor([[10, 11, 12]])}, "position 12 is beyond"),
    ],
)
def test_bad_input(options, words):
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    with pytest.raises(InputError, match=words):
        wrapped()(**{"input_ids": ids, **options})


def test_the_vocabulary_stays():
    net = wrapped()
    assert net.resize_token_embeddings(29) is net.get_input_embeddings()
    with pytest.raises(InputError, match=r"29 ids .* resized to 40"):
        net.resize_token_embeddings(40)
    with pytest.raises(InputError, match="cannot be replaced"):
        net.set_input_embeddings(torch.nn.Embedding(29, 16))


def test_bad_configurations(tmp_path):
    wrapped().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="vocab_size=50 contradicts"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, vocab_size=50)
    with pytest.raises(ConfigError, match="hidden_size=3 contradicts"):
        ours.YuriiFormerConfig(hidden_size=3)
    with pytest.raises(ConfigError, match="unknown field 'n_layers'"):
        ours.YuriiFormerConfig(yuriiformer={"n_layers": 3})
    with pytest.raises(ConfigError, match="is a table"):
        ours.YuriiFormerConfig(yuriiformer="small")
    assert (
        transformers.AutoConfig.from_pretrained(tmp_path).model_config() == wrapped().model.config
    )


def test_weights_that_do_not_fit(tmp_path):
    wrapped().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.blocks.1.attn.qkv.weight"]
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(ModelFileError, match=r"lack 'model.blocks.1.attn.qkv.weight'"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
