"""Run folders without training: configuration and records as training writes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from yuriiformer.comparison.outcomes import Arm, Comparison, compare_arms
from yuriiformer.comparison.paper import paper_presets
from yuriiformer.config import TrainConfig
from yuriiformer.methods.drawing.listing import extra_parameters
from yuriiformer.methods.references import get_rule
from yuriiformer.methods.rule import Rule
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.run import read_run
from yuriiformer.training.presets import preset

Curve = Callable[[np.ndarray], np.ndarray]
TOKENS = {"train_tokens": 471_600_000, "val_tokens": 2_370_000}
DATA = {  # what the paper counts, and for TinyStories documents that it does not count
    "tinystories": {
        **TOKENS,
        "source": "tinystories",
        "train_documents": 2_109_121,
        "val_documents": 10_598,
    },
    "openwebtext": {
        "train_tokens": 8_620_000_000,
        "val_tokens": 432_000_000,
        "source": "openwebtext",
        "train_documents": 7_630_278,
        "val_documents": 383_491,
    },
}
VERSIONS = {
    "yuriiformer": "0.1.0",
    "python": "3.11.7",
    "machine": "Linux x86_64",
    "torch": "2.13.0",
    "numpy": "2.4.6",
    "safetensors": "0.8.0",
}


def falling(floor: float, steps: int, *, start: float = 3.0) -> Curve:
    """From ``start`` + floor down to about floor at the end of a run."""
    return lambda step: floor + start * np.exp(-8 * step / steps)


def configuration(
    rule: Rule | str,
    *,
    seed: int = 0,
    steps: int = 100,
    every: int = 10,
    setting: str = "tinystories-small",
    **recipe: Any,
) -> TrainConfig:
    """A preset's, of another length."""
    base = preset(setting, rule)
    return replace(
        base,
        recipe=replace(base.recipe, steps=steps, seed=seed, **recipe),
        validation=replace(base.validation, eval_every=every),
    )


def plan(config: TrainConfig) -> dict[str, Any]:
    """What `costs.run.run_costs` would say, by formula."""
    model, recipe = config.model, config.recipe
    sizes = {name: getattr(model, name) for name in ("n_layer", "n_head", "d_model", "vocab_size")}
    extra = extra_parameters(model.rule, **sizes)
    blocks = 12 * model.n_layer * model.d_model**2
    parameters = blocks + model.vocab_size * model.d_model + extra.norms + extra.coefficients
    total = parameters + extra.tables + model.context * model.d_model
    tokens = recipe.sequences * model.context
    calls = model.rule.oracle_calls
    attended = 4 * model.context * model.d_model * calls["attn"]
    weights = model.d_model**2 * (4 * calls["attn"] + 8 * calls["mlp"])
    flops = model.n_layer * (2 * weights + attended) + 2 * model.vocab_size * model.d_model
    return {
        "parameters": parameters,
        "start_tables": extra.tables,
        "all_parameters": total,
        "frozen": 0,
        "tokens_a_step": tokens,
        "tokens": tokens * recipe.steps,
        "steps_per_epoch": TOKENS["train_tokens"] / tokens,
        "weights": 4 * total,
        "optimizer": 8 * total,
        "flops": float(3 * flops * tokens * recipe.steps),
        "forward_flops_a_token": float(flops),
    }


