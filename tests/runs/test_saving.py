"""Saving: whole at every instant, on full disks too."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors import SafetensorError

from tests.runs.test_checkpoint import flip_middle, go_on
from tests.training.runs import StopAt, command, finish, metrics, outcome, small, tales
from yuriiformer import files
from yuriiformer.errors import CheckpointError, YuriiError
from yuriiformer.files import remove_folder
from yuriiformer.model import tensor_files
from yuriiformer.runs import checkpoint
from yuriiformer.runs.checkpoint import (
    begin_checkpoint,
    finish_checkpoint,
    newest_whole,
    part_of,
    read_checkpoint,
    saying,
)
from yuriiformer.training.session import train


class StopError(Exception):
    """Stands for whatever may stop a save."""


def write_checkpoint(
    folder: Path, write: Callable[[Path], None], about: dict, keep: Path | None = None
) -> None:
    """What `Saver` does to write one."""
    with saying(folder):
        try:
            write(begin_checkpoint(folder))
            finish_checkpoint(folder, about, keep)
        finally:
            remove_folder(part_of(folder))


def tiny(folder: Path, step: int, keep: Path | None) -> None:
    """A checkpoint of two files that say the step."""

    def write(part: Path) -> None:
        for name in ("one", "two"):
            (part / name).write_text(f"{name} {step}")

    write_checkpoint(folder, write, {"step": step}, keep)


@contextmanager
def at_every_line(act: Callable[[], None]) -> Iterator[None]:
    """Call something before each line of whatever writes, moves and removes files."""
    places = tuple(sys.modules[name].__file__ for name in ("shutil", "pathlib", files.__name__))
    places += (read_checkpoint.__code__.co_filename, __file__)
    busy = False

    def trace(frame, event, _):
        nonlocal busy
        if busy or frame.f_code.co_filename not in places:
            return None
        if event == "line":
            busy = True
            try:
                act()
            finally:
                busy = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@pytest.fixture(params=["exchange", "two renames"])
def renames(request, monkeypatch):
    """Linux trades two names in one step; elsewhere there are two. (Without waiting for a disk.)"""
    monkeypatch.setattr(os, "fsync", lambda number: None)
    if request.param == "two renames":
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)
    return request.param


def snapshots(folder: Path, into: Path, save: Callable[[], None]) -> list[Path]:
    """Every state of the folder that a kill before some line of a save would have left."""
    found: list[Path] = []
    contents: dict[Path, bytes | None] = {}

    def copy() -> None:
        nonlocal contents
        now = {p: p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}
        if now != contents:
            contents = now
            found.append(into / str(len(found)))
            shutil.copytree(folder, found[-1])

    with at_every_line(copy):
        save()
    assert len(found) > 8  # the folder, each file, their names
    return found


@pytest.mark.parametrize("before", [[], [3], [3, 6]])
def test_a_whole_one_at_every_instant(tmp_path, monkeypatch, renames, before):
    """Killed before any line of a save: the old or the new is there, and the next save is clean."""
    home, last, keep = tmp_path / "home", "last", "last.previous"
    home.mkdir()
    for step in before:
        tiny(home / last, step, home / keep)
    states = snapshots(home, tmp_path / "states", lambda: tiny(home / last, 9, home / keep))
    monkeypatch.setattr(os, "getpid", lambda: 1)  # the next save is another process's
    seen = []
    for each in states:
        found, problems = newest_whole(each)
        assert not problems
        assert found is not None or not before
        if found is not None:
            seen.append(found.step)
            assert (found.folder / "one").read_text() == f"one {found.step}"
        tiny(each / last, 12, each / keep)
        assert read_checkpoint(each / last).step == 12
        assert {path.name for path in each.iterdir()} <= {last, keep}
    assert set(seen) == {*before[-1:], 9}  # never back to an older one
    assert seen == sorted(seen)


def test_a_whole_one_at_every_instant_after_a_fall_back(begun, renames):
    """``last`` is damaged, and the run resumes from the one before: until something newer is whole
    that one must stay."""
    home, names, seen = begun / "checkpoints", set(), []
    flip_middle(home / "last" / "state.json")

    def look() -> None:
        nonlocal names
        now = {
            (file.path, file.inode(), file.stat().st_size)
            for folder in os.listdir(home)
            if folder.startswith("last")
            for file in os.scandir(home / folder)
        }
        if now != names:
            names = now
            seen.append(newest_whole(home))

    with at_every_line(look):
        go_on(begun)
    assert len(seen) > 20
    assert not [problems for found, problems in seen if found is None]
    assert read_checkpoint(home / "last").step == 8
    assert read_checkpoint(home / "last.previous").step == 6


def test_models_are_replaced_whole_and_without_remains(tmp_path, monkeypatch, renames):
    """The same of ``best``, of which no earlier one is kept."""
    home = tmp_path / "home"
    tiny(home / "best", 3, None)
    states = snapshots(home, tmp_path / "states", lambda: tiny(home / "best", 9, None))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    for each in states:
        if renames == "exchange":
            assert read_checkpoint(each / "best").step in (3, 9)
        tiny(each / "best", 12, None)
        assert read_checkpoint(each / "best").step == 12
        assert [path.name for path in each.iterdir()] == ["best"]


def test_an_error_at_any_line_of_a_save(tmp_path, renames):
    """Not a kill but an exception, which cleans up behind itself."""
    home, left, line = tmp_path / "home", 0, 0
    for step in (3, 6):
        tiny(home / "last", step, home / "last.previous")

    def count() -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StopError

    step = 6
    for line in range(1, 10_000, 3):
        left = line
        try:
            with at_every_line(count):
                tiny(home / "last", step + 1, home / "last.previous")
            break
        except StopError:
            found, problems = newest_whole(home)
            assert not problems
            assert found is not None
            assert found.step in (step, step + 1)
            step = found.step
    assert line > 50
    assert read_checkpoint(home / "last").step == step + 1


def test_all_is_on_the_disk_before_it_takes_its_name(tmp_path, monkeypatch):
    """Else a power cut could leave a ``last`` of empty files."""
    synced, checked = set(), []
    monkeypatch.setattr(os, "fsync", lambda number: synced.add(os.fstat(number).st_ino))
    real = files.replace_folder

    def replace(folder: Path, new: Path, keep: Path | None) -> None:
        written = [new, *new.iterdir()]
        assert len(written) == 4
        assert {path.stat().st_ino for path in written} <= synced
        synced.clear()
        real(folder, new, keep)
        assert folder.parent.stat().st_ino in synced
        checked.append(folder)

    monkeypatch.setattr(checkpoint, "replace_folder", replace)
    for step in (3, 6, 9):
        tiny(tmp_path / "last", step, tmp_path / "last.previous")
    assert len(checked) == 3


Usage = namedtuple("Usage", "total used free")


def test_too_little_disk_is_seen_before_training(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 2**40 - 2**20, 2**20))
        with pytest.raises(CheckpointError, match=r"too little disk.*needs .* MiB more, and 1\.0"):
            train(small(), tales(), tmp_path / "out", listener=lambda *_: StopAt(0))
    assert not list((tmp_path / "out" / "checkpoints").iterdir())
    train(small(), tales(), tmp_path / "out", resume=True)


class Full:
    """A disk that is full while saves number ``first`` to ``last`` are made."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last, self.saves = first, last, 0

    def usage(self, path: Path) -> Usage:
        self.saves += 1  # the first is the look before training
        full = self.first <= self.saves <= self.last
        return Usage(2**40, 0, 2**20 if full else 2**39)

    def save_file(self, tensors, path: Path, metadata=None) -> None:
        last = path.name.startswith("optimizer")  # of a checkpoint to resume from
        self.saves += last
        self.real(tensors, path, metadata)
        if last and self.first <= self.saves <= self.last:
            os.truncate(path, path.stat().st_size // 2)
            raise self.error

    real = staticmethod(tensor_files.save_file)
    error: Exception = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("how", ["seen before", "error", "safetensors' error"])
def test_a_full_disk_in_mid_training(tmp_path, runs, monkeypatch, how):
    """The run resumes, says so, the earlier checkpoint stands, and a later one is written."""
    out, said, stood = tmp_path / "out", [], []
    config = small(save_every=2)  # saves after 2, 4, 6 and 8; the one after 4 fails

    def say(text: str) -> None:
        said.append(text)
        if "training continues" in text:
            stood.append(newest_whole(out / "checkpoints"))

    if how == "seen before":  # looks: at first, best 0, last 2, best 4, last 4
        full = Full(5, 5)
        monkeypatch.setattr(shutil, "disk_usage", full.usage)
    else:
        full = Full(2, 2)
        if how != "error":
            full.error = SafetensorError("I/O error: No space left on device (os error 28)")
        monkeypatch.setattr(tensor_files, "save_file", full.save_file)
    result = train(config, tales(), out, say=say)
    assert result.outcome == "finished"
    failed = [text for text in said if "the checkpoint before it stands" in text]
    assert len(failed) == 1, said
    assert str(out / "checkpoints" / "last") in failed[0]
    assert [(found.step, problems) for found, problems in stood] == [(2, [])]
    assert read_checkpoint(out / "checkpoints" / "last").step == 8
    assert read_checkpoint(out / "checkpoints" / "last.previous").step == 6
    assert outcome(out) == outcome(runs / "whole")


def test_at_the_end_a_full_disk_is_an_error(tmp_path, runs, monkeypatch):
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(tensor_files, "save_file", Full(3, 9).save_file)
        with pytest.raises(CheckpointError, match=r"last could not be written.*No space left"):
            train(small(), tales(), out)
    assert read_checkpoint(out / "checkpoints" / "last").step == 6
    train(small(), tales(), out, resume=True)
    assert outcome(out) == outcome(runs / "whole")


def test_writes_that_really_fail(tmp_path):
    """A limit on the size of files, lower than the weights': a line for each, no traceback."""
    words = command(tmp_path / "out", steps=4)
    done = finish(words, code=2, file_bytes=64 * 1024)
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if "could not be written" in line]
    assert [line.split()[1].rpartition("/")[2] for line in lines[:-1]] == ["best", "last", "best"]
    assert all(line.endswith("training continues") for line in lines[:-1])
    assert lines[-1].startswith("yurii: checkpoint")
    assert [record["step"] for record in metrics(tmp_path / "out")] == [0, 1, 2, 3, 4]
    finish([*words, "--resume"])
    assert read_checkpoint(tmp_path / "out" / "checkpoints" / "final").step == 4


def test_what_is_refused_is_the_users_to_mend(begun):
    with pytest.raises(YuriiError, match="there is no checkpoint"):
        read_checkpoint(begun / "checkpoints" / "nowhere")
