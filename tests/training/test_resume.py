"""Resuming: the same run, or a clear line; nothing is written before the checkpoint has loaded."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import pytest

from tests.training.runs import small, tales
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import DataError, NonFiniteError, RunError
from yuriiformer.methods.rule import Rule
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.training.session import train

EDITED = "X = X + attn(X)\nX = X + {0} * mlp(X)"


def own(factor: str) -> Rule:
    return Rule("edited", EDITED.format(factor))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run of two steps, and the data it has to itself."""
    home = tmp_path_factory.mktemp("resume")
    shutil.copytree(tales(), home / "data")
    train(small(own("2"), steps=2, eval_every=2), home / "data", home / "run")
    return home


@pytest.fixture
def home(begun, tmp_path):
    shutil.copytree(begun, tmp_path / "home")
    return tmp_path / "home"


def resume(home, config=None, **options):
    said: list[str] = []
    config = config or small(own("2"), steps=2, eval_every=2)
    train(config, home / "data", home / "run", resume=True, say=said.append, **options)
    return said


@pytest.mark.parametrize(
    ("field", "value"), [("n_layer", 5), ("d_model", 64), ("rule", own("3")), ("gelu", "tanh")]
)
def test_fields_of_the_model_never_change(home, field, value):
    before = (home / "run" / "config.json").read_bytes()
    config = small(own("2"), steps=2, eval_every=2)
    config = replace(config, model=replace(config.model, **{field: value}))
    with pytest.raises(RunError, match=f"give the same {field}") as error:
        resume(home, config, allow_changed=[field])
    assert len(str(error.value)) < 500  # no list of tensors
    assert (home / "run" / "config.json").read_bytes() == before
    resume(home)  # as if nothing had been


def test_an_edited_rule_says_what_changed(home):
    with pytest.raises(RunError, match=r"rule edited \(equations .*2 \* mlp.* -> .*3 \* mlp"):
        resume(home, small(own("3"), steps=2, eval_every=2))


def test_nothing_is_written_where_the_checkpoint_does_not_load(home):
    before = (home / "run" / "config.json").read_bytes()
    config = small(own("2"), steps=2, eval_every=2)
    other = replace(config, recipe=replace(config.recipe, matrices="adamw"))
    with pytest.raises(RunError):
        resume(home, other, allow_changed=["matrices"])
    assert (home / "run" / "config.json").read_bytes() == before
    longer = replace(config, recipe=replace(config.recipe, steps=3))
    resume(home, longer, allow_changed=["steps"])
    assert json.loads((home / "run" / "config.json").read_text())["changes"][-1]["step"] == 2


def test_an_edited_configuration_is_noticed(home):
    path = home / "run" / "config.json"
    data = json.loads(path.read_text())
    data["config"]["recipe"]["muon_lr"] = 0.5
    path.write_text(json.dumps(data))
    config = small(own("2"), steps=2, eval_every=2)
    edited = replace(config, recipe=replace(config.recipe, muon_lr=0.5))
    with pytest.raises(RunError, match=r"config\.json was edited.*muon_lr 0\.02 -> 0\.5"):
        resume(home, edited)
    resume(home, edited, allow_changed=["muon_lr"])


def test_a_flipped_bit_in_the_records_does_not_stop_a_run(home):
    path = home / "run" / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"x" + lines[1][1:], *lines[2:]]))
    [said] = [each for each in resume(home) if "metrics.jsonl" in each]
    assert "line 2 was damaged and is left out" in said
    assert [record["step"] for record in read_metrics(path)] == [0, 2]


def test_data_that_were_altered_are_noticed(home, tmp_path):
    path = home / "data" / "train.bin"
    os.utime(path)  # touched, but the same: fine
    TokenStore.open(home / "data").check_unchanged()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\x05")
    os.utime(path, ns=(2**62, 2**62))  # later than meta.json, whatever the clock's steps
    for begin in (lambda: resume(home), lambda: train(small(), home / "data", tmp_path / "new")):
        with pytest.raises(DataError, match=r"train\.bin was altered"):
            begin()
    assert not (tmp_path / "new").exists()


def test_data_that_are_cut_while_they_are_read(home):
    import numpy as np

    store = TokenStore.open(home / "data")
    size = (home / "data" / "train.bin").stat().st_size
    os.truncate(home / "data" / "train.bin", size // 2)
    with pytest.raises(DataError, match=r"train\.bin was cut while it was in use"):
        store.sequences("train", np.array([0]), 8)


def test_a_run_whose_folder_is_taken_away(tmp_path):
    """What it learned is saved where the folder was."""
    out = tmp_path / "run"
    moved: list[str] = []
    said: list[str] = []

    def listener(*_):
        class Moves:
            def record(self, record):
                if record["step"] == 2 and not moved:
                    moved.append(str(shutil.move(out, tmp_path / "elsewhere")))

            def close(self):
                pass

        return Moves()

    config = small(own("2"), steps=4, eval_every=0, save_every=1)
    train(config, tales(), out, listener=listener, say=said.append)
    assert moved
    assert any("was moved or removed" in each for each in said)
    assert read_checkpoint(out / "checkpoints" / "final").step == 4
    train(config, tales(), out, resume=True)


def test_nothing_is_said_of_a_checkpoint_that_does_not_exist(tmp_path):
    config = small(Rule("huge", "X = 1e30 * X * attn(X) * attn(X)\nX = X + mlp(X)"), steps=2)
    with pytest.raises(NonFiniteError, match="no checkpoint was saved before it"):
        train(config, tales(), tmp_path / "run")
