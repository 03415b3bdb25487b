"""Preparing a corpus: exact, and the same whatever the workers, chunks and kinds of file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import yuriiformer as yf
from tests.data.corpus import DOCUMENTS, contents, documents_of, files, write_jsonl
from tests.data.shared import STORIES, WEB, needs_stories, needs_web
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Parts
from yuriiformer.data.splitting import is_validation
from yuriiformer.data.tokenizers import END_OF_TEXT, load_tokenizer


@pytest.mark.parametrize("tokenizer", ["gpt2", "bytes", "bpe:300"])
def test_documents_come_back_in_order_and_split_by_their_index(tmp_path, tokenizer):
    source = files(write_jsonl(tmp_path / "a.jsonl"))
    meta = prepare(source, tmp_path / "out", Settings(tokenizer, seed=5, val_fraction=0.2))
    store = yf.TokenStore.open(tmp_path / "out", verify=True)
    held_out = is_validation(5, np.arange(300), 0.2)
    assert 30 < held_out.sum() < 90
    expected = {
        "val": [d for d, out in zip(DOCUMENTS, held_out, strict=True) if out],
        "train": [d for d, out in zip(DOCUMENTS, held_out, strict=True) if not out],
    }
    for split, documents in expected.items():
        assert documents_of(store, split) == documents
        known = meta["splits"][split]
        assert known["documents"] == len(documents)
        assert known["tokens"] == len(store.split(split))
        assert known["text_bytes"] == sum(len(d.encode()) for d in documents)
    assert meta["tokenizer"]["name"] == tokenizer
    assert not (tmp_path / "out.partial").exists()


def test_nanogpt_reads_it(tmp_path):
    """Exactly as nanoGPT's train.py does: a uint16 memmap, tokens of tiktoken, end mark after."""
    prepare(files(write_jsonl(tmp_path / "a.jsonl")), tmp_path / "out", Settings(val_fraction=0))
    data = np.memmap(tmp_path / "out" / "train.bin", dtype=np.uint16, mode="r")
    encoding = yf.gpt2_tokenizer()
    expected = [t for d in DOCUMENTS for t in [*encoding.encode_ordinary(d), encoding.eot_token]]
    assert data.tolist() == expected


def test_end_marks_only_between(tmp_path):
    source = files(write_jsonl(tmp_path / "a.jsonl"))
    prepare(source, tmp_path / "after", Settings("bytes"))
    prepare(source, tmp_path / "between", Settings("bytes", end_mark="between"))
    for split in ("train", "val"):
        after, between = (
            yf.TokenStore.open(tmp_path / n, verify=True).split(split) for n in ("after", "between")
        )
        assert between.tolist() == after.tolist()[:-1]


