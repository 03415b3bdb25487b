"""Synthetic runs that end with numbers of one's choice, as if they were the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.comparison.synthetic import DATA, configuration, write_run
from yuriiformer.comparison.outcomes import Arm, Comparison, compare_arms
from yuriiformer.comparison.paper import paper_downstream, paper_figure
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.methods.catalog import paper
from yuriiformer.methods.references import get_rule
from yuriiformer.runs.run import Run, TaskScore, read_run

SIX = "gd-euler polyak-euler nesterov-euler gd-lie-trotter polyak-lie-trotter nesterov-lie-trotter"
SIX = tuple(SIX.split())
STEPS, EVERY = 200, 10


def papers_row(setting: str, name: str) -> dict[str, float]:
    """Best, Final and Train that the paper prints. AMA is read as attention first."""
    figure = paper_figure(setting, name)
    assert figure is not None
    place = (
        figure.labels.index("AMA" if name.endswith("attn-mlp") else "MAM") if figure.unclear else 0
    )
    found = {m: figure.values(m)[place] for m in ("best", "final", "train") if figure.values(m)}
    return {"train": found["final"] - 0.1, **found}


def ending(best: float, final: float, steps: int, every: int = EVERY):
    """A curve that falls to ``best`` at about three quarters and ends at ``final``."""
    low = round(0.76 * steps / every) * every

    def curve(step: np.ndarray) -> np.ndarray:
        before = best + 2.0 * (1 - np.minimum(step / low, 1)) ** 2
        after = best + (final - best) * np.clip((step - low) / (steps - low), 0, 1)
        return np.where(step <= low, before, after)

    return curve


def run_with(
    folder: Path,
    setting: str,
    rule: str,
    row: Mapping[str, float],
    *,
    seed: int = 0,
    steps: int = STEPS,
    every: int = EVERY,
    scores: Mapping[str, float] | None = None,
    **options: Any,
) -> Run:
    """A run that ends with a row's Best, Final and Train, and with these accuracies in %."""
    config = configuration(get_rule(rule), seed=seed, steps=steps, every=every, setting=setting)
    train = row["train"]
    facts = {"facts": DATA[setting.partition("-")[0]], **options}
    write_run(
        folder,
        config,
        val=ending(row["best"], row["final"], steps, every),
        train=lambda step: train + 2.0 * np.exp(-8 * step / steps) * (step < steps),
        **facts,
    )
    tasks = {
        task: TaskScore(task, "acc_norm", value / 100, _error(task), "best", 10_042, None)
        for task, value in (scores or {}).items()
    }
    return replace(read_run(folder), scores=tasks)


def _error(task: str) -> float:
    return 0.0046 if task.startswith("hellaswag") else 0.0101


def papers_suite(
    folder: Path,
    setting: str,
    rules: Sequence[str] | None = None,
    *,
    seeds: Sequence[int] = (0,),
    spread: float = 0.0,
    rows: Mapping[str, Mapping[str, float]] | None = None,
    name: str | None = None,
    **options: Any,
) -> Comparison:
    """Runs with the paper's own numbers (or with ``rows``), seeds ``spread`` apart."""
    names = rules or (tuple(paper) if setting.startswith("tiny") else SIX)
    arms = []
    for rule in names:
        row = (rows or {}).get(rule) or papers_row(setting, rule)
        tasks = paper_downstream(setting, rule) or {}
        tasks = {task: row.get(task, tasks[task]) for task in PAPER_TASKS if task in tasks}
        runs = [
            run_with(
                folder / rule / f"seed-{seed}",
                setting,
                rule,
                {key: row[key] + seed * spread for key in ("best", "final", "train")},
                seed=seed,
                scores={task: value + 100 * seed * spread for task, value in tasks.items()},
                **options,
            )
            for seed in seeds
        ]
        arms.append(Arm(runs[0].rule.label, rule, runs))
    return compare_arms(arms, name=setting if name is None else name, preset=setting)
