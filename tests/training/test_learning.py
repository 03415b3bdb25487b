"""Every rule learns with the settings it gets by default: none is silently broken."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import KINDS
from tests.training.corpora import tales
from yuriiformer.config import Recipe
from yuriiformer.methods.catalog import paper
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.presets import preset
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import MicroBatch, train_step

CPU = Processes(0, 1, torch.device("cpu"))


@pytest.mark.parametrize(
    "rule",
    [rule if rule in KINDS else pytest.param(rule, marks=pytest.mark.slow) for rule in paper],
)
def test_a_small_batch_is_memorised(rule):
    """The preset's model and the recipe's own rates, one batch again and again."""
    config = preset("tales-tiny", rule)
    model = yf.YuriiFormer(replace(config.model, vocab_size=64, context=32))
    optimizer = Optimizer(model, replace(config.recipe, steps=25))
    ids = torch.randint(64, (2, 33), generator=torch.Generator().manual_seed(0))
    batch = [MicroBatch((ids[:, :-1], ids[:, 1:]), 1.0)]
    losses = [
        train_step(model, batch, optimizer, CPU, torch.float32, step).loss for step in range(25)
    ]
    assert losses[0] == pytest.approx(math.log(64), abs=0.3)
    assert losses[-1] < 0.08


def test_the_papers_rates_memorise_too():
    """Muon 0.02 and AdamW 6e-4, as for TinyStories; the table moves slowly there. A quarter of a
    run of 500 steps takes the loss from 4.2 to 0.8."""
    model = yf.YuriiFormer(
        yf.ModelConfig(n_layer=2, n_head=2, d_model=64, vocab_size=64, context=32)
    )
    optimizer = Optimizer(model, Recipe(steps=500))
    ids = torch.randint(64, (2, 33), generator=torch.Generator().manual_seed(0))
    batch = [MicroBatch((ids[:, :-1], ids[:, 1:]), 1.0)]
    losses = [
        train_step(model, batch, optimizer, CPU, torch.float32, step).loss for step in range(120)
    ]
    assert losses[0] == pytest.approx(math.log(64), abs=0.3)
    assert losses[-1] < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("rule", paper)
def test_120_steps_on_tales(tmp_path, rule):
    """Finite all the way, never far above the start, and far below it at the end."""
    config = preset("tales-tiny", rule)
    config = replace(
        config,
        recipe=replace(config.recipe, steps=120, sequences=8),
        validation=replace(config.validation, eval_every=40),
        output=replace(config.output, tensorboard=False),
    )
    result = yf.train(config, tales(), tmp_path / "run")
    assert result.outcome == "finished"
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    losses = [record["loss"] for record in records[1:]]
    assert len(losses) == 120
    assert all(math.isfinite(loss) for loss in losses)
    start = records[0]["val_loss"]
    assert max(losses) < start + 0.5
    assert records[-1]["val_loss"] < start - 2.5


def test_two_rules_see_the_same_batches_and_share_their_start(tmp_path, monkeypatch):
    seen: dict[str, list] = {}
    real = yf.TokenStore.sequences

    def spy(store, split, starts, context):
        seen[name].append((split, starts.tolist(), context))
        return real(store, split, starts, context)

    monkeypatch.setattr(yf.TokenStore, "sequences", spy)
    for name in ("gd-euler", "verlet-mam"):
        seen[name] = []
        config = preset("tales-tiny", name)
        config = replace(
            config,
            recipe=replace(config.recipe, steps=4),
            output=replace(config.output, tensorboard=False),
        )
        yf.train(config, tales(), tmp_path / name)
    assert seen["gd-euler"] == seen["verlet-mam"]
    assert len(seen["gd-euler"]) == 4 + 2 * 2  # steps, and two validations of two micro-batches
