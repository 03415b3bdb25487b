"""A run that begins with another model's weights: fine-tuning and upcycling."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import yuriiformer as yf
from tests.launcher import yurii
from tests.training.corpora import tales as other_tokens
from tests.training.runs import (
    command,
    finish,
    losses,
    metrics,
    outcome,
    small,
    started,
    tales,
    wait_for,
    weights,
)
from yuriiformer.errors import ConfigError, RunError
from yuriiformer.training.session import train

GD = "gd-lie-trotter"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A run of gradient descent."""
    out = tmp_path_factory.mktemp("model") / "gd"
    train(small(GD, seed=7), tales(), out)
    return out


def test_the_weights_come_over_and_the_loss_does_not_jump(model, tmp_path):
    said: list[str] = []
    result = train(
        small("nesterov-gated"), tales(), tmp_path / "r", init_from=model, say=said.append
    )
    assert result.initial.loss_before == yf.open_model(model).recorded
    assert metrics(tmp_path / "r")[0]["val_loss"] == result.initial.loss_before
    assert "(+0.0000)" in " ".join(said)
    assert said[1] == "15 tensors came over, 18 are new, 0 were left"
    told = json.loads((tmp_path / "r" / "config.json").read_text())["init"]
    assert told["path"] == str(model)
    assert told["taken"] == result.initial.taken_over.taken
    assert told["loss_before"] == result.initial.loss_before


def test_step_0_is_the_old_model_and_step_1_is_not(model, tmp_path):
    train(small(GD, steps=1), tales(), tmp_path / "r", init_from=model / "checkpoints" / "final")
    old = load_file(model / "checkpoints" / "final" / "model.safetensors")
    begun = load_file(tmp_path / "r" / "checkpoints" / "last.previous" / "model.safetensors")
    ended = load_file(tmp_path / "r" / "checkpoints" / "last" / "model.safetensors")
    assert all(torch.equal(old[name], begun[name]) for name in old)
    assert not any(torch.equal(old[name], ended[name]) for name in old)


def test_killed_and_resumed_without_the_model_gives_the_same_bits(model, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(model, source)
    words = ["--init-from", str(source), "--rule", "nesterov-from-gd"]
    finish(command(tmp_path / "whole", *words, steps=8))
    killed = tmp_path / "killed"
    with started(command(killed, *words, steps=8), tmp_path / "log") as process:
        assert wait_for((killed / "checkpoints" / "last").exists, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    shutil.rmtree(source)
    finish(command(killed, "--resume", steps=8))
    assert outcome(killed) == outcome(tmp_path / "whole")


def test_stopped_before_its_first_checkpoint_it_needs_the_model_again(model, tmp_path):
    out, source = tmp_path / "r", tmp_path / "source"
    shutil.copytree(model, source)
    whole = tmp_path / "whole"
    train(small(GD), tales(), whole, init_from=source)
    train(small(GD), tales(), out, init_from=source)
    shutil.rmtree(out / "checkpoints")
    (out / "metrics.jsonl").unlink()
    shutil.move(source, tmp_path / "moved")
    with pytest.raises(yf.YuriiError, match="there is no model"):
        train(small(GD), tales(), out, resume=True)
    with pytest.raises(RunError, match="is not the model that it was begun from"):
        train(small(GD), tales(), out, resume=True, init_from=whole)
    train(small(GD), tales(), out, resume=True, init_from=tmp_path / "moved")
    assert weights(out) == weights(whole)
    assert losses(out) == losses(whole)


def test_the_same_command_resumes_from_a_checkpoint_too(model, tmp_path):
    """The model is named as it was asked for, not by the run that it belongs to."""
    for source in (model / "checkpoints" / "final", model):
        out = tmp_path / source.name
        for _ in range(2):
            train(small(GD, steps=2), tales(), out, resume=True, init_from=source)
        shutil.rmtree(out / "checkpoints")
        result = train(small(GD, steps=2), tales(), out, resume=True)
        assert result.initial.loss_before is not None


def test_resuming_with_another_model_is_refused(model, tmp_path):
    train(small(GD, steps=2), tales(), tmp_path / "plain")
    with pytest.raises(RunError, match="was begun without a model: leave --init-from out"):
        train(small(GD, steps=2), tales(), tmp_path / "plain", resume=True, init_from=model)
    train(small(GD, steps=2), tales(), tmp_path / "r", init_from=model)
    with pytest.raises(RunError, match=r"was begun from .*gd: leave"):
        train(small(GD), tales(), tmp_path / "r", resume=True, init_from=tmp_path / "plain")
    before = outcome(tmp_path / "r")
    result = train(small(GD, steps=2), tales(), tmp_path / "r", resume=True, init_from=model)
    assert result.outcome == "finished"
    assert outcome(tmp_path / "r") == before


def test_data_in_other_tokens_are_refused_with_the_remedy(tmp_path):
    data = other_tokens(300, 300)
    train(small(GD, steps=1), data, tmp_path / "bpe")
    with pytest.raises(
        ConfigError, match=r"prepared with the tokeniser bytes \(257 ids\)"
    ) as refused:
        train(small(GD), tales(), tmp_path / "r", init_from=tmp_path / "bpe")
    assert not (tmp_path / "r").exists()
    remedy = str(refused.value).split("--tokenizer ")[1]
    words = ["prepare", "tales", "--stories", "200", "--tokenizer", remedy]
    assert yurii([*words, "--out", tmp_path / "same"]).returncode == 0
    train(small(GD, steps=1), tmp_path / "same", tmp_path / "r", init_from=tmp_path / "bpe")


def test_another_width_is_refused_before_anything_is_written(model, tmp_path):
    with pytest.raises(ConfigError, match="d_model=64, but the model to begin from has 32"):
        train(small(GD).with_(d_model=64), tales(), tmp_path / "r", init_from=model)
    assert not (tmp_path / "r").exists()


def test_the_command_takes_sizes_and_rule_from_the_model(model, tmp_path):
    words = ["train", "--data", tales(), "--init-from", model, "--steps", "1", "--threads", "1"]
    said = yurii([*words, "--out", tmp_path / "r", "--eval-sequences", "8"])
    assert said.returncode == 0, said.stderr
    assert "15 tensors came over, 0 are new, 0 were left" in said.stderr
    model_of = json.loads((tmp_path / "r" / "config.json").read_text())["config"]["model"]
    assert (model_of["rule"]["name"], model_of["d_model"]) == (GD, 32)
    part = tmp_path / "part.toml"
    part.write_text("context = 16\n")
    said = yurii([*words, "--out", tmp_path / "s", "--config", part, "--rule", "nesterov-gated"])
    assert said.returncode == 0, said.stderr
    model_of = json.loads((tmp_path / "s" / "config.json").read_text())["config"]["model"]
    assert (model_of["rule"]["name"], model_of["context"]) == ("nesterov-gated", 16)
