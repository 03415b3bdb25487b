"""The plan of a run against what is known and what is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import tiny, tokens
from tests.training.corpora import tales
from yuriiformer.costs.plan import kept_bytes, make_plan, saved_bytes
from yuriiformer.training.corpus import fill_vocabulary
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.presets import PRESETS, preset
from yuriiformer.training.state import Saver


@pytest.mark.parametrize(
    ("name", "millions", "table"),
    [("tinystories-small", 123.6, 38.6), ("openwebtext-medium", 353.6, 51.5)],
)
def test_the_papers_sizes(tmp_path, name, millions, table):
    """With GPT-2's vocabulary, as nanoGPT's files have it."""
    config = preset(name, "nesterov-lie-trotter")
    store = yf.TokenStore.open(tales())
    plan = make_plan(config, store, 1, torch.bfloat16)
    assert plan.parameters / 1e6 == pytest.approx(millions, abs=0.05)
    assert plan.start_tables / 1e6 == pytest.approx(table, abs=0.05)
    assert plan.tokens_a_step == 491_520
    # 6 floating-point operations a parameter and token, and attention's
    assert 6 * plan.parameters * plan.tokens < plan.flops < 9 * plan.parameters * plan.tokens


def test_the_recipe_is_the_specs():
    rates = {name: (c.recipe.steps, c.recipe.warmup_steps, c.recipe.muon_lr, c.recipe.adamw_lr)
             for name in PRESETS for c in [preset(name, "gd-euler")]}  # fmt: skip
    assert rates["tinystories-small"] == (10_000, 1_000, 0.02, 6e-4)
    assert rates["openwebtext-small"] == (30_000, 3_000, 0.004, 6e-4)
    assert rates["openwebtext-medium"] == (30_000, 3_000, 0.006, 6e-4)
    for name in ("tinystories-small", "openwebtext-small", "openwebtext-medium"):
        config = preset(name, "gd-euler")
        assert (config.recipe.sequences, config.model.context) == (480, 1024)
        assert config.machine.micro_batch == 30
        assert config.validation.eval_sequences * config.model.context == 4_915_200
        assert config.validation.eval_every == 100


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("rule", ["gd-lie-trotter", "verlet-ama"])
def test_what_is_kept_for_the_backward_pass(rule, recompute):
    """Counted on fake tensors, and on real ones."""
    model = tiny(rule)
    model.recompute = recompute
    ids = tokens(model, batch=3)
    _, real = saved_bytes(model, ids, ids)
    fake = kept_bytes(model.config, 3, recompute=recompute)
    assert fake == pytest.approx(real, rel=0.02)


def test_recomputing_keeps_less():
    config = preset("cpu-tinystories", "nesterov-lie-trotter").model
    config = replace(config, vocab_size=512)  # so that the blocks weigh more than the loss
    plain, less = (kept_bytes(config, 2, recompute=r) for r in (False, True))
    assert less < 0.2 * plain


def test_a_checkpoint_takes_what_the_plan_says(tmp_path):
    config = preset("tales-tiny", "nesterov-lie-trotter")
    config = replace(config, recipe=replace(config.recipe, steps=1))
    yf.train(config, tales(), tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last"
    size = sum(path.stat().st_size for path in last.iterdir())
    filled = fill_vocabulary(config, yf.TokenStore.open(tales()))
    plan = make_plan(filled, yf.TokenStore.open(tales()), 1, torch.float32)
    assert size == pytest.approx(plan.weights + plan.optimizer, rel=0.1)
    model = yf.load_model(last)
    saver = Saver(last, model, Optimizer(model, config.recipe), None, {})
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
