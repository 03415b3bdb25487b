"""Preparing a corpus: exact, the same whatever the workers, and never half finished."""

from __future__ import annotations

import errno
import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import yuriiformer as yf
from tests.data.shared import STORIES, WEB, needs_stories, needs_web
from yuriiformer.data import partial
from yuriiformer.data import prepare as module
from yuriiformer.data.hub import Hub
from yuriiformer.data.prepare import Settings, is_validation, prepare
from yuriiformer.data.sources import Files, Parts, find_files
from yuriiformer.data.tokenizers import END_OF_TEXT, load_tokenizer
from yuriiformer.errors import DataError

DOCUMENTS = [f"Document {i}: " + "word " * (i % 17) + "end – ü." for i in range(300)]


def files(*paths: Path, **options) -> Files:
    return Files(tuple(find_files(paths)), **options)


def write_jsonl(path: Path, documents=DOCUMENTS, column="text") -> Path:
    path.write_text("".join(json.dumps({"id": 1, column: d}) + "\n" for d in documents))
    return path


def documents_of(store: yf.TokenStore, split: str) -> list[str]:
    tokenizer = store.tokenizer()
    ids = np.asarray(store.split(split))
    ends = np.flatnonzero(ids == tokenizer.end_of_text)
    assert len(ids) == 0 or ends[-1] == len(ids) - 1
    parts = np.split(ids, ends + 1)[:-1]
    return [tokenizer.decode(part[:-1]) for part in parts]


def contents(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


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


@pytest.mark.parametrize("tokenizer", ["gpt2", "bpe:300"])
def test_workers_do_not_matter(tmp_path, tokenizer, monkeypatch):
    from yuriiformer.data import sources

    monkeypatch.setattr(sources, "CHUNK_BYTES", 1000)
    source = files(write_jsonl(tmp_path / "a.jsonl"))
    for workers in (1, 3):
        prepare(source, tmp_path / str(workers), Settings(tokenizer), workers=workers)
    assert contents(tmp_path / "1") == contents(tmp_path / "3")


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


# Bad input


def fails(tmp_path, source, reason, **options):
    with pytest.raises(DataError) as caught:
        prepare(
            source() if callable(source) else source, tmp_path / "out", Settings("bytes", **options)
        )
    assert reason in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    shutil.rmtree(tmp_path / "out.partial", ignore_errors=True)


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

    fails(tmp_path, files(write_jsonl(tmp_path / "a.jsonl", column="story")),
          "a.jsonl:1: no column 'text'; it has id, story")  # fmt: skip
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
    fails(tmp_path, files(path), "all documents (1) fell into the validation split",
          seed=seed, val_fraction=0.5)  # fmt: skip


def test_a_bpe_larger_than_the_text_allows(tmp_path):
    (tmp_path / "a.txt").write_text("abc")
    with pytest.raises(DataError, match=r"only 25[0-9] tokens, not 4096"):
        prepare(files(tmp_path / "a.txt"), tmp_path / "out", Settings("bpe:4096", val_fraction=0))


def test_settings_that_cannot_be():
    with pytest.raises(DataError, match="unknown tokeniser"):
        Settings("gpt5")
    with pytest.raises(DataError, match="val_fraction"):
        Settings(val_fraction=1.0)


def test_what_exists_is_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(DataError, match="exists already"):
        prepare(files(write_jsonl(tmp_path / "a.jsonl")), tmp_path / "out", Settings("bytes"))
    assert (tmp_path / "out" / "mine").read_text() == "x"


# Interruption


class StopError(Exception):
    """Stands for whatever may stop a preparation."""


def stop_after(chunks: int):
    def report(progress, done, total):
        if progress.chunks == chunks:
            raise StopError

    return report


@pytest.fixture
def many_chunks(tmp_path, monkeypatch):
    from yuriiformer.data import sources

    monkeypatch.setattr(sources, "CHUNK_BYTES", 500)
    monkeypatch.setattr(module, "COMMIT_SECONDS", 0.0)
    return files(write_jsonl(tmp_path / "a.jsonl"))


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:300"])
def test_going_on_gives_the_same_bytes(tmp_path, many_chunks, tokenizer):
    settings = Settings(tokenizer, end_mark="between")
    prepare(many_chunks, tmp_path / "whole", settings)
    for chunks in (1, 2, 7, 20):
        with pytest.raises(StopError):
            prepare(many_chunks, tmp_path / "out", settings, report=stop_after(chunks))
        assert not (tmp_path / "out").exists()
        with pytest.raises(DataError, match="was stopped; give the same"):
            yf.TokenStore.open(tmp_path / "out")
        journal = json.loads((tmp_path / "out.partial" / "progress.json").read_text())
        assert journal["progress"]["chunks"] == chunks
        with pytest.raises(DataError, match="unfinished preparation"):
            yf.TokenStore.open(tmp_path / "out.partial")
        with (tmp_path / "out.partial" / "train.bin").open("ab") as file:
            file.write(b"torn")  # written, not committed
    seen = []
    prepare(many_chunks, tmp_path / "out", settings, report=lambda p, *_: seen.append(p.chunks))
    assert seen[0] == 21  # it did go on, and did not begin again
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_another_plan_is_refused_unless_told_to_begin_anew(tmp_path, many_chunks):
    with pytest.raises(StopError):
        prepare(many_chunks, tmp_path / "out", Settings("bytes"), report=stop_after(3))
    with pytest.raises(DataError, match=r"with another settings: .*--restart"):
        prepare(many_chunks, tmp_path / "out", Settings("bytes", seed=1))
    prepare(many_chunks, tmp_path / "out", Settings("bytes", seed=1), restart=True)
    prepare(many_chunks, tmp_path / "whole", Settings("bytes", seed=1))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_source_that_changed_meanwhile_is_refused(tmp_path, many_chunks):
    with pytest.raises(StopError):
        prepare(many_chunks, tmp_path / "out", Settings("bytes"), report=stop_after(3))
    path = many_chunks.paths[0]
    path.write_text(path.read_text().replace("Document 1:", "Dokument 1:"))  # the same size
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="another state of the source"):
        prepare(many_chunks, tmp_path / "out", Settings("bytes"))


