"""Sources that are odd, broken or out of reach: one clear line, nothing half-written."""

from __future__ import annotations

import gzip

import pytest

import yuriiformer as yf
from tests.data.corpus import DOCUMENTS, documents_of, fails, files, write_jsonl
from yuriiformer.data.paper_corpora import Hub
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.splitting import is_validation
from yuriiformer.errors import DataError


def test_files_that_cannot_be(tmp_path):
    fails(tmp_path, lambda: files(tmp_path / "none.txt"), "no file")
    (tmp_path / "empty.txt").touch()
    fails(tmp_path, lambda: files(tmp_path / "empty.txt"), "empty.txt is empty")
    (tmp_path / "a.pdf").write_text("x")
    fails(tmp_path, lambda: files(tmp_path / "a.pdf"), "unknown kind of file")
    (tmp_path / "folder").mkdir()
    fails(tmp_path, lambda: files(tmp_path / "folder"), "no .txt, .jsonl or .parquet file")
    (tmp_path / "bad.parquet").write_text("not parquet")
    fails(tmp_path, files(tmp_path / "bad.parquet"), "is not a parquet file")
    (tmp_path / "bad.jsonl.gz").write_bytes(b"\x1f\x8b not gzip")
    fails(tmp_path, files(tmp_path / "bad.jsonl.gz"), "bad.jsonl.gz")


