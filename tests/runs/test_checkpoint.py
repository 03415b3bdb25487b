"""Checkpoints: at every instant one is whole, and what is not whole is told apart from it."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from tests.training.runs import command, finish, metrics, outcome, small, tales
from yuriiformer import files
from yuriiformer.errors import CheckpointError, RunError, YuriiError
from yuriiformer.runs import checkpoint
from yuriiformer.runs.checkpoint import newest_whole, read_checkpoint, write_checkpoint
from yuriiformer.training import state
from yuriiformer.training.session import Result, train

FILES = ("manifest.json", "model.json", "model.safetensors", "optimizer.safetensors", "state.json")


class StopError(Exception):
    """Stands for whatever may stop a save."""


class StopRun(BaseException):
    """Stands for whatever may stop a run; an ordinary error would only cost it the listener."""


class StopAt:
    """A listener that ends a run, without saving, once a step is done."""

    def __init__(self, step: int) -> None:
        self.step = step

    def record(self, record):
        if record["step"] == self.step:
            raise StopRun

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """``whole``: a run of 8 steps. ``begun``: the same, ended after 7, with ``last`` of step 6."""
    home = tmp_path_factory.mktemp("runs")
    train(small(), tales(), home / "whole")
    with pytest.raises(StopRun):
        train(small(), tales(), home / "begun", listener=lambda *_: StopAt(7))
    return home


@pytest.fixture
def begun(runs, tmp_path) -> Path:
    """A copy of the run that is not finished."""
    shutil.copytree(runs / "begun", tmp_path / "out")
    return tmp_path / "out"


def go_on(out: Path) -> tuple[Result, list[str]]:
    """The rest of a run, and what was said."""
    said: list[str] = []
    return train(small(), tales(), out, resume=True, say=said.append), said


def flip(position: int, bit: int) -> Callable[[Path], None]:
    """One bit at a position (from the end if negative)."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[position % len(data)] ^= 1 << bit
        path.write_bytes(data)

    return damage


def flip_middle(path: Path) -> None:
    flip(path.stat().st_size // 2, 3)(path)


def cut(keep: Callable[[int], int]) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, keep(path.stat().st_size))


