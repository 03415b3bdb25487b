"""Tokenisers: exact, reversible, without a network."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import yuriiformer as yf
from tests.data.shared import STORIES, WEB, needs_stories, needs_web
from yuriiformer.data import tokenizers
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Files
from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import (
    END_OF_TEXT,
    TrainedBPE,
    find_fast_tokenizer,
    load_tokenizer,
    padded,
    trained_size,
)
from yuriiformer.errors import DataError

TEXTS = [
    "",
    "Once upon a time, there was a cat.\n\n\tIt's 3 o'clock!",
    "ünïcödé – 日本 🙂\x00",
    END_OF_TEXT,
]


@pytest.fixture(scope="module")
def small() -> TrainedBPE:
    return TrainedBPE.train(["the cat sat on the mat, the cat ate the rat "] * 50 + TEXTS, 300)


def kinds(small):
    return [load_tokenizer("gpt2"), load_tokenizer("bytes"), small]


def test_round_trip(small):
    for tokenizer in kinds(small):
        encoded = tokenizer.encode_batch(TEXTS)
        for text, ids in zip(TEXTS, encoded, strict=True):
            assert ids.dtype == np.uint16
            assert tokenizer.decode(ids) == text
            assert tokenizer.end_of_text not in ids.tolist()  # the marker's letters are plain text
            assert not len(ids) or ids.max() < tokenizer.vocab_size
        assert tokenizer.vocab_size <= padded(tokenizer.vocab_size) < tokenizer.vocab_size + 64
        assert padded(tokenizer.vocab_size) % 64 == 0
        assert tokenizer.decode([tokenizer.end_of_text]) == END_OF_TEXT


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_comes_back(text):
    small = TrainedBPE.train(["abc abd abe"], 262)
    for tokenizer in kinds(small):
        assert tokenizer.decode(tokenizer.encode_batch([text])[0]) == text


def test_gpt2_is_tiktokens():
    encoding = yf.gpt2_tokenizer()
    assert encoding.name == "gpt2"
    assert encoding.n_vocab == 50257
    assert encoding.eot_token == 50256
    assert encoding.encode_ordinary("Hello world") == [15496, 995]
    assert padded(50257) == 50304


def test_the_hashes_are_tiktokens_own():
    import inspect

    from tiktoken_ext import openai_public

    theirs = inspect.getsource(openai_public.gpt2)
    ours = inspect.getsource(tokenizers.gpt2_tokenizer.__wrapped__)
    for name in ("vocab_bpe_hash", "encoder_json_hash"):
        digest = theirs.split(f'{name}="')[1].split('"')[0]
        assert len(digest) == 64
        assert digest in ours


def test_damaged_files_are_refused(tmp_path, monkeypatch):
    class File:
        def __init__(self, name):
            self.name = name

        def locate(self):
            return tmp_path / self.name

    for name in ("vocab.bpe", "encoder.json"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(
        tokenizers.metadata, "files", lambda _: [File("vocab.bpe"), File("encoder.json")]
    )
    with pytest.raises(DataError, match="missing or damaged"):
        tokenizers.gpt2_tokenizer.__wrapped__()


def test_training_is_repeatable(small, tmp_path):
    again = TrainedBPE.train(["the cat sat on the mat, the cat ate the rat "] * 50 + TEXTS, 300)
    for number, tokenizer in enumerate((small, again)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "tokenizer.json").write_text(tokenizer.to_text())
    files = [(tmp_path / str(n) / "tokenizer.json").read_bytes() for n in range(2)]
    assert files[0] == files[1]
    loaded = load_tokenizer("bpe:300", tmp_path / "0")
    assert [i.tolist() for i in loaded.encode_batch(TEXTS)] == [
        i.tolist() for i in small.encode_batch(TEXTS)
    ]


@pytest.mark.parametrize("name", ["gpt3", "bpe", "bpe:", "bpe:x", "bpe:100", "bpe:70000", ""])
def test_names_that_are_none(name):
    with pytest.raises(DataError, match=r"tokeniser|tokens"):
        trained_size(name)


def test_a_trained_one_needs_its_file(tmp_path, small):
    with pytest.raises(DataError, match="which is not there"):
        load_tokenizer("bpe:300", tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="is not a tokeniser file"):
        load_tokenizer("bpe:300", tmp_path)
    (tmp_path / "tokenizer.json").write_text(small.to_text())
    with pytest.raises(DataError, match="holds the tokeniser bpe:300, not bpe:299"):
        load_tokenizer("bpe:299", tmp_path)


@needs_web
def test_every_web_document(small):
    lines = WEB.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    documents = [json.loads(line)["text"] for line in lines]
    assert len(documents) == 1000
    tokens = load_tokenizer("gpt2").encode_batch(documents)
    reference = yf.gpt2_tokenizer()
    assert sum(map(len, tokens)) + 1000 == 1_054_999
    for document, ids in zip(documents, tokens, strict=True):
        assert ids.tolist() == reference.encode_ordinary(document)
        assert reference.decode_bytes(ids.tolist()) == document.encode()
    for tokenizer in (small, load_tokenizer("bytes")):
        encoded = tokenizer.encode_batch(documents[:100])
        for document, ids in zip(documents[:100], encoded, strict=True):
            assert tokenizer.decode(ids) == document


@needs_stories
def test_every_story():
    text = STORIES.read_text(encoding="utf-8", errors="replace")
    stories = [story.strip() for story in text.split(END_OF_TEXT)[1:-1]]
    tokenizer = load_tokenizer("gpt2")
    for story, ids in zip(stories, tokenizer.encode_batch(stories), strict=True):
        assert tokenizer.decode(ids) == story


def test_a_tokeniser_of_hugging_face(small, tmp_path):
    """By its file or its folder: the same tokens, its own end of text, one identity."""
    text = small.to_text().replace(END_OF_TEXT, "</s>")
    (tmp_path / "tokenizer.json").write_text(text)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "</s>"}}')
    (tmp_path / "tales.txt").write_text("\n<|endoftext|>\n".join(["the cat sat", "the rat"] * 40))
    name = f"hf:{tmp_path}"
    meta = prepare(Files((tmp_path / "tales.txt",)), tmp_path / "out", Settings(name), workers=2)
    store = TokenStore.open(tmp_path / "out")
    found = store.tokenizer()
    assert found.encode("the cat sat") == small.encode("the cat sat")
    assert found.end_of_text == small.end_of_text
    assert meta["tokenizer"]["name"] == found.name == find_fast_tokenizer(tmp_path).name
    assert found.decode(store.train[: len(found.encode("the cat sat"))]) in (
        "the cat sat",
        "the rat",
    )
    for path, words in (
        (tmp_path / "gone", "no tokeniser file"),
        (tmp_path / "out", "no .* token"),
    ):
        with pytest.raises(DataError, match=words):
            find_fast_tokenizer(path)