@pytest.mark.parametrize("step", ["write_json", "publish", "rename"])
def test_stopped_at_the_very_end(tmp_path, many_chunks, step, monkeypatch):
    """Between the last token and the final name there are several steps: stop before each."""
    prepare(many_chunks, tmp_path / "whole", Settings("bytes"))

    def stop(*_, **__):
        raise StopError

    with monkeypatch.context() as patch:
        if step == "write_json":
            real = partial.write_json

            def only_meta(path, data):
                return stop() if path.name == "meta.json" else real(path, data)

            patch.setattr(partial, "write_json", only_meta)
        elif step == "publish":
            patch.setattr(partial.Partial, "publish", stop)
        else:
            real_rename = Path.rename

            def rename(self, target):
                return stop() if Path(target).name == "out" else real_rename(self, target)

            patch.setattr(Path, "rename", rename)
        with pytest.raises(StopError):
            prepare(many_chunks, tmp_path / "out", Settings("bytes"))
    assert not (tmp_path / "out").exists()
    prepare(many_chunks, tmp_path / "out", Settings("bytes"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_full_disk_loses_nothing(tmp_path, many_chunks, monkeypatch):
    prepare(many_chunks, tmp_path / "whole", Settings("bytes"))
    written = [0]
    real = partial.Partial.write

    def write(self, split, data):
        written[0] += len(data)
        if written[0] > 20_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, split, data)

    with monkeypatch.context() as patch:
        patch.setattr(partial.Partial, "write", write)
        with pytest.raises(DataError, match=r"No space left on device.*goes on where it was"):
            prepare(many_chunks, tmp_path / "out", Settings("bytes"))
    prepare(many_chunks, tmp_path / "out", Settings("bytes"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_two_at_once_are_refused(tmp_path, many_chunks):
    def again(progress, done, total):
        with pytest.raises(DataError, match="another process is preparing"):
            prepare(many_chunks, tmp_path / "out", Settings("bytes"))
        raise StopError

    with pytest.raises(StopError):
        prepare(many_chunks, tmp_path / "out", Settings("bytes"), report=again)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokenizer", "repeat", "wanted"), [("gpt2", 350, 20), ("bpe:400", 150, 6)]
)
def test_killed_at_many_moments(tmp_path, tokenizer, repeat, wanted):
    """kill -9 at random moments, again and again: the same bytes, never a finished-looking part."""
    source = tmp_path / "big.jsonl"
    write_jsonl(source, [f"{i} " + d for i in range(repeat) for d in DOCUMENTS])
    yurii = str(Path(sys.executable).with_name("yurii"))
    environment = {**os.environ, "YURII_COMMIT_SECONDS": "0.05"}

    def command(out: str) -> list[str]:
        options = ["--tokenizer", tokenizer, "--workers", "2", "--out", str(tmp_path / out)]
        return [yurii, "prepare", "text", str(source), *options]

    start = time.monotonic()
    subprocess.run(command("whole"), check=True, capture_output=True, env=environment)
    whole = time.monotonic() - start
    expected = contents(tmp_path / "whole")
    generator, journals = random.Random(0), []
    # Until enough kills have hit, half of them in the middle of the writing.
    while len(journals) < wanted or sum(chunks > 0 for chunks in journals) < wanted // 2:
        assert len(journals) < 10 * wanted
        with subprocess.Popen(
            command("out"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        ) as process:
            try:
                process.wait(timeout=generator.uniform(0.2, 1.0) * whole)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
        journal = tmp_path / "out.partial" / "progress.json"
        if journal.exists():
            journals.append(json.loads(journal.read_text())["progress"]["chunks"])
        if (tmp_path / "out").exists():
            assert contents(tmp_path / "out") == expected
            shutil.rmtree(tmp_path / "out")
    subprocess.run(command("out"), check=True, capture_output=True, env=environment)
    assert contents(tmp_path / "out") == expected
    assert not (tmp_path / "out.partial").exists()


def test_a_worker_leaves_with_its_parent(tmp_path):
    """After kill -9 of the parent no worker stays behind."""
    write_jsonl(tmp_path / "a.jsonl", [d * 20 for d in DOCUMENTS] * 40)
    code = f"""
import os
from pathlib import Path
from yuriiformer.data.hub import Hub
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Files
import multiprocessing
def report(*_):
    for child in multiprocessing.active_children():
        print(child.pid, flush=True)
    os.kill(os.getpid(), 9)
if __name__ == "__main__":
    prepare(Files((Path({str(tmp_path / "a.jsonl")!r}),)), Path({str(tmp_path / "out")!r}),
            Settings("bytes"), workers=2, report=report)
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    result = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    workers = [int(pid) for pid in result.stdout.split()]
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_the_tokenizer_of_a_store_is_its_own(tmp_path):
    prepare(files(write_jsonl(tmp_path / "a.jsonl")), tmp_path / "out", Settings("bpe:300"))
    store = yf.TokenStore.open(tmp_path / "out")
    assert store.tokenizer().name == "bpe:300"
    assert store.vocab_size == 300
    assert store.padded_vocab_size == 320
    assert load_tokenizer("bpe:300", tmp_path / "out").vocab_size == 300


def test_the_plan_is_on_disk_before_anything_else(tmp_path, many_chunks, monkeypatch):
    """Stopped while the tokeniser was trained: another command must not pick up its results."""
    with monkeypatch.context() as patch:

        def stop(*_):
            raise StopError

        patch.setattr(module, "_write_all", stop)
        with pytest.raises(StopError):
            prepare(many_chunks, tmp_path / "out", Settings("bpe:300"))
    assert (tmp_path / "out.partial" / "tokenizer.json").is_file()
    with pytest.raises(DataError, match="another settings"):
        prepare(many_chunks, tmp_path / "out", Settings("bpe:280"))
    meta = prepare(many_chunks, tmp_path / "out", Settings("bpe:300"))
    assert meta["tokenizer"]["vocab_size"] == 300


def test_a_finished_part_is_published_only_for_its_own_command(tmp_path, many_chunks, monkeypatch):
    with monkeypatch.context() as patch:

        def stop(*_):
            raise StopError

        patch.setattr(partial.Partial, "publish", stop)
        with pytest.raises(StopError):
            prepare(many_chunks, tmp_path / "out", Settings("bytes"))
    with pytest.raises(DataError, match="another settings"):
        prepare(many_chunks, tmp_path / "out", Settings("bytes", seed=9))
    other = files(write_jsonl(tmp_path / "other.jsonl", ["x", "y"]))
    with pytest.raises(DataError, match="another source"):
        prepare(other, tmp_path / "out", Settings("bytes"))
    prepare(many_chunks, tmp_path / "out", Settings("bytes"))


def test_folders_without_a_journal_are_begun_anew(tmp_path, many_chunks):
    (tmp_path / "out.partial" / "tokenizer.part").mkdir(parents=True)
    (tmp_path / "out.partial" / "train.bin").write_bytes(b"foreign")
    (tmp_path / "out.partial" / "tokenizer.json").write_text("{}")
    prepare(many_chunks, tmp_path / "out", Settings("bpe:300"))
    prepare(many_chunks, tmp_path / "whole", Settings("bpe:300"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"plan": {}}', '{"plan": {}, "progress": {"train": 1}}']
)
def test_a_damaged_journal(tmp_path, many_chunks, text):
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "progress.json").write_text(text)
    with pytest.raises(DataError, match=r"progress\.json is damaged: use --restart"):
        prepare(many_chunks, tmp_path / "out", Settings("bytes"))
    prepare(many_chunks, tmp_path / "out", Settings("bytes"), restart=True)


def test_odd_places(tmp_path, many_chunks, monkeypatch):
    with pytest.raises(DataError, match="name another --out"):
        prepare(many_chunks, Path("/"), Settings("bytes"))
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be written"):
        prepare(many_chunks, tmp_path / "file" / "out", Settings("bytes"))
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    prepare(many_chunks, tmp_path / "link", Settings("bytes"))
    assert yf.TokenStore.open(tmp_path / "real").meta is not None
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    prepare(many_chunks, Path("deep/er"), Settings("bytes"))
    assert yf.TokenStore.open(tmp_path / "here" / "deep" / "er").meta is not None


def test_a_limit_on_file_size_loses_nothing(tmp_path):
    """A real failing write, with data still buffered: one clear line, and it goes on afterwards."""
    (tmp_path / "a.txt").write_text("words " * 20_000)
    yurii = Path(sys.executable).with_name("yurii")
    options = f"--tokenizer bytes --val-fraction 0 --workers 1 --out '{tmp_path / 'out'}'"
    command = f"'{yurii}' prepare text '{tmp_path / 'a.txt'}' {options}"
    limited = f"ulimit -f 64; {command}"
    failed = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False)
    assert failed.returncode == 2, failed.stderr
    assert "cannot be written" in failed.stderr
    assert failed.stderr.count("\n") == 1
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    assert len(yf.TokenStore.open(tmp_path / "out", verify=True).train) == 120_001


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
