"""Checkpoints of a divided model: written by all, read by anybody, and refused if damaged."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.launcher import FORKS, yurii
from tests.runs.test_checkpoint import flip_middle
from tests.training.runs import (
    SECONDS,
    command,
    file_number,
    losses,
    metrics,
    outcome,
    small,
    tales,
    wait_for,
)
from tests.training.teams import SignalAt, divided, free_port, take_place, team
from yuriiformer.cli.main import main
from yuriiformer.errors import CheckpointError, ModelFileError, RunError
from yuriiformer.files import read_json
from yuriiformer.model import tensor_files
from yuriiformer.model.files import load_model
from yuriiformer.model.tensor_files import TensorFiles
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.runs.loading import open_model
from yuriiformer.training.session import train

_homes: list[tempfile.TemporaryDirectory] = []


def stop_at(
    rank: int, size: int, port: int, out: Path, kind: str, group: int | None, stop: int, steps: int
) -> None:
    """In a warm process: begin or resume a run, and stop it as a signal would."""
    take_place(rank, size, port)
    config = divided(small(steps=steps), kind, group)
    train(config, tales_at(out), out, resume=True, listener=lambda *_: SignalAt(stop - 1))


def tales_at(out: Path) -> Path:
    """The data, which the process of the tests has prepared."""
    return Path((out.parent / "data").read_text())


@cache
def sharded_run() -> Path:
    """Stopped at step 7 by two processes that share the model; other tests only copy it."""
    _homes.append(tempfile.TemporaryDirectory(prefix="yurii-sharded-"))
    home = Path(_homes[-1].name)
    (home / "data").write_text(str(tales()))
    team(2, stop_at, home / "run", "fsdp", None, 7, 8)
    return home / "run"


@pytest.fixture
def stopped(tmp_path) -> Path:
    return Path(shutil.copytree(sharded_run(), tmp_path / "run"))


def go_on(out: Path) -> list[str]:
    said: list[str] = []
    assert train(small(), tales(), out, resume=True, say=said.append).outcome == "finished"
    return said


def test_the_files_of_a_checkpoint(stopped):
    """Each process wrote its rows; together they are the tensors, whoever asks for which rows."""
    last = stopped / "checkpoints" / "last"
    names = {path.name for path in last.iterdir()}
    shards = {f"{k}-{n}-of-2.safetensors" for k in ("model", "optimizer") for n in (1, 2)}
    indices = {"model.index.json", "optimizer.index.json"}
    assert names == {*shards, *indices, "model.json", "manifest.json", "state.json"}
    assert set(read_checkpoint(last).manifest["files"]) == names - {"manifest.json"}
    files, model = TensorFiles(last, "model"), load_model(last)
    for name, tensor in model.state_dict().items():
        rows = len(tensor)
        for low, high in ((0, rows), (0, rows // 3), (rows // 3, rows), (rows, rows)):
            assert torch.equal(files.rows(name, low, high), tensor[low:high]), name


def test_one_process_resumes_and_ends_where_it_would_have(stopped, tmp_path):
    said = go_on(stopped)
    assert "resuming from step 7" in said
    assert any("parallel was fsdp 1 x 2 and is now ddp" in text for text in said)
    train(small(), tales(), tmp_path / "one")
    for found, expected in zip(losses(stopped), losses(tmp_path / "one"), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    # From now on one process writes: one file, as ever.
    assert (stopped / "checkpoints" / "last" / "model.safetensors").is_file()


def test_other_commands_open_it_as_any_model(stopped, tmp_path):
    loaded = open_model(stopped)
    assert loaded.about["sha256"] == open_model(stopped / "checkpoints" / "best").about["sha256"]
    for words in (
        ["sample", stopped, "--prompt", "Once", "--max-new-tokens", "3"],
        ["evaluate", stopped],
        ["export", stopped, tmp_path / "export"],
        ["trace", stopped, "--out", tmp_path / "trace"],
    ):
        done = yurii(words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    again = open_model(tmp_path / "export").model.state_dict()
    for name, tensor in loaded.model.state_dict().items():
        assert torch.equal(again[name], tensor)


@pytest.mark.parametrize("kind", ["model", "optimizer"])
def test_a_flipped_byte_is_named_and_the_one_before_taken(stopped, kind):
    flip_middle(stopped / "checkpoints" / "last" / f"{kind}-2-of-2.safetensors")
    said = go_on(stopped)
    assert any(f"{kind}-2-of-2.safetensors is damaged" in text for text in said)
    assert "resuming from step 6" in said


def test_a_missing_shard(stopped):
    (stopped / "checkpoints" / "last" / "model-1-of-2.safetensors").unlink()
    with pytest.raises((CheckpointError, ModelFileError), match=r"1-of-2\.safetensors is missing"):
        open_model(stopped / "checkpoints" / "last")
    said = go_on(stopped)
    assert any("model-1-of-2.safetensors is missing; going back to last.pre" in t for t in said)


def test_shards_of_two_checkpoints(stopped):
    """Each of them is whole, but they are not of one step."""
    last, other = (stopped / "checkpoints" / name for name in ("last", "last.previous"))
    shutil.copy(other / "model-2-of-2.safetensors", last / "model-2-of-2.safetensors")
    with pytest.raises(CheckpointError, match="is of another checkpoint: of step 6, not 7"):
        read_checkpoint(last)
    (last / "manifest.json").unlink()  # as a model folder
    with pytest.raises(ModelFileError, match=r"2-of-2\.safetensors is damaged or of another"):
        load_model(last)
    said = go_on(stopped)
    assert "resuming from step 6" in said


def test_both_damaged_is_an_error(stopped):
    for name in ("last", "last.previous"):
        flip_middle(stopped / "checkpoints" / name / "model-1-of-2.safetensors")
    with pytest.raises(RunError, match=r"no whole checkpoint .*model-1-of-2.safetensors is dam"):
        go_on(stopped)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda index: index["files"].pop(), "do not make up its shape"),
        (lambda index: index["tensors"].popitem(), "no tensor"),
        (lambda index: index["files"][0].update(name="../../x"), "name"),
    ],
)
def test_an_index_that_was_edited(stopped, change, problem):
    """Hashes made to fit: what it says is still checked."""
    import json

    from yuriiformer.files import sha256

    last = stopped / "checkpoints" / "last"
    index = json.loads((last / "model.index.json").read_text())
    change(index)
    (last / "model.index.json").write_text(json.dumps(index))
    model = json.loads((last / "model.json").read_text())
    model["weights_sha256"] = sha256(last / "model.index.json")
    (last / "model.json").write_text(json.dumps(model))
    with pytest.raises(ModelFileError, match=problem):
        load_model(last)


def begin_from(rank: int, size: int, port: int, data: Path, model: Path, out: Path) -> None:
    take_place(rank, size, port)
    config = divided(small(steps=3).with_(context=48), "fsdp")
    train(config, data, out, init_from=model)


@pytest.mark.slow
def test_a_divided_run_begins_from_a_divided_model(tmp_path):
    """With a longer context: of the positions, the rows that there are come over. The loss before
    is that of the other model, divided like this one."""
    team(3, begin_from, tales(), sharded_run(), tmp_path / "many")
    alone = small(steps=3).with_(context=48)
    train(alone, tales(), tmp_path / "one", init_from=sharded_run())
    told = [read_json(tmp_path / name / "config.json")["init"] for name in ("many", "one")]
    assert told[0].pop("loss_before") == pytest.approx(told[1].pop("loss_before"), abs=1e-5)
    assert told[0] == told[1]
    for found, expected in zip(losses(tmp_path / "many"), losses(tmp_path / "one"), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.slow
def test_resumed_by_other_numbers_and_kinds(tmp_path):
    """1, FSDP 2, DDP 2, FSDP 4 (twice two), FSDP 3, and 1 again: one run."""
    steps, out = 36, tmp_path / "out"
    train(small(steps=steps), tales(), tmp_path / "one")
    (tmp_path / "data").write_text(str(tales()))
    train(small(steps=steps), tales(), out, listener=lambda *_: SignalAt(4))
    for size, kind, group, stop in (
        (2, "fsdp", None, 11),
        (2, "ddp", None, 16),
        (4, "fsdp", None, 21),
        (4, "fsdp", 2, 26),
        (3, "fsdp", None, 31),
    ):
        team(size, stop_at, out, kind, group, stop, steps)
        assert read_checkpoint(out / "checkpoints" / "last").step == stop
    train(small(steps=steps), tales(), out, resume=True)
    for found, expected in zip(losses(out), losses(tmp_path / "one"), strict=True):
        assert found == pytest.approx(expected, abs=1e-5)
    assert metrics(out)[:6] == metrics(tmp_path / "one")[:6]  # one process: to the bit


def train_on_full_disk(
    rank: int, size: int, port: int, data: Path, out: Path, beside: bool, first: int
) -> None:
    """For the second process the disk is full when it writes its n-th file."""
    take_place(rank, size, port)
    real, files, said = tensor_files.save_file, 0, []

    def save_file(*given):
        nonlocal files
        files += 1
        if rank == 1 and files == first:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*given)

    tensor_files.save_file = save_file
    config = divided(small(), "fsdp").with_(save_beside=beside)
    assert train(config, data, out, say=said.append).outcome == "finished"
    if rank == 0:
        out.with_name("said").write_text("\n".join(said))


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True])
def test_a_disk_that_is_full_for_one_process(tmp_path, beside):
    """No process takes the checkpoint for whole. It is said once, and the run ends in the same bits
    as without."""
    for name, first in (("whole", 99), ("out", 5)):  # the file of best, two of last, best, last
        team(2, train_on_full_disk, tales(), tmp_path / name, beside, first)
        said = (tmp_path / "said").read_text()
        assert said.count("last could not be written: [Errno 28]") == (first == 5), said
        assert said.count("the checkpoint before it stands") == (first == 5), said
    checkpoints = tmp_path / "out" / "checkpoints"
    assert read_checkpoint(checkpoints / "last").step == 8
    assert read_checkpoint(checkpoints / "last.previous").step == 3
    assert outcome(tmp_path / "out") == outcome(tmp_path / "whole")


def give_command(rank: int, size: int, port: int, words: list[str], log: Path) -> None:
    import sys

    take_place(rank, size, port)
    sys.stdout = sys.stderr = log.with_suffix(f".{rank}").open("a", buffering=1)
    code = main(words)
    sys.exit(code)


class Pair:
    """Two warm processes that train together, to be killed."""

    def __init__(self, words: list[str], log: Path) -> None:
        port = free_port()
        given = [(rank, 2, port, words, log) for rank in range(2)]
        self.logs = [log.with_suffix(f".{rank}") for rank in range(2)]
        self.each = [FORKS.Process(target=give_command, args=each) for each in given]
        for process in self.each:
            process.start()

    def poll(self) -> int | None:
        return self.each[0].exitcode

    def kill(self, ranks: tuple[int, ...]) -> None:
        for rank in ranks:
            self.each[rank].kill()

    def finish(self) -> None:
        assert self.end() == [0, 0], "".join(path.read_text() for path in self.logs)

    def end(self) -> list[int | None]:
        """Wait; who loses the other does not train on alone."""
        for process in self.each:
            process.join(SECONDS)
            assert process.exitcode is not None, "it waits for the dead"
        return [process.exitcode for process in self.each]


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path):
    """kill -9 of one process or of both, while saving beside the training or not: the bits of a run
    that never was interrupted."""
    steps, kills, draw = 60, 0, random.Random(0)
    whole, out, log = tmp_path / "whole", tmp_path / "out", tmp_path / "log"
    words = command(out, "--resume", "--parallel", "fsdp", steps=steps)[3:]
    began = time.monotonic()
    undisturbed = command(whole, "--parallel", "fsdp", "--save-beside", steps=steps)[3:]
    Pair(undisturbed, tmp_path / "whole.log").finish()
    seconds = time.monotonic() - began
    path = out / "metrics.jsonl"
    while kills < 10:
        before = file_number(path)  # the file is written anew when a run resumes
        pair = Pair([*words, *["--save-beside"] * (kills % 2)], log)
        wait_for(lambda b=before, p=pair: file_number(path) not in (None, b), pair)
        time.sleep(draw.uniform(0.0, 0.2 * seconds))
        pair.kill(((0,), (1,), (0, 1))[kills % 3])
        if -signal.SIGKILL in pair.end():
            kills += 1
        else:  # it had come to its end
            assert outcome(out) == outcome(whole)
            shutil.rmtree(out)
    Pair(words, log).finish()
    assert outcome(out) == outcome(whole)
    assert [record["step"] for record in metrics(out)] == list(range(steps + 1))