def formats(tmp_path: Path) -> dict[str, Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import zstandard

    plain = write_jsonl(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    table = pa.table({"id": list(range(300)), "text": DOCUMENTS})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=70)
    (tmp_path / "e.txt").write_text(f"\n{END_OF_TEXT}\n".join(DOCUMENTS) + f"\n{END_OF_TEXT}\n")
    (tmp_path / "f").mkdir()
    for i in range(3):
        write_jsonl(tmp_path / "f" / f"{i}.jsonl", DOCUMENTS[100 * i : 100 * i + 100])
    return {p.name: p for p in sorted(tmp_path.iterdir()) if p.name != "out"}


def test_every_kind_of_file_gives_the_same_tokens(tmp_path):
    found = {}
    for name, path in formats(tmp_path).items():
        prepare(files(path), tmp_path / "out" / name, Settings("bytes"))
        found[name] = (tmp_path / "out" / name / "train.bin").read_bytes()
    assert len(found) == 6
    assert len(set(found.values())) == 1


def test_a_text_file_without_marks_is_one_document(tmp_path):
    (tmp_path / "a.txt").write_text("  one\n\ntwo \n")
    prepare(files(tmp_path / "a.txt"), tmp_path / "out", Settings("bytes", val_fraction=0))
    assert documents_of(yf.TokenStore.open(tmp_path / "out"), "train") == ["  one\n\ntwo \n"]


def test_a_mark_that_falls_on_the_border_of_two_reads(tmp_path, monkeypatch):
    from yuriiformer.data import sources

    text = f"one{END_OF_TEXT}two {END_OF_TEXT}\nthree"
    (tmp_path / "a.txt").write_text(text)
    for size in range(1, len(text) + 2):
        monkeypatch.setattr(sources, "CHUNK_BYTES", size)
        chunks = list(files(tmp_path / "a.txt").chunks())
        documents = [document for chunk in chunks for document in chunk.payload]
        assert [d.decode() for _, d in documents] == ["one", "two", "three"]
        assert all(text.encode()[at:].startswith(d) for at, d in documents)
        assert [c.first for c in chunks] == np.cumsum([0, *(c.count for c in chunks)])[:-1].tolist()


def test_chunks_do_not_matter(tmp_path, monkeypatch):
    from yuriiformer.data import sources

    results = set()
    for size in (50, 1000, 2**20):
        monkeypatch.setattr(sources, "CHUNK_BYTES", size)
        prepare(files(write_jsonl(tmp_path / "a.jsonl")), tmp_path / str(size), Settings("bytes"))
        results.add(str(contents(tmp_path / str(size))))
    assert len(results) == 1


@pytest.mark.parametrize("tokenizer", [pytest.param("gpt2", marks=pytest.mark.slow), "bpe:300"])
def test_workers_do_not_matter(tmp_path, tokenizer, monkeypatch):
    from yuriiformer.data import sources

    monkeypatch.setattr(sources, "CHUNK_BYTES", 1000)
    source = files(write_jsonl(tmp_path / "a.jsonl"))
    for workers in (1, 2):
        prepare(source, tmp_path / str(workers), Settings(tokenizer), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_an_official_split(tmp_path):
    train = files(write_jsonl(tmp_path / "t.jsonl"), split="train")
    val = files(write_jsonl(tmp_path / "v.jsonl", ["held out"]), split="val")
    meta = prepare(Parts((train, val)), tmp_path / "out", Settings("bytes", val_fraction=0.5))
    store = yf.TokenStore.open(tmp_path / "out")
    assert documents_of(store, "train") == DOCUMENTS
    assert documents_of(store, "val") == ["held out"]
    assert meta["split_rule"] == "the source's own"


@needs_web
def test_the_web_sample(tmp_path):
    meta = prepare(files(WEB), tmp_path / "out", Settings())
    splits = meta["splits"].values()
    assert sum(s["documents"] for s in splits) == 1000
    assert sum(s["tokens"] for s in splits) == 1_054_999


@needs_stories
def test_the_story_sample(tmp_path):
    source = files(STORIES, drop_cut_ends=True)
    meta = prepare(source, tmp_path / "out", Settings(val_fraction=0.005))
    assert sum(s["documents"] for s in meta["splits"].values()) == 6456
    text = STORIES.read_bytes().decode("utf-8", "replace")
    complete = [story.strip() for story in text.split(END_OF_TEXT)[1:-1]]
    store = yf.TokenStore.open(tmp_path / "out")
    assert sorted(documents_of(store, "train") + documents_of(store, "val")) == sorted(complete)
    whole = prepare(files(STORIES), tmp_path / "whole", Settings(val_fraction=0.005))
    assert sum(s["documents"] for s in whole["splits"].values()) == 6458


def test_the_tokenizer_of_a_store_is_its_own(tmp_path):
    prepare(files(write_jsonl(tmp_path / "a.jsonl")), tmp_path / "out", Settings("bpe:300"))
    store = yf.TokenStore.open(tmp_path / "out")
    assert store.tokenizer().name == "bpe:300"
    assert store.vocab_size == 300
    assert store.padded_vocab_size == 320
    assert load_tokenizer("bpe:300", tmp_path / "out").vocab_size == 300


def test_many_small_files_take_one_look_at_their_sizes(tmp_path, monkeypatch):
    (tmp_path / "many").mkdir()
    for i in range(200):
        (tmp_path / "many" / f"{i:03}.txt").write_text(f"text {i}")
    looks = []
    real = Path.stat

    def stat(self, **options):
        looks.append(self)
        return real(self, **options)

    source = files(tmp_path / "many")
    monkeypatch.setattr(Path, "stat", stat)
    prepare(source, tmp_path / "out", Settings("bytes"), report=lambda *_: None)
    assert len(looks) < 10 * 200
