"""What is held out: whole documents, or the tail of each; nothing lost, nothing on both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import yuriiformer as yf
from tests.data.corpus import DOCUMENTS, contents, documents_of, files, write_jsonl
from yuriiformer.data import sources
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Tales, find_files, skipped_files
from yuriiformer.data.splitting import cut_place, is_validation

PARAGRAPH = "It was a dark night. The wind was loud, and nobody slept.\n"
BOOK = "".join(f"Chapter {i}\n\n{PARAGRAPH * (1 + i % 3)}\n\n" for i in range(200))


@given(st.text(alphabet="ab .\n\r\tü。", max_size=300), st.floats(0, 0.99))
def test_a_cut_leaves_text_on_both_sides(text, fraction):
    place = cut_place(text, fraction)
    assert 0 <= place <= len(text)
    if place < len(text):
        assert text[:place].strip()
        assert text[place:].strip()
        wanted = len(text.rstrip()) * (1 - fraction)
        assert abs(place - wanted) <= 1 + len(text) * fraction / 2


@pytest.mark.parametrize(
    ("text", "head", "tail"),
    [
        ("One two.\nThree.\n\nFour.\nFive six.\nSeven", "One two.\nThree.\n\n", None),
        ("One two three.\nFour. Five six\nSeven", None, "Four. Five six\nSeven"),
        ('He said: "One two three." Four five six seven', None, "Four five six seven"),
        ("alpha beta gamma delta", "alpha beta ", "gamma delta"),
        ("一二三四。五六七", "一二三四。", "五六七"),
        ("abcdefgh", "abcd", "efgh"),
        ("a", "a", ""),
        ("", "", ""),
        ("a   \n  ", "a   \n  ", ""),
    ],
)
def test_the_best_break_near_the_place_is_taken(text, head, tail):
    place = cut_place(text, 0.5)
    assert head in (None, text[:place])
    assert tail in (None, text[place:])


def test_a_cut_begins_a_chapter():
    place = cut_place(BOOK, 0.05)
    assert BOOK[:place].endswith("\n\n")
    assert 0.04 < 1 - place / len(BOOK) < 0.06


@pytest.mark.parametrize("tokenizer", ["gpt2", "bytes", "bpe:300"])
def test_one_book(tmp_path, tokenizer):
    path = tmp_path / "book.txt"
    path.write_text(BOOK)
    meta = prepare(files(path), tmp_path / "out", Settings(tokenizer))
    store = yf.TokenStore.open(tmp_path / "out", verify=True)
    (head,), (tail,) = documents_of(store, "train"), documents_of(store, "val")
    assert head + tail == BOOK
    assert meta["settings"]["split"] == "tail"
    reason = "by document, the validation side would be empty"
    assert meta["split_rule"] == f"the tail of each document ({reason})"
    prepare(files(path), tmp_path / "said", Settings(tokenizer, split="tail"))
    for name in ("train.bin", "val.bin"):
        assert (tmp_path / "said" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_all_of_a_book_as_validation_is_not_automatic(tmp_path):
    """The hash may put the only document, or the only long one, on the other side."""
    path = tmp_path / "book.txt"
    path.write_text(BOOK + "<|endoftext|>short")
    seed = next(
        s for s in range(999) if is_validation(s, 0, 0.05) and not is_validation(s, 1, 0.05)
    )
    meta = prepare(files(path), tmp_path / "out", Settings("bytes", seed=seed))
    assert "the training side would have only 0.0" in meta["split_rule"]
    assert meta["splits"]["train"]["text_bytes"] > 0.9 * len(BOOK)
    other = next(
        s for s in range(999) if is_validation(s, 1, 0.05) and not is_validation(s, 0, 0.05)
    )
    meta = prepare(files(path), tmp_path / "other", Settings("bytes", seed=other))
    assert "the validation side would have only 0.0" in meta["split_rule"]


def test_the_tail_whatever_the_workers_chunks_and_stops(tmp_path, monkeypatch):
    source = files(write_jsonl(tmp_path / "a.jsonl"))
    settings = Settings("bytes", val_fraction=0.3, split="tail", end_mark="between")
    prepare(source, tmp_path / "one", settings)
    prepare(source, tmp_path / "two", settings, workers=2)
    monkeypatch.setattr(sources, "CHUNK_BYTES", 700)
    prepare(source, tmp_path / "small", settings)
    assert contents(tmp_path / "one") == contents(tmp_path / "two") == contents(tmp_path / "small")
    prepare(source, tmp_path / "after", Settings("bytes", val_fraction=0.3, split="tail"))
    store = yf.TokenStore.open(tmp_path / "after")
    heads, tails = documents_of(store, "train"), documents_of(store, "val")
    assert len(heads) == len(DOCUMENTS)
    left = iter(tails)
    assert [
        h if h == d else h + next(left) for h, d in zip(heads, DOCUMENTS, strict=True)
    ] == DOCUMENTS
    assert next(left, None) is None
    assert len(tails) > 250


def test_many_documents_are_split_by_document(tmp_path):
    """As ever, to the byte; and without reading more than the first."""
    source = files(write_jsonl(tmp_path / "a.jsonl"))
    prepare(source, tmp_path / "auto", Settings("bytes"))
    prepare(source, tmp_path / "said", Settings("bytes", split="documents"))
    assert contents(tmp_path / "auto") == contents(tmp_path / "said")
    meta = yf.TokenStore.open(tmp_path / "auto").meta
    assert meta["split_rule"] == "hash of (seed, document index)"
    assert "split" not in meta["settings"]  # as in the files of earlier versions

    class Watched(Tales):
        def chunks(self, skip=0):
            for chunk in super().chunks(skip):
                seen.append(chunk.first)
                yield chunk

    seen = []
    prepare(Watched(3000, 0), tmp_path / "tales", Settings("bytes"))
    assert seen == [0, 0, 1000, 2000]


def test_without_validation_there_is_no_tail(tmp_path):
    (tmp_path / "a.txt").write_text(BOOK)
    source = files(tmp_path / "a.txt")
    for split in ("auto", "tail"):
        meta = prepare(source, tmp_path / split, Settings("bytes", val_fraction=0, split=split))
        assert meta["splits"]["val"]["documents"] == 0
        assert meta["splits"]["train"]["text_bytes"] == len(BOOK)


def test_what_a_folder_holds_beside_text(tmp_path):
    for name in ("a.txt", "B.TXT", "deep/c.jsonl", "cover.jpg", "deep/notes.md", "empty.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if name == "empty.txt" else "x")
    taken, left = find_files([tmp_path]), skipped_files([tmp_path])
    assert {p.name for p in taken} == {"a.txt", "B.TXT", "c.jsonl"}
    assert {p.name for p in left} == {"cover.jpg", "notes.md", "empty.txt"}
    assert skipped_files(taken) == []
