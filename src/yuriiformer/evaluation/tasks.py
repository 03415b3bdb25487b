"""Runs tasks of EleutherAI's lm-evaluation-harness; results are plain data. Needs lm_eval."""

from __future__ import annotations

import io
import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lm_eval import evaluator
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from yuriiformer.errors import (
    ConfigError,
    DataError,
    YuriiError,
    did_you_mean,
    one_line,
    whole_number,
)
from yuriiformer.evaluation.harness import YuriiLM
from yuriiformer.evaluation.local_tasks import LAYOUTS, LocalTask, TaskSpec, local_task

SEEDS = {  # the harness's own defaults, the paper's among them
    "random_seed": 0,
    "numpy_random_seed": 1234,
    "torch_random_seed": 1234,
    "fewshot_random_seed": 1234,
}

Result = dict[str, Any]


def run_tasks(
    lm: LM,
    tasks: Sequence[TaskSpec],
    limit: int | None = None,
    tasks_data: Path | None = None,
    begin: Callable[[TaskSpec], None] = lambda spec: None,
) -> Iterator[tuple[TaskSpec, Result]]:
    """Each task's result, as soon as it is there, of any model of the harness.

    Args:
        limit: only this many items of a task, the first ones.
        tasks_data: a folder of local files; without it the harness loads from the hub.
        begin: called with each task before its texts are made.
    """
    if limit is not None:
        whole_number("limit", limit, 1)
    local: dict[TaskSpec, LocalTask] = {}
    if tasks_data is not None:
        local = {spec: local_task(spec, tasks_data) for spec in tasks}
    with _quiet():
        manager = TaskManager(include_defaults=not local)
    for spec in tasks:
        if not local and spec.name not in manager.task_index:
            hint = did_you_mean(spec.name, manager.all_tasks)
            raise ConfigError(f"the installed harness has no task {spec.name!r}{hint}")
    for spec in tasks:
        begin(spec)
        before = (lm.requests, lm.truncated) if isinstance(lm, YuriiLM) else (0, 0)
        with _quiet(), _generators_kept(), _offline(active=bool(local)):
            loaded = _load(manager, spec, local.get(spec))
            found = _simple_evaluate(lm, spec, loaded, limit)
        result = _result(spec, local.get(spec), loaded, found)
        if isinstance(lm, YuriiLM):
            result["requests"] = lm.requests - before[0]
            result["truncated_requests"] = lm.truncated - before[1]
        yield spec, {**result, "limit": limit, "seeds": SEEDS, "lm_eval": version("lm_eval")}


def _load(manager: TaskManager, spec: TaskSpec, local: LocalTask | None) -> list[Any]:
    """The harness's objects: a task, a group, or the tasks of a tag."""
    try:
        loaded = manager.load([spec.name if local is None else local.config()])
    except YuriiError:
        raise
    except ModuleNotFoundError as error:
        raise ConfigError(f"task {spec.name!r} needs the package {error.name!r}") from None
    except Exception as error:  # the hub's client fails in many ways
        where = "its local files" if local else "the Hugging Face hub"
        hint = "" if local or spec.name not in LAYOUTS else "; --tasks-data takes local files"
        raise DataError(
            f"task {spec.name!r} could not be loaded from {where}: {one_line(error)[:200]}{hint}"
        ) from None
    tasks = loaded["tasks"]
    fixed = [name for name, task in tasks.items() if task.get_config("num_fewshot") == 0]
    if spec.shots and fixed:
        raise ConfigError(f"task {fixed[0]!r} is defined to show no examples, not {spec.shots}")
    if spec.name in loaded["groups"]:
        return [loaded["groups"][spec.name]]
    return list(tasks.values())


def _simple_evaluate(lm: LM, spec: TaskSpec, loaded: list[Any], limit: int | None) -> Result:
    try:
        with _without_survey():
            found: Result = evaluator.simple_evaluate(
                lm,
                tasks=loaded,
                num_fewshot=spec.shots,
                limit=limit,
                log_samples=False,
                task_manager=TaskManager(include_defaults=False),
                **SEEDS,
            )
    except YuriiError:
        raise
    except ValueError as error:  # a task that runs code, needs images, …
        raise ConfigError(f"task {spec.name!r} cannot be run: {one_line(error)}") from None
    return found


def _result(spec: TaskSpec, local: LocalTask | None, loaded: list[Any], found: Result) -> Result:
    """Plain data: what was scored, on what, with which examples."""
    scores = {name: _scores(values) for name, values in found["results"].items()}
    first = loaded[0]
    while not hasattr(first, "config") or not hasattr(first.config, "output_type"):
        first = next(iter(first))
    config = first.config
    few = config.fewshot_split or config.training_split or config.validation_split
    shots = max(found["n-shot"].values(), default=0)
    return {
        "task": str(spec),
        "shots": shots,
        "scores": scores,
        "items": {name: count["effective"] for name, count in found["n-samples"].items()},
        "items_there": {name: count["original"] for name, count in found["n-samples"].items()},
        "split": local.layout.scored if local else config.test_split or config.validation_split,
        "examples_from": local.source if local else f"{few} split" if shots else "none",
        "data": local.hashes() if local else str(config.dataset_path),
        "task_versions": dict(found["versions"]),
    }


def _scores(values: Result) -> Result:
    """By metric, from the keys ``metric,filter`` and ``metric_stderr,filter`` of the harness."""
    scores = {}
    for key, value in values.items():
        metric, comma, filtered = key.partition(",")
        if not comma or metric.endswith("_stderr") or _number(value) is None:
            continue
        name = metric if filtered == "none" else key
        stderr = _number(values.get(f"{metric}_stderr,{filtered}"))
        scores[name] = {"value": _number(value), "stderr": stderr}
    return scores


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars and log messages of the harness and the hub."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "huggingface_hub")]
    levels = {logger: logger.level for logger in loggers}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@contextmanager
def _without_survey() -> Iterator[None]:
    """The harness would collect versions of git, compilers and drivers: seconds for every task, and
    messages of git outside a repository. No result contains them."""
    names = ("add_env_info", "get_git_commit_hash")
    kept = {name: getattr(evaluator, name) for name in names if hasattr(evaluator, name)}
    for name in kept:
        setattr(evaluator, name, lambda *_: None)
    try:
        yield
    finally:
        for name, survey in kept.items():
            setattr(evaluator, name, survey)


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Restore all random number generators: the harness seeds them."""
    states = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


@contextmanager
def _offline(*, active: bool) -> Iterator[None]:
    """Make the hub's client work offline."""
    names = ("HF_DATASETS_OFFLINE", "HF_HUB_OFFLINE") if active else ()
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)