def test_a_missing_column_says_which_there_are(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    fails(
        tmp_path,
        files(write_jsonl(tmp_path / "a.jsonl", column="story")),
        "a.jsonl:1: no column 'text'; it has id, story",
    )
    pq.write_table(pa.table({"id": [1], "story": ["x"]}), tmp_path / "a.parquet")
    fails(tmp_path, files(tmp_path / "a.parquet"), "no column 'text'; it has id, story")
    source = files(tmp_path / "a.parquet", column="story")
    prepare(source, tmp_path / "fine", Settings("bytes", val_fraction=0))
    fails(tmp_path, files(tmp_path / "a.parquet", column="id"), "holds no text but int64")


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl")
    path.write_text(path.read_text() + '{"text": "cut off\n')
    fails(tmp_path, files(path), f"{path}:301: not JSON")
    path.write_text('["text"]\n')
    fails(tmp_path, files(path), f"{path}:1: a line must be an object")


def test_invalid_text_is_counted_or_refused(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good<|endoftext|>\n b\xffad<|endoftext|>good")
    (tmp_path / "b.jsonl").write_bytes(
        b'{"text": "b\xffad"}\n{"text": "half \\ud800"}\n{"text": "x"}\n'
    )
    source = files(tmp_path / "a.txt", tmp_path / "b.jsonl")
    meta = prepare(source, tmp_path / "fine", Settings("bytes", val_fraction=0))
    assert meta["invalid_utf8_documents"] == 3
    texts = documents_of(yf.TokenStore.open(tmp_path / "fine"), "train")
    assert texts == ["good", "b�ad", "good", "b�ad", "half ?", "x"]
    fails(
        tmp_path,
        files(tmp_path / "a.txt"),
        f"{tmp_path / 'a.txt'}, byte 20: not valid UTF-8",
        strict=True,
    )
    fails(tmp_path, files(tmp_path / "b.jsonl"), "b.jsonl:1, byte 11: not valid", strict=True)


def test_empty_documents_are_left_out_and_counted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": ""}\n\n{"text": null}\n{"text": "x"}\n')
    meta = prepare(files(path), tmp_path / "fine", Settings("bytes", val_fraction=0))
    assert meta["empty_documents"] == 3
    assert meta["splits"]["train"]["documents"] == 1
    path.write_text('{"text": ""}\n')
    fails(tmp_path, files(path), "no document with text")
    path.write_text('{"text": "x"}\n')
    seed = next(seed for seed in range(99) if is_validation(seed, 0, 0.5))
    held_out = {"seed": seed, "val_fraction": 0.5, "split": "documents"}
    for tokenizer in ("bytes", "bpe:300"):
        reason = "the training side is empty: all documents (1) fell into the validation split"
        fails(tmp_path, files(path), reason, tokenizer=tokenizer, **held_out)


def test_a_bpe_larger_than_the_text_allows(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(DataError, match=r"only 25[0-9] tokens, not 4096"):
        prepare(files(tmp_path / "a.txt"), tmp_path / "out", Settings("bpe:4096", val_fraction=0))


def test_settings_that_cannot_be():
    with pytest.raises(DataError, match="unknown tokeniser"):
        Settings("gpt5")
    with pytest.raises(DataError, match="val_fraction"):
        Settings(val_fraction=1.1)
    with pytest.raises(DataError, match="val_fraction must be below 1"):
        Settings(val_fraction=1.0, split="tail")
    with pytest.raises(DataError, match="split must be one of auto, documents, tail: 'head'"):
        Settings(split="head")


def test_cut_and_damaged_compressed_files(tmp_path):
    import zstandard

    write_jsonl(tmp_path / "a.jsonl", [d * 30 for d in DOCUMENTS])
    plain = (tmp_path / "a.jsonl").read_bytes()
    packed = {".gz": gzip.compress(plain), ".zst": zstandard.compress(plain)}
    for suffix, data in packed.items():
        path = tmp_path / f"b.jsonl{suffix}"
        path.write_bytes(data[: len(data) // 2])
        fails(tmp_path, files(path), "is damaged or cut")
        path.write_bytes(b"no such format at all")
        fails(tmp_path, files(path), "is damaged or cut" if suffix == ".zst" else "cannot be read")
    frames = [zstandard.compress(part) for part in (plain[:1000], b"", plain[1000:])]
    (tmp_path / "c.jsonl.zst").write_bytes(b"".join(frames))
    prepare(files(tmp_path / "c.jsonl.zst"), tmp_path / "frames", Settings("bytes"))
    prepare(files(tmp_path / "a.jsonl"), tmp_path / "plain", Settings("bytes"))
    assert (tmp_path / "frames" / "train.bin").read_bytes() == (
        tmp_path / "plain" / "train.bin"
    ).read_bytes()


def test_odd_parquet_columns(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["one", None, "", "two"]
    columns = {
        "string": pa.array(texts),
        "large": pa.array(texts, pa.large_string()),
        "dictionary": pa.array(texts).dictionary_encode(),
    }
    for name, column in columns.items():
        pq.write_table(pa.table({"text": column}), tmp_path / f"{name}.parquet")
        source = files(tmp_path / f"{name}.parquet")
        prepare(source, tmp_path / name, Settings("bytes", val_fraction=0))
        assert documents_of(yf.TokenStore.open(tmp_path / name), "train") == ["one", "two"]
    broken = pa.array([b"good", b"b\xffad"]).view(pa.string())
    pq.write_table(pa.table({"text": broken}), tmp_path / "broken.parquet")
    source = files(tmp_path / "broken.parquet")
    meta = prepare(source, tmp_path / "replaced", Settings("bytes", val_fraction=0))
    assert meta["invalid_utf8_documents"] == 1
    fails(tmp_path, source, "broken.parquet, row 2, byte 1: not valid UTF-8", strict=True)
    damaged = bytearray((tmp_path / "string.parquet").read_bytes())
    damaged[4:40] = b"\xff" * 36
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    fails(tmp_path, files(tmp_path / "damaged.parquet"), "damaged.parquet")


def test_a_byte_order_mark_is_not_text(tmp_path):
    bom = b"\xef\xbb\xbf"
    (tmp_path / "a.txt").write_bytes(bom + b"one")
    (tmp_path / "b.jsonl").write_bytes(bom + b'{"text": "two"}\r\n{"text": "three"}')
    source = files(tmp_path / "a.txt", tmp_path / "b.jsonl")
    prepare(source, tmp_path / "out", Settings("bytes", val_fraction=0))
    assert documents_of(yf.TokenStore.open(tmp_path / "out"), "train") == ["one", "two", "three"]


def test_what_tiktoken_cannot_take(tmp_path, capfd):
    """A million spaces overflow its stack; the document comes back all the same."""
    text = "a" + " " * 1_000_000 + "b"
    (tmp_path / "a.txt").write_text(text)
    prepare(files(tmp_path / "a.txt"), tmp_path / "out", Settings(val_fraction=0))
    assert documents_of(yf.TokenStore.open(tmp_path / "out"), "train") == [text]
    capfd.readouterr()  # the library's own words on it


class Rows(list):
    """A stand-in for a streamed dataset of the hub, which is out of reach here."""

    info = type("Info", (), {"splits": None})

    def skip(self, n):
        return Rows(self[n:])


@pytest.fixture
def hub(monkeypatch):
    import datasets

    found = {
        "train": Rows({"text": f"story {i}"} for i in range(2500)),
        "validation": Rows([{"text": "held out"}]),
    }
    asked = []

    def load_dataset(name, *, split, streaming, revision):
        asked.append((name, split, streaming, revision))
        return found[split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return found, asked


def test_the_hubs_rows(tmp_path, hub):
    found, asked = hub
    source = Hub("some/name", ("train",), "abc")
    meta = prepare(source, tmp_path / "out", Settings("bytes", val_fraction=0))
    texts = documents_of(yf.TokenStore.open(tmp_path / "out"), "train")
    assert texts == [row["text"] for row in found["train"]]
    assert meta["source"]["revision"] == "abc"
    assert set(asked) == {("some/name", "train", True, "abc")}
    chunks = list(source.chunks())
    assert [c.__dict__ for c in source.chunks(skip=2)] == [
        {**c.__dict__, "before": 0} for c in chunks[2:]
    ]
    official = Hub("some/name", ("train", "validation"), "abc", own_split=True)
    meta = prepare(official, tmp_path / "official", Settings("bytes"))
    assert [meta["splits"][s]["documents"] for s in ("train", "val")] == [2500, 1]


def test_rows_of_the_hub_that_do_not_fit(tmp_path, hub):
    found, _ = hub
    fails(tmp_path, Hub("some/name", ("train",), "abc", "story"), "no column 'story'; it has text")
    found["train"][3]["text"] = 7
    fails(tmp_path, Hub("some/name", ("train",), "abc"), "some/name, row 4: column 'text' holds no")
