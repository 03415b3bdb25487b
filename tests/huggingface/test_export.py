"""What `yurii export` writes is opened by transformers in a process that knows nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import yuriiformer as yf
from tests.data.shared import STORIES, WEB, needs_stories, needs_web
from tests.later import Later
from tests.model.tiny import tiny, unsettle
from tests.training.corpora import tales as small_words
from tests.training.runs import small, tales
from yuriiformer.cli import export as command
from yuriiformer.data.tokenizers import END_OF_TEXT, TrainedBPE, load_tokenizer
from yuriiformer.errors import DataError, ModelFileError, RunError, YuriiError

ours, transformers = Later("yuriiformer.huggingface"), Later("transformers")
export = Later("yuriiformer.huggingface.export")

FRESH = """
import sys, torch
import yuriiformer.huggingface
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, text, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(folder)
tokens = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
with torch.no_grad():
    logits = model(**tokens).logits
written = model.generate(**tokens, max_new_tokens=20, do_sample=False, eos_token_id=None)
torch.save({"tokens": tokens["input_ids"], "logits": logits, "text": written}, out)
"""
TEXTS = [
    "",
    " ",
    "Once upon a time, there was a cat.\n\n\tIt's 3 o'clock!  \r\n \n",
    "ünïcödé – 日本語 🙂👩‍👩‍👧 \x00\x7f\u00a0\u3000\ufeff",
    "don't DON'T we'LL 12,345.67  €9.99 — “quoted”",
    "नमस्ते مرحبا שלום ไทย \U0001f1fa\U0001f1e6 e\u0301 \u202eabc",
]


@pytest.fixture(scope="module")
def words() -> TrainedBPE:
    return TrainedBPE.train(["the cat sat on the mat, the cat ate the rat "] * 50 + TEXTS, 300)


def fast(tokenizer, folder):
    export.fast_tokenizer(tokenizer, 10_000).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def pairs(words, tmp_path_factory):
    """Our tokenisers, each with transformers' from the files."""
    ours = [load_tokenizer("gpt2"), load_tokenizer("bytes"), words]
    return [(each, fast(each, tmp_path_factory.mktemp("tokens"))) for each in ours]


def agree(pairs, texts):
    for ours, theirs in pairs:
        own = [ids.tolist() for ids in ours.encode_batch(texts)]
        assert theirs(texts)["input_ids"] == own
        assert [theirs.decode(ids) for ids in own] == texts
        assert theirs.vocab_size <= len(theirs) == ours.vocab_size
        assert theirs.eos_token_id == theirs.pad_token_id == ours.end_of_text
        assert theirs(END_OF_TEXT)["input_ids"] == [ours.end_of_text]


def test_tokens(pairs):
    agree(pairs, TEXTS)


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=1, max_size=4)
)
def test_tokens_of_any_text(pairs, texts):
    # The marker's characters are text here and the marker itself in transformers (see `agree`).
    assume(not any(END_OF_TEXT in text for text in texts))
    agree(pairs, texts)


@needs_stories
@needs_web
def test_tokens_of_real_text(pairs):
    stories = STORIES.read_text(encoding="utf-8").split(END_OF_TEXT)[:300]
    lines = WEB.read_text(encoding="utf-8").splitlines()[:100]
    web = [json.loads(line)["text"] for line in lines]
    agree(pairs, [*stories, *web])


