"""What a run costs, against what is known of the paper's and what is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import yuriiformer as yf
from tests.training.corpora import tales
from yuriiformer.costs.run import run_costs
from yuriiformer.training.initial import fill_vocabulary
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.presets import PRESETS, preset
from yuriiformer.training.processes import Processes
from yuriiformer.training.saving import Saver


@pytest.mark.parametrize(
    ("name", "millions", "table"),
    [("tinystories-small", 123.6, 38.6), ("openwebtext-medium", 353.6, 51.5)],
)
def test_the_papers_sizes(name, millions, table):
    """With GPT-2's vocabulary, as nanoGPT's files have it."""
    plan = run_costs(preset(name, "nesterov-lie-trotter"), 10**9)
    assert plan.parameters / 1e6 == pytest.approx(millions, abs=0.05)
    assert plan.start_tables / 1e6 == pytest.approx(table, abs=0.05)
    assert plan.tokens_a_step == 491_520
    # 6 floating-point operations a parameter and token, and attention's
    assert 6 * plan.parameters * plan.tokens < plan.flops < 9 * plan.parameters * plan.tokens


def test_the_recipe_is_the_specs():
    rates = {
        name: (c.recipe.steps, c.recipe.warmup_steps, c.recipe.muon_lr, c.recipe.adamw_lr)
        for name in PRESETS
        for c in [preset(name, "gd-euler")]
    }
    assert rates["tinystories-small"] == (10_000, 1_000, 0.02, 6e-4)
    assert rates["openwebtext-small"] == (30_000, 3_000, 0.004, 6e-4)
    assert rates["openwebtext-medium"] == (30_000, 3_000, 0.006, 6e-4)
    for name in ("tinystories-small", "openwebtext-small", "openwebtext-medium"):
        config = preset(name, "gd-euler")
        assert (config.recipe.sequences, config.model.context) == (480, 1024)
        assert config.machine.micro_batch == 30
        assert config.validation.eval_sequences * config.model.context == 4_915_200
        assert config.validation.eval_every == 100


def test_a_checkpoint_takes_what_the_plan_says(tmp_path):
    config = preset("tales-tiny", "nesterov-lie-trotter")
    config = replace(config, recipe=replace(config.recipe, steps=1))
    yf.train(config, tales(), tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last"
    size = sum(path.stat().st_size for path in last.iterdir())
    filled = fill_vocabulary(config, yf.TokenStore.open(tales()))
    costs = run_costs(filled, 10**6)
    assert size == pytest.approx(costs.weights + costs.optimizer, rel=0.1)
    model = yf.load_model(last)
    alone = Processes(0, 1, torch.device("cpu"))
    saver = Saver(last, model, Optimizer(model, config.recipe), alone, {})
    assert saver.bytes_needed()[0] >= size


def test_files_without_a_vocabulary(tmp_path):
    """nanoGPT's: GPT-2's vocabulary, or that of the few ids that occur."""
    import numpy as np

    for name, top, expected in (("gpt2", 50_256, (50_304, 50_257)), ("characters", 64, (128, 65))):
        folder = tmp_path / name
        folder.mkdir()
        for split in ("train", "val"):
            (np.arange(2_000) % (top + 1)).astype("<u2").tofile(folder / f"{split}.bin")
        tokens = np.full(2_000, top, dtype="<u2")
        tokens.tofile(folder / "val.bin")
        config = fill_vocabulary(preset("tales-tiny", "gd-euler"), yf.TokenStore.open(folder))
        assert (config.model.vocab_size, config.model.valid_vocab) == expected