def write_run(
    folder: Path,
    config: TrainConfig,
    *,
    val: Curve,
    train: Curve | None = None,
    until: int | None = None,
    speed: float = 1e5,
    noise: float = 0.0,
    coefficients: Mapping[str, Curve] | None = None,
    data: str = "a corpus",
    facts: Mapping[str, Any] | None = None,
    exact: bool = False,
) -> Path:
    """A run's folder with records up to ``until`` (its last step, if not given); ``exact`` adds an
    exact loss to the last, a little above the other.

    ``coefficients`` are paths of those named, added to over the layers; others stay as begun.
    ``facts`` are the source and counts of the data; the paper's TinyStories if not given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    hashes = {
        f"{part}_sha256": hashlib.sha256(f"{part} {data}".encode()).hexdigest()
        for part in ("train", "val")
    }
    resolved = {
        "device": "cpu",
        "dtype": "float32",
        "compiled": False,
        "threads": 1,
        "processes": 1,
    }
    RunFolder(folder).write_config(
        {
            "config": config.to_dict(),
            "data": {
                **(facts or DATA["tinystories"]),
                **hashes,
                "tokenizer": "gpt2",
                "folder": f"/data/{data}",
            },
            "resolved": resolved,
            "plan": plan(config),
            "versions": VERSIONS,
        }
    )
    last = config.recipe.steps if until is None else until
    lines = _lines(config, last, val, train or val, speed, noise, coefficients or {})
    if exact and last == config.recipe.steps:
        loss = float(val(np.array(float(last)))) + 0.0123456789
        lines[-1] = lines[-1].replace("}\n", f', "exact_loss": {_json(loss)}}}\n')
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def _lines(
    config: TrainConfig,
    last: int,
    val: Curve,
    train: Curve,
    speed: float,
    noise: float,
    paths: Mapping[str, Curve],
) -> list[str]:
    every = config.validation.eval_every
    random = np.random.default_rng(config.recipe.seed)
    steps = np.arange(last + 1)
    losses = train(steps.astype(float)) + noise * random.standard_normal(last + 1)
    judged = val(steps.astype(float))
    tokens = config.recipe.sequences * config.model.context
    lines = []
    for step in range(last + 1):
        parts = [f'"step": {step}']
        if step:
            parts += [
                f'"loss": {_json(losses[step])}, "grad_norm": 0.5, '
                f'"lr": {{"muon": 0.02, "adamw": 0.0006}}, "tokens": {step * tokens}',
                f'"timing": {{"seconds": {round(step * tokens / speed, 3)}, '
                f'"tokens_per_second": {speed}}}',
            ]
        if every and (step % every == 0 or step == config.recipe.steps):
            parts += [f'"val_loss": {_json(judged[step])}', _coefficients(config, step, paths)]
        elif not every and step in (0, config.recipe.steps):
            parts.append(_coefficients(config, step, paths))
        lines.append("{" + ", ".join(parts) + "}\n")
    return lines


def _json(value: float) -> str:
    """A number that is not finite is written as text."""
    return repr(float(value)) if np.isfinite(value) else f'"{float(value)}"'


def _coefficients(config: TrainConfig, step: int, paths: Mapping[str, Curve]) -> str:
    layers = np.arange(config.model.n_layer)
    found = {}
    for name, spec in config.model.rule.coefficients.items():
        start = np.array([spec.value(int(layer), len(layers)) for layer in layers])
        if name in paths:
            start = start + paths[name](np.array(float(step))) * (layers + 1) / len(layers)
        found[name] = start.tolist()
    return f'"coefficients": {json.dumps(found)}'


def arm(
    folder: Path,
    rule: Rule | str,
    finals: Mapping[int, float],
    *,
    label: str | None = None,
    slug: str | None = None,
    steps: int = 100,
    every: int = 10,
    setting: str = "tinystories-small",
    until: Mapping[int, int] | None = None,
    recipe: Mapping[str, Any] | None = None,
    **run: Any,
) -> Arm:
    """An arm whose runs end at about the given losses, by seed; ``run`` goes to `write_run`."""
    found = get_rule(rule)
    name = slug or found.name
    runs = []
    for seed, final in finals.items():
        config = configuration(
            found, seed=seed, steps=steps, every=every, setting=setting, **(recipe or {})
        )
        corpus = setting.partition("-")[0]
        options = {"val": falling(final, steps), "facts": DATA.get(corpus), **run}
        place = folder / name / f"seed{seed}"
        write_run(place, config, until=(until or {}).get(seed), **options)
        runs.append(read_run(place))
    return Arm(label or found.label, name, runs)


def write_suite(
    folder: Path,
    rules: Sequence[str],
    *,
    seeds: int = 3,
    steps: int = 100,
    every: int = 10,
    setting: str = "tinystories-small",
    name: str = "",
    gap: float = 0.01,
    spread: float = 0.002,
    **run: Any,
) -> Comparison:
    """Rules that differ by ``gap`` from one to the next, with a spread that rules of a seed share
    and one of their own."""
    random = np.random.default_rng(0)
    shared = spread * random.standard_normal(seeds)
    arms = []
    for index, rule in enumerate(rules):
        own = 0.5 * spread * random.standard_normal(seeds)
        finals = {seed: 1.1 - gap * index + shared[seed] + own[seed] for seed in range(seeds)}
        arms.append(arm(folder, rule, finals, steps=steps, every=every, setting=setting, **run))
    papers = setting if setting in paper_presets() else None
    return compare_arms(arms, name=name or setting, preset=papers)