@pytest.mark.parametrize(
    ("rule", "oracles"),
    [
        pytest.param("verlet-ama", "paper", marks=pytest.mark.slow),
        pytest.param("gd-lie-trotter", "paper", marks=pytest.mark.slow),
        pytest.param("nesterov-classical", "modern", marks=pytest.mark.slow),
        pytest.param("hamiltonian", "modern", marks=pytest.mark.slow),
    ],
)
def test_a_fresh_process(rule, oracles, tmp_path):
    model = unsettle(tiny(rule, oracles, vocab_size=320, valid_vocab=257, context=64)).eval()
    ours.export_model(model, tmp_path / "out", load_tokenizer("bytes"))
    arguments = [str(tmp_path / "out"), "Once upon ä time", str(tmp_path / "found")]
    subprocess.run(
        [sys.executable, "-c", FRESH, *arguments],
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    found = torch.load(tmp_path / "found")
    ids = torch.tensor([list("Once upon ä time".encode())])
    assert torch.equal(found["tokens"], ids)
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(found["logits"][..., :257], model(ids)[..., :257], **close)
    assert torch.equal(found["text"], model.generate(ids, 20, temperature=0))


def test_a_run(tmp_path, capsys):
    yf.train(small(), tales(), tmp_path / "run")
    for name in ("best", "final", "last"):
        out = tmp_path / name
        command.run([str(tmp_path / "run"), str(out), "--checkpoint", name])
        assert capsys.readouterr().out == f"{out}\n"
        weights = yf.load_model(tmp_path / "run" / "checkpoints" / name).state_dict()
        found = ours.YuriiFormerForCausalLM.from_pretrained(out)
        assert all(torch.equal(weights[n], t) for n, t in found.model.state_dict().items())
        assert found.generation_config.eos_token_id == found.config.eos_token_id == 256
    assert transformers.AutoTokenizer.from_pretrained(out)("cat")["input_ids"] == [99, 97, 116]
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "nesterov-lie-trotter" in card
    assert yf.rules["nesterov-lie-trotter"].equations in card
    modes = {path.stat().st_mode & 0o777 for path in out.iterdir()}
    assert len(modes) == 1


def test_a_trained_tokeniser(tmp_path):
    """It travels with the model; one that was saved without it finds it with the data."""
    data = small_words(300, 300)
    yf.train(small(steps=1), data, tmp_path / "run")
    assert ours.export_run(tmp_path / "run", tmp_path / "out").name == "bpe:300"
    text = "Once upon a time"
    own = yf.TokenStore.open(data).tokenizer().encode_batch([text])[0].tolist()
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "out")(text)["input_ids"] == own
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"]["folder"] = "/gone"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert ours.export_run(tmp_path / "run", tmp_path / "out").name == "bpe:300"
    model = yf.load_model(tmp_path / "run" / "checkpoints" / "final")
    yf.save_model(model, tmp_path / "bare")
    assert ours.export_run(tmp_path / "bare", tmp_path / "out") is None
    assert ours.export_run(tmp_path / "bare", tmp_path / "out", data=data).name == "bpe:300"
    with pytest.raises(DataError, match="there is no folder"):
        ours.export_run(tmp_path / "bare", tmp_path / "out", data=tmp_path / "gone")


def test_runs_that_cannot_be_exported(tmp_path):
    with pytest.raises(RunError, match="holds no model"):
        command.run([str(tmp_path), str(tmp_path / "out")])
    yf.train(small(steps=1, eval_every=1), tales(), tmp_path / "run")
    with pytest.raises(RunError, match="no checkpoint 'newest'; it has best"):
        ours.export_run(tmp_path / "run", tmp_path / "out", "newest")
    (tmp_path / "run" / "checkpoints" / "best").rename(tmp_path / "aside")
    with pytest.raises(RunError, match="no checkpoint 'best'; it has final, last"):
        command.run([str(tmp_path / "run"), str(tmp_path / "out"), "--checkpoint", "best"])
    with pytest.raises(YuriiError, match="checkpoint"):
        command.run([str(tmp_path / "run"), str(tmp_path / "out"), "--checkpoint", "newest"])
    with pytest.raises(YuriiError, match="FOLDER"):
        command.run([str(tmp_path / "run")])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [None, "bytes"])
def test_the_card_can_be_followed(name, tmp_path, capsys):
    model = tiny(vocab_size=320, valid_vocab=257, context=24)
    ours.export_model(model, tmp_path / "out", name and load_tokenizer(name))
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    code = card.split("```python\n")[1].split("```")[0]
    exec(code.replace("FOLDER", str(tmp_path / "out")), {})
    said = "".join(capsys.readouterr().out.split())
    assert ("Onceuponatime" if name else "tensor([[0,1,2,") in said


def test_texts_of_a_rule_are_no_markup_on_the_card(tmp_path):
    rule = yf.Rule(
        "own",
        "# ``` <b>\nX = X + attn(X)\nX = X + mlp(X)",
        label="<script>x</script> [a](b)",
        note="![i](j) <img src=k> `c`\n# head | ~~s~~ &lt;",
    )
    ours.export_model(tiny(rule), tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    fenced = card.split("```\n")[1]
    assert fenced == f"{rule.equations}\n"
    outside = re.sub(r"\\[!-/:-@\[-`{-~]", "", card.replace(fenced, "").split("## Use")[0])
    assert "script" in outside
    assert not re.search(r"<|&|!\[|\]\(|~~", outside)
    assert [line for line in outside.splitlines() if line.startswith("#")] == [
        "# scriptx/script a(b)"
    ]


def test_folders(tmp_path, monkeypatch):
    one, two = tiny(seed=1), tiny(seed=2)
    out = tmp_path / "out"
    ours.export_model(one, out)
    ours.export_model(two, out)  # its own may be replaced
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert "tokenizer.json" not in before

    def fail(*_):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("yuriiformer.huggingface.export.model_card", fail)
        with pytest.raises(ModelFileError, match="the disk is full"):
            ours.export_model(one, out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    (out / "thesis.tex").write_text("years of work")
    for folder in (out, out / "thesis.tex"):
        with pytest.raises(ModelFileError, match=r"holds something else|is not a folder"):
            ours.export_model(one, folder)
    with pytest.raises(DataError, match="29 token ids, but the tokeniser gpt2 has 50257"):
        ours.export_model(one, tmp_path / "new", load_tokenizer("gpt2"))
