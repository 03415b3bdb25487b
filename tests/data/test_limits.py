"""Text that unpacks to much, or is one endless word, takes little memory and linear time."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard

from yuriiformer.data import pieces, records, sources
from yuriiformer.data.pieces import LONG_RUN, short_runs
from yuriiformer.data.prepare import prepare
from yuriiformer.data.records import unpacked
from yuriiformer.data.sources import Files
from yuriiformer.data.splitting import cut_place
from yuriiformer.data.tales.grammar import story
from yuriiformer.data.tokenizers import GPT2, TrainedBPE, gpt2_tokenizer
from yuriiformer.errors import DataError


def test_a_small_zst_file_of_many_bytes_is_read_in_small_parts():
    size = 2**28
    packed = zstandard.compress(bytes(size))
    assert len(packed) < 2**15
    read = largest = 0
    tracemalloc.start()
    with unpacked(io.BytesIO(packed), Path("x.zst")) as file:
        while block := file.read(2**20):
            read += len(block)
            largest = max(largest, len(file.raw.ready))
    assert read == size
    assert largest < 2**26 + 2**20  # what ZSTD_BYTES can become
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()


def test_what_is_ready_is_not_copied():
    """A slice of bytes would be: then the time grows with the square."""
    reader = records._Zstd(io.BytesIO(zstandard.compress(b"x" * 2**22)))
    reader.readinto(bytearray(10))
    assert isinstance(reader.ready, memoryview)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.txt.zst"])
def test_a_document_without_end_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(sources, "MOST_DOCUMENT", 2**21)
    raw = b'"' + b"x" * 2**23
    pack = zstandard.compress if name.endswith(".zst") else gzip.compress
    (tmp_path / name).write_bytes(pack(raw))
    with pytest.raises(DataError, match=r"a\..*: a document of more than"):
        list(Files((tmp_path / name,)).chunks())


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_file_of_one_document_takes_a_few_times_its_size(tmp_path, pack):
    raw = "\n\n".join(story(0, index) for index in range(4000)).encode()
    path = tmp_path / ("a.txt.gz" if pack is gzip.compress else "a.txt.zst")
    path.write_bytes(pack(raw))
    tracemalloc.start()
    meta = prepare(path, tmp_path / "out", tokenizer="bytes")
    assert tracemalloc.get_traced_memory()[1] < 7.5 * len(raw)  # the tokens alone take two
    tracemalloc.stop()
    assert sum(each["text_bytes"] for each in meta["splits"].values()) == len(raw)


class Sliced(str):
    """Counts the copies that are made of its parts."""

    copies = 0

    def __getitem__(self, place):
        Sliced.copies += 1
        return super().__getitem__(place)


def test_a_book_is_not_copied_for_each_of_its_paragraphs():
    """Then the time to cut it grows with the square of its length."""
    assert cut_place(Sliced("word\n\n" * 20_000), 0.5) == 60_000
    assert Sliced.copies < 10


def test_a_long_document_is_encoded_in_pieces_with_the_same_tokens(monkeypatch):
    tales = [story(0, index) for index in range(60)]
    whole = "\n\n".join(tales) + "  x\n \n don't 12 ½ 3\u00a04 --- é\u0301 \u3000 z\tq"
    trained = TrainedBPE.train([whole], 300)
    expected = trained.encode(whole)
    for size in (1, 7, 1000):
        monkeypatch.setattr(pieces, "PIECE", size)
        cut = list(pieces.pieces(whole))
        assert "".join(cut) == whole
        assert len(cut) > len(whole) / (size + 20)
        assert trained.encode(whole) == expected
        assert TrainedBPE.train([whole], 300).to_text() == trained.to_text()


def test_long_runs_are_taken_in_pieces():
    long = 3 * LONG_RUN + 5
    for text in ("a" * long, "7" * long, "=" * long, " " * long, "ä" * long):
        pieces = short_runs(f"before {text} after")
        assert "".join(pieces) == f"before {text} after"
        assert max(map(len, pieces)) <= LONG_RUN + 10
    ordinary = "word " * 10_000 + "a" * (LONG_RUN - 1)
    assert "".join(short_runs(ordinary)) == ordinary


def test_a_bpe_takes_one_letter_repeated():
    tales = [story(0, index) for index in range(60)]
    trained = TrainedBPE.train([*tales, "a" * 200_000], 300)
    text = "b" + "a" * 300_000 + " " * 9000
    assert trained.decode(trained.encode(text)) == text
    plain = trained.encode_batch(tales)
    mixed = trained.encode_batch([*tales, text])
    assert all(np.array_equal(one, two) for one, two in zip(plain, mixed, strict=False))


def test_gpt2s_tokens_are_the_librarys():
    for text in ("Hello <|endoftext|> world\n\n  x", "äöü 漢字 🎉" * 50, "", "a b  c\t\n" * 200):
        assert GPT2().encode(text) == gpt2_tokenizer().encode_ordinary(text)
