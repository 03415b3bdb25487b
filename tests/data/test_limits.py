"""Text that unpacks to much, or is one endless word, takes little memory and linear time."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard

from yuriiformer.data import records, sources
from yuriiformer.data.records import unpacked
from yuriiformer.data.sources import Files
from yuriiformer.data.tales.grammar import story
from yuriiformer.data.tokenizers import GPT2, LONG_RUN, TrainedBPE, gpt2_tokenizer, short_runs
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
