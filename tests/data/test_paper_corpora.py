"""Prepared data beside the paper's counts."""

from __future__ import annotations

import json

import pytest

from yuriiformer.cli.main import main
from yuriiformer.data.paper_corpora import CORPORA, beside_the_paper, match_data, source_name

STORIES = {
    "source": "tinystories",
    "tokenizer": "gpt2",
    "train_tokens": 471_622_018,
    "val_tokens": 2_370_218,
    "train_documents": 2_109_121,
    "val_documents": 10_598,
}
WEB = {
    "source": "openwebtext",
    "tokenizer": "gpt2",
    "train_tokens": 8_618_311_912,
    "val_tokens": 431_900_100,
    "train_documents": 7_630_278,
    "val_documents": 383_491,
}


def grade(corpus, facts, **changes):
    return match_data(CORPORA[corpus], {**facts, **changes})


def test_the_papers_own():
    assert grade("tinystories", STORIES).grade == "same"
    assert grade("openwebtext", WEB).grade == "same"
    assert grade("openwebtext", WEB).said == ""
    said = beside_the_paper(WEB)
    assert said.startswith("these are the paper's counts of OpenWebText: 7,630,278 training")
    assert beside_the_paper({**WEB, "source": "tales"}) is None


@pytest.mark.parametrize(
    ("corpus", "facts", "changes", "expected", "words"),
    [
        ("tinystories", STORIES, {"val_tokens": 2_381_000}, "near", "2,381,000 validation tokens"),
        ("tinystories", STORIES, {"train_tokens": 471_700_000}, "near", "(paper 471.6 M)"),
        ("openwebtext", WEB, {"val_documents": 383_490}, "near", "(paper 383,491)"),
        ("openwebtext", WEB, {"train_documents": 7_613_100}, "near", "split otherwise"),
        ("tinystories", STORIES, {"train_tokens": 4_500_000}, "other", "a part of TinyStories"),
        ("tinystories", STORIES, {"source": "files"}, "other", "(source: files)"),
        ("tinystories", WEB, {}, "other", "not TinyStories (source: openwebtext)"),
        ("openwebtext", WEB, {"tokenizer": "bpe:4096"}, "other", "bpe:4096, and the paper's gpt2"),
        ("tinystories", STORIES, {"source": None}, "near", "source of the data is not recorded"),
        ("tinystories", STORIES, {"source": None, "val_tokens": 9}, "other", "9 validation tokens"),
    ],
)
def test_what_differs(corpus, facts, changes, expected, words):
    found = grade(corpus, facts, **changes)
    assert found.grade == expected
    assert words in found.said


def test_half_of_a_printed_digit():
    """471.6 M is anything from 471.55 M to 471.65 M."""
    for tokens, expected in ((471_550_000, "same"), (471_549_999, "near"), (471_650_001, "near")):
        assert grade("tinystories", STORIES, train_tokens=tokens).grade == expected


def test_sources():
    assert source_name({"kind": "hub", "name": "roneneldan/TinyStories"}) == "tinystories"
    assert source_name({"kind": "hub", "name": "someone/else"}) == "hub"
    assert source_name({"kind": "files", "corpus": "openwebtext"}) == "openwebtext"
    assert source_name({"kind": "tales"}) == "tales"


@pytest.mark.parametrize("corpus", CORPORA)
def test_prepare_and_show_say_so(tmp_path, capsys, corpus):
    stories = tmp_path / "some.jsonl"
    stories.write_text("".join(json.dumps({"text": f"story {i}"}) + "\n" for i in range(300)))
    out = tmp_path / "out"
    words = ("prepare", corpus, "--from", stories, "--val-fraction", "0.2", "--out", out)
    main([*map(str, words)])
    said = capsys.readouterr().out
    title = CORPORA[corpus].title
    assert f"not the paper's data: the data are a part of {title}: " in said
    assert all(each.text in said for each in CORPORA[corpus].counts.values())
    main(["data", "show", str(out), "--context", "8"])
    assert "not the paper's data: " in capsys.readouterr().out
    main(["prepare", "text", str(stories), "--out", str(tmp_path / "own")])
    assert "paper" not in capsys.readouterr().out
    meta = json.loads((out / "meta.json").read_text())
    assert meta["source"]["corpus"] == corpus


def test_official_split_from_files(tmp_path, capsys):
    for name in ("train", "val"):
        (tmp_path / f"{name}.txt").write_text(f"a {name} story<|endoftext|>another<|endoftext|>")
    words = ("prepare", "tinystories", "--split", "official", "--from", tmp_path / "train.txt")
    main([*map(str, (*words, "--val-from", tmp_path / "val.txt", "--out", tmp_path / "out"))])
    assert "a part of TinyStories" in capsys.readouterr().out
