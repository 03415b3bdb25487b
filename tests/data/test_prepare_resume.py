"""A preparation that is stopped: nothing lost, never half finished, the same bytes in the end."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import yuriiformer as yf
from tests.data.corpus import DOCUMENTS, contents, files, write_jsonl
from yuriiformer.data import partial
from yuriiformer.data import prepare as module
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.errors import DataError


def test_what_exists_is_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(DataError, match="exists already"):
        prepare(files(write_jsonl(tmp_path / "a.jsonl")), tmp_path / "out", Settings("bytes"))
    assert (tmp_path / "out" / "mine").read_text() == "x"


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
    assert seen[0] == 21  # it did resume, and did not begin again
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
        with pytest.raises(DataError, match=r"No space left on device.*resumes"):
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
    total = sum(1 for _ in files(source).chunks())
    # Until enough kills have hit, half of them in the middle of the writing.
    while len(journals) < wanted or sum(0 < n < total for n in journals) < wanted // 2:
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
from yuriiformer.data.paper_corpora import Hub
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
        prepare(other, tmp_path / "out", Settings("bytes", split="documents"))
    prepare(many_chunks, tmp_path / "out", Settings("bytes"))


def test_stopped_before_its_journal(tmp_path, many_chunks):
    (tmp_path / "out.partial").mkdir()
    for name in ("lock", "train.bin", "progress.json.part"):
        (tmp_path / "out.partial" / name).touch()
    prepare(many_chunks, tmp_path / "out", Settings("bpe:300"))
    prepare(many_chunks, tmp_path / "whole", Settings("bpe:300"))
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"plan": {}}', '{"plan": {}, "progress": {"train": 1}}']
)
def test_a_damaged_journal(tmp_path, many_chunks, text):
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "lock").touch()
    (tmp_path / "out.partial" / "progress.json").write_text(text)
    with pytest.raises(DataError, match=r"progress\.json is damaged: .*: use --restart"):
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
    """A real failing write, with data still buffered: one clear line, and it resumes afterwards."""
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