DAMAGE = {
    "empty": cut(lambda size: 0),
    "half": cut(lambda size: size // 2),
    "two bytes short": cut(lambda size: size - 2),  # the last of the JSON files is a line's end
    "first bit": flip(0, 0),
    "header": flip(9, 5),
    "middle": flip_middle,
    "last bit": flip(-1, 7),
    "missing": Path.unlink,
}


def test_the_files_are_those_that_are_tested(begun):
    checkpoints = begun / "checkpoints"
    assert read_checkpoint(checkpoints / "last").step == 6
    assert read_checkpoint(checkpoints / "last.previous").step == 3
    assert sorted(p.name for p in (checkpoints / "last").iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_refused_by_name(begun, name, how):
    file = begun / "checkpoints" / "last" / name
    DAMAGE[how](file)
    with pytest.raises(CheckpointError) as error:
        read_checkpoint(file.parent)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_every_byte_of_the_manifest(begun):
    """It vouches for the rest: no byte of it may change unseen."""
    path = begun / "checkpoints" / "last" / "manifest.json"
    good = path.read_bytes()
    for position in range(len(good)):
        for bit in (position % 8, (position + 3) % 8):
            path.write_bytes(good)
            flip(position, bit)(path)
            with pytest.raises(CheckpointError, match=r"manifest\.json is damaged"):
                read_checkpoint(path.parent)
    path.write_bytes(good)
    read_checkpoint(path.parent)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["half", "middle", "missing"])
def test_a_damaged_one_is_stepped_over(runs, begun, name, how):
    """The run goes on from the one before, says so, and ends with the same bits."""
    DAMAGE[how](begun / "checkpoints" / "last" / name)
    result, said = go_on(begun)
    assert result.outcome == "finished"
    assert [text for text in said if name in text and "last.previous, step 3" in text], said
    assert "going on from step 3" in said
    assert outcome(begun)["metrics"] == outcome(runs / "whole")["metrics"]
    assert outcome(begun)["final"] == outcome(runs / "whole")["final"]
    assert outcome(begun)["best"] == outcome(runs / "whole")["best"]


def test_both_damaged_are_refused_by_name(begun):
    flip_middle(begun / "checkpoints" / "last" / "optimizer.safetensors")
    (begun / "checkpoints" / "last.previous" / "state.json").unlink()
    before = metrics(begun)
    with pytest.raises(RunError, match=r"no whole checkpoint.*last/optim.*last\.previous/state"):
        go_on(begun)
    assert metrics(begun) == before


def test_only_one_there_and_damaged(begun):
    shutil.rmtree(begun / "checkpoints" / "last.previous")
    flip_middle(begun / "checkpoints" / "last" / "state.json")
    with pytest.raises(RunError, match=r"no whole checkpoint.*last/state\.json is damaged"):
        go_on(begun)


class Bomb:
    """A pickle that makes a folder when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


def as_pickle(bomb: Bomb, path: Path) -> None:
    path.write_bytes(pickle.dumps(bomb))


def as_torch(bomb: Bomb, path: Path) -> None:
    torch.save({"model": bomb}, path)


def sign(folder: Path) -> None:
    """Make a checkpoint's manifest agree with what its files now hold."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in manifest["files"]:
        file = folder / name
        manifest["files"][name] = {"bytes": file.stat().st_size, "sha256": files.sha256(file)}
    del manifest["sha256"]
    manifest["sha256"] = files.sha256_of_json(manifest)
    files.write_json(path, manifest)


@pytest.mark.parametrize("write", [as_pickle, as_torch])
def test_the_bomb_is_one(tmp_path, write):
    write(Bomb(tmp_path / "marker"), tmp_path / "bomb")
    if write is as_pickle:
        pickle.loads((tmp_path / "bomb").read_bytes())
    else:
        torch.load(tmp_path / "bomb", weights_only=False)
    assert (tmp_path / "marker").exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("write", [as_pickle, as_torch])
@pytest.mark.parametrize("signed", [False, True])
def test_nothing_is_ever_executed(begun, tmp_path, name, write, signed):
    shutil.rmtree(begun / "checkpoints" / "last.previous")
    last = begun / "checkpoints" / "last"
    write(Bomb(tmp_path / "marker"), last / name)
    if signed and name != "manifest.json":
        sign(last)
        read_checkpoint(last)  # its hashes are right
    if signed and name == "model.json":
        go_on(begun)  # a copy for whoever loads the model: a run that goes on does not read it
    else:
        with pytest.raises((RunError, CheckpointError)) as error:
            go_on(begun)
        assert str(last) in str(error.value)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "marker").exists()


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
        if frame.f_code.co_filename not in places:
            return None
        if event == "line" and not busy:
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
    """``last`` is damaged, and the run goes on from the one before: until something newer is whole
    that one must stay."""
    home, names, seen = begun / "checkpoints", set(), []
    flip_middle(home / "last" / "state.json")

    def look() -> None:
        nonlocal names
        now = {(p, p.stat().st_ino, p.stat().st_size) for p in home.glob("last*/*")}
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

    def save_file(self, tensors, path: Path) -> None:
        self.saves += 1
        self.real(tensors, path)
        if self.first <= self.saves <= self.last:
            os.truncate(path, path.stat().st_size // 2)
            raise self.error

    real = staticmethod(state.save_file)
    error: Exception = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("how", ["seen before", "error", "safetensors' error"])
def test_a_full_disk_in_mid_training(tmp_path, runs, monkeypatch, how):
    """The run goes on, says so, the earlier checkpoint stands, and a later one is written."""
    out, said, stood = tmp_path / "out", [], []
    config = small(save_every=2)  # saves after 2, 4, 6 and 8; the one after 4 fails

    def say(text: str) -> None:
        said.append(text)
        if "training goes on" in text:
            stood.append(newest_whole(out / "checkpoints"))

    if how == "seen before":  # looks: at first, best 0, last 2, best 4, last 4
        full = Full(5, 5)
        monkeypatch.setattr(shutil, "disk_usage", full.usage)
    else:
        full = Full(2, 2)
        if how != "error":
            full.error = SafetensorError("I/O error: No space left on device (os error 28)")
        monkeypatch.setattr(state, "save_file", full.save_file)
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
        patch.setattr(state, "save_file", Full(3, 9).save_file)
        with pytest.raises(CheckpointError, match=r"last could not be written.*No space left"):
            train(small(), tales(), out)
    assert read_checkpoint(out / "checkpoints" / "last").step == 6
    train(small(), tales(), out, resume=True)
    assert outcome(out) == outcome(runs / "whole")


def test_writes_that_really_fail(tmp_path):
    """A limit on the size of files, lower than the weights': a line for each, no traceback."""
    words = command(tmp_path / "out", steps=4)
    limited = ["bash", "-c", 'ulimit -f 64; exec "$0" "$@"', *words]
    done = finish(limited, code=2)
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if "could not be written" in line]
    assert [line.split()[1].rpartition("/")[2] for line in lines[:-1]] == ["best", "last", "best"]
    assert all(line.endswith("training goes on") for line in lines[:-1])
    assert lines[-1].startswith("yurii: checkpoint")
    assert [record["step"] for record in metrics(tmp_path / "out")] == [0, 1, 2, 3, 4]
    finish([*words, "--resume"])
    assert read_checkpoint(tmp_path / "out" / "checkpoints" / "final").step == 4


def test_what_is_refused_is_the_users_to_mend(begun):
    with pytest.raises(YuriiError, match="there is no checkpoint"):
        read_checkpoint(begun / "checkpoints" / "nowhere")
