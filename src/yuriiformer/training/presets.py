"""Presets: functions that return a complete configuration for a rule.

The vocabulary is the data's and is filled in when the data are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from yuriiformer.config import Machine, Output, Recipe, TrainConfig, Validation
from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.methods.rule import Rule
from yuriiformer.model.config import ModelConfig


def tinystories_small(rule: Rule | str) -> TrainConfig:
    """The paper's TinyStories runs: 12 layers, d = 768, 10,000 steps of 491,520 tokens."""
    return TrainConfig(
        ModelConfig(rule, valid_vocab=50257),
        Recipe(steps=10_000, muon_lr=0.02, adamw_lr=6e-4),
        Validation(eval_every=100, eval_sequences=160 * 30),
        Machine(micro_batch=30),
        Output(save_every=500),
    )


def openwebtext_small(rule: Rule | str) -> TrainConfig:
    """The paper's OpenWebText runs, small: as TinyStories', 30,000 steps, a lower Muon rate."""
    base = tinystories_small(rule)
    return replace(base, recipe=Recipe(steps=30_000, muon_lr=0.004, adamw_lr=6e-4))


def openwebtext_medium(rule: Rule | str) -> TrainConfig:
    """The paper's OpenWebText runs, medium: 24 layers, 16 heads, d = 1024."""
    base = openwebtext_small(rule)
    return replace(
        base,
        model=replace(base.model, n_layer=24, n_head=16, d_model=1024),
        recipe=replace(base.recipe, muon_lr=0.006),
    )


def cpu_tinystories(rule: Rule | str) -> TrainConfig:
    """Real stories on one core in about ten minutes: 6 layers, d = 128, a BPE of 2-4 thousand."""
    return TrainConfig(
        ModelConfig(rule, n_layer=6, n_head=4, d_model=128, context=256),
        Recipe(steps=500, sequences=16, muon_lr=0.02, adamw_lr=6e-3),
        Validation(eval_every=50, eval_sequences=32),
        Machine(micro_batch=8),
        Output(save_every=50),
    )


def tales_tiny(rule: Rule | str) -> TrainConfig:
    """Generated stories in seconds: 2 layers, d = 64."""
    return TrainConfig(
        ModelConfig(rule, n_layer=2, n_head=2, d_model=64, context=64),
        Recipe(steps=120, sequences=16, muon_lr=0.02, adamw_lr=1e-2),
        Validation(eval_every=20, eval_sequences=32),
        Machine(micro_batch=16),
        Output(save_every=20),
    )


def one_billion(rule: Rule | str) -> TrainConfig:
    """About a billion parameters, the shape of TinyLlama (22 layers, d = 2048, 32 heads, 4 of
    keys): 20 tokens per parameter, in steps of 2 million.

    Muon's updates have AdamW's size, so that both have AdamW's published rate.
    """
    model = ModelConfig(
        rule,
        n_layer=22,
        n_head=32,
        n_kv_head=4,
        d_model=2048,
        context=4096,
        valid_vocab=50257,
        oracles="modern",
    )
    return TrainConfig(
        model,
        Recipe(
            steps=10_500, warmup=2000, sequences=512, muon_scale="rms", muon_lr=4e-4, adamw_lr=4e-4
        ),
        Validation(eval_every=500, eval_sequences=1024),
        Machine(micro_batch=4),
        Output(save_every=500, save_beside=True),
    )


def seven_billion(rule: Rule | str) -> TrainConfig:
    """About 6.6 billion parameters, the shape of Llama 2 7B (32 layers, d = 4096, 32 heads): 20
    tokens per parameter, in steps of 4 million."""
    base = one_billion(rule)
    return replace(
        base,
        model=replace(base.model, n_layer=32, n_head=32, n_kv_head=32, d_model=4096),
        recipe=replace(base.recipe, steps=32_000, sequences=1024, muon_lr=3e-4, adamw_lr=3e-4),
        machine=Machine(micro_batch=2, recompute=True, parallel="fsdp"),
    )


PRESETS: dict[str, Callable[[Rule | str], TrainConfig]] = {
    "tinystories-small": tinystories_small,
    "openwebtext-small": openwebtext_small,
    "openwebtext-medium": openwebtext_medium,
    "cpu-tinystories": cpu_tinystories,
    "tales-tiny": tales_tiny,
    "1b": one_billion,
    "7b": seven_billion,
}


def preset(name: str, rule: Rule | str) -> TrainConfig:
    """A preset by name."""
    if name not in PRESETS:
        hint = did_you_mean(name, PRESETS) or f"; known are {', '.join(PRESETS)}"
        raise ConfigError(f"unknown preset {name!r}{hint}")
    return PRESETS[name](rule)
