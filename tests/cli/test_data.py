"""`yurii prepare` and `yurii data`, called as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import yuriiformer as yf
from yuriiformer.cli.main import main
from yuriiformer.data.tales.grammar import entropy_per_story, story


@pytest.fixture
def prepared(tmp_path, capsys):
    arguments = [
        "prepare",
        "tales",
        "--stories",
        "300",
        "--tokenizer",
        "bpe:400",
        "--workers",
        "1",
        "--out",
    ]
    assert main([*arguments, str(tmp_path / "tales")]) == 0
    return tmp_path / "tales", capsys.readouterr().out


def test_tales_need_nothing(prepared):
    folder, out = prepared
    store = yf.TokenStore.open(folder, verify=True)
    tokenizer = store.tokenizer()
    text = tokenizer.decode(store.train)
    assert story(0, 0) in text or story(0, 0) in tokenizer.decode(store.val)
    documents = sum(s["documents"] for s in store.meta["splits"].values())
    assert documents == 300
    tokens = (len(store.train) + len(store.val)) / 300
    floor = entropy_per_story() / tokens
    assert f"no model's expected loss is below {floor:.4f} nats per token" in out
    assert f"wrote {folder}" in out


def test_show(prepared, capsys, tmp_path):
    folder, _ = prepared
    plot = tmp_path / "plot.svg"
    options = ["--context", "64", "--sequences", "8", "--verify", "--plot", str(plot)]
    assert main(["data", "show", str(folder), *options]) == 0
    out = capsys.readouterr().out
    store = yf.TokenStore.open(folder)
    assert f"train: {len(store.train):,} tokens" in out
    order = yf.BatchOrder(len(store.train), 64, 8)
    assert f"{order.blocks:,} blocks of 64 tokens; {order.steps_per_epoch:.1f} steps" in out
    assert "tokeniser bpe:400" in out
    assert "every byte is as it was written" in out
    assert "sample 3:" in out
    assert plot.read_text().lstrip().startswith("<?xml")
    assert main(["data", "show", str(folder), "--as-json"]) == 0
    data = json.loads(capsys.readouterr().out)
    counts = np.bincount(store.train, minlength=400)
    assert data["vocabulary"]["used"] == (counts > 0).sum()
    share = counts[counts > 0] / counts.sum()
    assert data["vocabulary"]["unigram_entropy"] == pytest.approx(-(share * np.log(share)).sum())
    assert data["most_frequent"][0]["id"] == counts.argmax()


def test_show_nanogpts_files(tmp_path, capsys):
    for split in ("train", "val"):
        np.arange(5000, dtype=np.uint16).tofile(tmp_path / f"{split}.bin")
    assert main(["data", "show", str(tmp_path)]) == 0
    assert "no meta.json" in capsys.readouterr().out


ERRORS = [
    ("prepare text none.txt --out x", "no file 'none.txt'"),
    ("prepare text --out x", "name at least one file"),
    ("prepare tales", "--out"),
    ("prepare tales --out x --tokenizer gpt9", "unknown tokeniser 'gpt9'"),
    ("prepare tales --out x --stories 0", "at least 1"),
    ("prepare tinystories --split official --from a.txt --out x", "both --from and --val-from"),
    ("prepare stories --out x", "stories"),
    ("prepare tales --out x --workers 0", "--workers must be at least 1"),
    ("prepare tinystories --from a.txt --val-from b.txt --out x", "goes with --split official"),
    ("prepare tinystories --drop-cut-ends --out x", "needs --from"),
    ("prepare openwebtext --from a.txt --revision r --out x", "does not go with --from"),
    ("data show none", "no prepared data in 'none'"),
]


@pytest.mark.parametrize(("command", "reason"), ERRORS)
def test_errors_are_one_line_and_code_2(command, reason, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("yurii: ")
    assert err.count("\n") == 1
    assert reason in err
    assert not list(tmp_path.iterdir())


def test_a_folder_with_one_book(tmp_path, capsys):
    folder = tmp_path / "book"
    folder.mkdir()
    (folder / "book.txt").write_text("A line of the book.\n" * 500)
    for number in range(10):
        (folder / f"page{number}.jpg").write_text("x")
    arguments = ["prepare", "text", str(folder), "--tokenizer", "bytes", "--workers", "1", "--out"]
    assert main([*arguments, str(tmp_path / "out")]) == 0
    skipped, split, *_ = lines = capsys.readouterr().out.splitlines()
    assert skipped.startswith("skipped 10 files (empty, or not .txt, .jsonl or .parquet): ")
    assert skipped.endswith(f"{folder / 'page7.jpg'} and 2 more")
    reason = "(by document, the validation side would be empty)"
    assert split == f"validation is the tail of each document {reason}"
    assert lines[2:4] == ["train: 1 documents, 9,501 tokens", "val: 1 documents, 501 tokens"]
    assert main(["data", "show", str(tmp_path / "out")]) == 0
    assert f"split: the tail of each document {reason}, validation 5 %" in capsys.readouterr().out
    said = [*arguments, str(tmp_path / "said"), "--split", "documents"]
    assert main(said) == 0
    assert "note: the validation split is empty" in capsys.readouterr().out


@pytest.mark.parametrize("corpus", ["tinystories", "openwebtext"])
def test_files_instead_of_the_hub(corpus, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("<|endoftext|>".join(f"story {i}" for i in range(50)))
    arguments = ["prepare", corpus, "--from", str(tmp_path / "a.txt"), "--tokenizer", "bytes"]
    assert main([*arguments, "--workers", "1", "--out", str(tmp_path / "out")]) == 0
    assert "documents" in capsys.readouterr().out
    assert yf.TokenStore.open(tmp_path / "out").meta["source"]["files"][0]["name"] == "a.txt"


def test_the_official_split_from_files(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one<|endoftext|>two")
    (tmp_path / "b.txt").write_text("three")
    arguments = [
        "prepare",
        "tinystories",
        "--split",
        "official",
        "--tokenizer",
        "bytes",
        "--workers",
        "1",
    ]
    paths = ["--from", str(tmp_path / "a.txt"), "--val-from", str(tmp_path / "b.txt")]
    assert main([*arguments, *paths, "--out", str(tmp_path / "out")]) == 0
    splits = yf.TokenStore.open(tmp_path / "out").meta["splits"]
    assert [splits[s]["documents"] for s in ("train", "val")] == [2, 1]


@pytest.mark.parametrize(
    "corpus", ["tinystories", pytest.param("openwebtext", marks=pytest.mark.slow)]
)
def test_without_a_hub_the_way_out_is_named(corpus, tmp_path):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    yurii = str(Path(sys.executable).with_name("yurii"))
    result = subprocess.run(
        [yurii, "prepare", corpus, "--out", str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("yurii: the hub's dataset ")
    assert "--from PATH" in result.stderr
    assert "yurii prepare tales" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    from yuriiformer.cli import prepare

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "prepare", interrupted)
    assert main(["prepare", "tales", "--out", str(tmp_path / "out")]) == 130
    assert "the same command resumes it\nyurii: interrupted" in capsys.readouterr().err


def test_show_what_is_short_or_empty(tmp_path, capsys, prepared):
    folder, _ = prepared
    assert main(["data", "show", str(folder), "--context", "10000000"]) == 0
    assert "too short for one block of 10000000 tokens" in capsys.readouterr().out
    assert main(["data", "show", str(folder), "--context", "0"]) == 2
    assert "context must be at least 1" in capsys.readouterr().err
    nano = tmp_path / "nano"
    nano.mkdir()
    np.arange(5000, dtype=np.uint16).tofile(nano / "train.bin")
    (nano / "val.bin").touch()
    assert main(["data", "show", str(nano), "--plot", str(tmp_path / "p.svg"), "--as-json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == {"train": 5000, "val": 0}
