"""What goes wrong around a run does not end it, and is said."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import torch

import yuriiformer as yf
from tests.training.corpora import tales
from tests.training.runs import command, started
from tests.training.test_guards import small
from yuriiformer.cli.main import main
from yuriiformer.model import loss as losses
from yuriiformer.model import oracles as registry
from yuriiformer.model.loss import mean_cross_entropy
from yuriiformer.model.oracles import MLP, Attention, check_paper, layer_norm
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.training.initial import fill_vocabulary
from yuriiformer.training.presets import preset


def test_nobody_reading_does_not_stop_it(tmp_path):
    """`yurii train ... 2>&1 | head -1`, as when a terminal goes away."""
    out, pipe = tmp_path / "run", tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader,
        started(command(out, "--eval-every", "1", steps=6), pipe) as run,
    ):
        os.set_blocking(reader.fileno(), True)
        assert b"parameters" in reader.readline()
        reader.close()
        assert run.wait(200) == 0
    assert [r["step"] for r in read_metrics(out / "metrics.jsonl")] == list(range(7))
    assert read_checkpoint(out / "checkpoints" / "final").step == 6


class Failing:
    """A listener whose disk or network has gone."""

    def __init__(self) -> None:
        self.heard = 0

    def record(self, record) -> None:
        self.heard += 1
        if record["step"] == 3:
            raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_listener_that_fails_is_left_out(tmp_path):
    failing, said = Failing(), []
    result = yf.train(
        small(), tales(), tmp_path / "run", listener=lambda *_: failing, say=said.append
    )
    assert result.outcome == "finished"
    assert failing.heard == 4  # steps 0 to 3
    assert [text for text in said if "Failing failed and is left out: " in text]


def test_a_final_that_is_stale_or_damaged_is_written_again(tmp_path):
    out = tmp_path / "run"
    yf.train(small(4), tales(), out)
    final = out / "checkpoints" / "final"
    stale = {path.name: path.read_bytes() for path in final.iterdir()}
    yf.train(small(8), tales(), out, resume=True, allow_changed=["steps"])
    good = (final / "model.safetensors").read_bytes()
    for name, data in stale.items():  # as if killed just before it was replaced
        (final / name).write_bytes(data)
    yf.train(small(8), tales(), out, resume=True)
    assert read_checkpoint(final).step == 8
    assert (final / "model.safetensors").read_bytes() == good
    (final / "model.safetensors").write_bytes(good[:-1])
    yf.train(small(8), tales(), out, resume=True)
    assert (final / "model.safetensors").read_bytes() == good


def test_a_missing_last_is_said(tmp_path):
    out, said = tmp_path / "run", []
    yf.train(small(4), tales(), out)
    (out / "checkpoints" / "last").rename(tmp_path / "gone")
    yf.train(small(4), tales(), out, resume=True, say=said.append)
    assert any("last is missing; going back to last.previous, step 2" in text for text in said)


def test_another_machine_is_said_and_noted(tmp_path):
    import json

    out, said = tmp_path / "run", []
    yf.train(small(2), tales(), out)
    path = out / "config.json"
    config = json.loads(path.read_text())
    config["resolved"]["processes"] = 7
    path.write_text(json.dumps(config))
    yf.train(small(2), tales(), out, resume=True, say=said.append)
    assert any("processes was 7 and is now 1" in text for text in said)
    after = json.loads(path.read_text())
    assert after["resolved"]["processes"] == 1
    assert after["changes"][-1]["fields"] == {"processes": [7, 1]}


def test_torchs_switches_are_put_back(tmp_path):
    threads = torch.get_num_threads()
    config = small(1)
    config = replace(config, machine=replace(config.machine, threads=threads + 1))
    yf.train(config, tales(), tmp_path / "run")
    assert torch.get_num_threads() == threads


def test_a_loss_without_gradients_makes_none(monkeypatch):
    made = []
    real = torch.zeros_like

    def spy(like, *args, **options):
        made.append(tuple(like.shape))
        return real(like, *args, **options)

    monkeypatch.setattr(losses.torch, "zeros_like", spy)
    weight = torch.nn.Parameter(torch.randn(50, 8))
    hidden, targets = torch.randn(20, 8), torch.randint(50, (20,))
    mean_cross_entropy(hidden, weight, targets, 100).backward()
    assert (50, 8) in made
    made.clear()
    with torch.no_grad():
        mean_cross_entropy(hidden, weight, targets, 100)
    assert (50, 8) not in made


class ReadingMLP(MLP):
    """Somebody else's oracle, which looks at its values."""

    def forward(self, Y, context):
        assert Y.abs().max().item() < 1e6
        return super().forward(Y, context)


def test_an_oracle_that_cannot_be_planned_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(registry, "_PAIRS", dict(registry._PAIRS))
    pair = yf.OraclePair(Attention, ReadingMLP, layer_norm, True, check_paper)
    yf.register_oracles("reading", pair)
    config = small(2)
    config = replace(config, model=replace(config.model, oracles="reading"))
    assert yf.train(config, tales(), tmp_path / "run").outcome == "finished"
    assert main(["train", "--data", str(tales()), "--oracles", "reading", "--dry-run"]) == 2
    assert "cannot be counted without running" in capsys.readouterr().err


def test_a_rare_id_that_comes_late(tmp_path, monkeypatch):
    monkeypatch.setattr("yuriiformer.training.initial.LOOK", 1_000)
    tokens = (np.arange(5_000) % 60).astype("<u2")
    tokens.tofile(tmp_path / "val.bin")
    tokens[4_000] = 200
    tokens.tofile(tmp_path / "train.bin")
    config = fill_vocabulary(preset("tales-tiny", "gd-euler"), yf.TokenStore.open(tmp_path))
    assert config.model.valid_vocab == 201
