"""Checkpoints that are damaged, foreign or malicious."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.training.runs import metrics, outcome, small, tales
from yuriiformer import files
from yuriiformer.errors import CheckpointError, RunError
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.training.session import Result, train

FILES = ("manifest.json", "model.json", "model.safetensors", "optimizer.safetensors", "state.json")


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


@pytest.mark.parametrize(
    ("how", "name"),
    [
        *(("middle", name) for name in FILES),
        *(("half", name) for name in FILES[:1]),
        *(("missing", name) for name in FILES[-2:]),
    ],
)
def test_a_damaged_one_is_stepped_over(runs, begun, name, how):
    """The run resumes from the one before, says so, and ends with the same bits. (That any damage
    of any file is seen, the test above has.)"""
    DAMAGE[how](begun / "checkpoints" / "last" / name)
    result, said = go_on(begun)
    assert result.outcome == "finished"
    assert [text for text in said if name in text and "last.previous, step 3" in text], said
    assert "resuming from step 3" in said
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
        go_on(begun)  # a copy for whoever loads the model: a run that is resumed does not read it
    else:
        with pytest.raises((RunError, CheckpointError)) as error:
            go_on(begun)
        assert str(last) in str(error.value)
        assert "\n" not in str(error.value)
    assert not (tmp_path / "marker").exists()
