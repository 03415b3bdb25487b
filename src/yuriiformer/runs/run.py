"""A run's results, read from its folder: finished, unfinished or failed. Needs no torch.

`archive` reads the same from an archive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from yuriiformer.config import TrainConfig
from yuriiformer.errors import RunError, YuriiError
from yuriiformer.files import read_json
from yuriiformer.methods.rule import Rule
from yuriiformer.reading import count, plain_text, problem_of
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import Curves, read_curves

Status = Literal["finished", "unfinished", "failed"]
SAMPLES = "samples.json"
SAMPLES_FORM: dict[str, Any] = {
    "samples": [{"prompt": str, "text": str}],
    "checkpoint": plain_text,
    "step": count,
    "settings": {"temperature": float, "top_k": (count, None), "seed": int},
}
METRICS = ("acc_norm", "acc", "exact_match")  # shares; the first that a task has


@dataclass(frozen=True)
class Run:
    """One run: its folder, or its file in an archive. ``saved`` is its ``config.json``."""

    folder: Path
    saved: dict[str, Any] = field(repr=False)
    curves: Curves = field(repr=False)
    failure: str | None = None
    scores: Mapping[str, TaskScore] = field(default_factory=dict, repr=False)  # of tasks, by name
    samples: dict[str, Any] | None = field(default=None, repr=False)  # those kept with it

    @property
    def archived(self) -> bool:
        return self.folder.is_file()

    @cached_property
    def config(self) -> TrainConfig:
        return TrainConfig.from_dict(self.saved["config"])

    @property
    def data(self) -> Mapping[str, Any]:
        """What is recorded of its data: folder, counts, hashes, tokeniser, source."""
        found: Mapping[str, Any] = self.saved["data"]
        return found

    @property
    def from_model(self) -> bool:
        """Whether it began with the weights of a model."""
        return bool(self.saved.get("init"))

    @cached_property
    def rule(self) -> Rule:
        return self.config.model.rule

    @property
    def seed(self) -> int:
        return self.config.recipe.seed

    @property
    def steps(self) -> int:
        """The planned number of steps."""
        return self.config.recipe.steps

    @property
    def step(self) -> int:
        """The number of steps so far."""
        parts = (self.curves.step, self.curves.val_step)
        return max((int(part[-1]) for part in parts if len(part)), default=0)

    @property
    def finished(self) -> bool:
        return self.step >= self.steps

    @property
    def status(self) -> Status:
        if self.finished:
            return "finished"
        return "failed" if self.failure else "unfinished"

    @property
    def validates(self) -> bool:
        return len(self.curves.val_step) > 0

    @property
    def diverged(self) -> bool:
        """Whether it finished with a loss that is not finite."""
        return self.finished and self.validates and self.final is None

    @property
    def final(self) -> float | None:
        """Validation loss after the last step; only a finished run has one."""
        ends = self.finished and len(self.curves.val_step) > 0
        if not ends or self.curves.val_step[-1] != self.steps:
            return None
        return _finite(self.curves.val_loss[-1])

    @property
    def exact(self) -> float | None:
        """The same over the whole validation split, where that was computed."""
        return self._at_the_end(self.curves.exact)

    @property
    def texts(self) -> dict[str, float | None]:
        """The same over other texts, by their names."""
        return {name: self._at_the_end(each) for name, each in self.curves.texts.items()}

    def _at_the_end(self, exact: tuple[int, float] | None) -> float | None:
        return None if exact is None or exact[0] != self.steps else _finite(exact[1])

    def loss(self, metric: str) -> float | None:
        """``final``, ``exact``, ``best`` or another of its numbers by name; ``exact:NAME`` is the
        exact loss on another text."""
        name = text_of(metric)
        value: float | None = getattr(self, metric) if name is None else self.texts.get(name)
        return value

    @property
    def best(self) -> float | None:
        """Lowest validation loss so far."""
        index = self._best
        return None if index is None else float(self.curves.val_loss[index])

    @property
    def best_step(self) -> int | None:
        index = self._best
        return None if index is None else int(self.curves.val_step[index])

    @cached_property
    def _best(self) -> int | None:
        losses = self.curves.val_loss
        if not np.isfinite(losses).any():
            return None
        return int(np.nanargmin(np.where(np.isfinite(losses), losses, np.nan)))

    @property
    def train(self) -> float | None:
        """Mean loss of the last step's batch; only a finished run has one."""
        if not self.finished or not len(self.curves.loss):
            return None
        return _finite(self.curves.loss[-1])

    @property
    def tokens_per_second(self) -> float | None:
        return self.curves.median_speed

    def accuracy(self, task: str) -> float | None:
        """In a task as the paper measures it, in %."""
        score = self.scores.get(task)
        return None if score is None or not score.papers else 100 * score.value

    def plan(self, name: str) -> float | None:
        """A number of the run's plan."""
        value = (self.saved.get("plan") or {}).get(name)
        return value if value else None

    @property
    def flops_a_token(self) -> float | None:
        """FLOPs per token of training: forward and backward pass, as the run's plan counts them."""
        flops, tokens = self.plan("flops"), self.plan("tokens")
        return None if flops is None or tokens is None else flops / tokens

    def reached(self, loss: float) -> int | None:
        """The first step with a validation loss that low."""
        hits = np.flatnonzero(self.curves.val_loss <= loss)
        return int(self.curves.val_step[hits[0]]) if len(hits) else None


def text_of(metric: str) -> str | None:
    """The text that a metric ``exact:NAME`` is of; None for another metric."""
    kind, colon, name = metric.partition(":")
    return name if colon and kind == "exact" else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def read_run(folder: Path, failure: str | None = None) -> Run:
    """The run in a folder."""
    place = RunFolder(folder)
    saved = place.read_config()
    if failure is None and place.nonfinite_file.exists():
        step = read_json(place.nonfinite_file).get("step")
        known = isinstance(step, int)
        failure = f"step {step} was not finite" if known else "a step was not finite"
    return Run(
        folder,
        with_all_fields(saved, place.config_file),
        read_curves(place.metrics_file),
        failure,
        read_scores(folder),
        read_samples(folder),
    )


def with_all_fields(saved: dict[str, Any], source: Path) -> dict[str, Any]:
    """The content of ``config.json``, with defaults for fields that are newer than it."""
    try:
        config = TrainConfig.from_dict(saved["config"])
    except YuriiError as error:
        raise RunError(f"{source} is damaged: {error}") from None
    return {**saved, "config": config.to_dict()}


def read_samples(folder: Path) -> dict[str, Any] | None:
    """The samples kept in a run's folder."""
    data = read_json(folder / SAMPLES)
    return None if problem_of(data, SAMPLES_FORM) else data


@dataclass(frozen=True)
class TaskScore:
    """One task of one run, over so many items; ``limit``: the first of them only."""

    task: str
    metric: str
    value: float
    stderr: float | None
    checkpoint: str
    items: int
    limit: int | None

    @property
    def asked(self) -> tuple[str, int]:
        """What must be equal for two scores to be compared."""
        return self.checkpoint, self.items

    @property
    def papers(self) -> bool:
        """Whether it is measured as the paper does: all items, at the best checkpoint."""
        return self.limit is None and self.checkpoint == "best"

    @property
    def rank(self) -> tuple[bool, int]:
        """The best checkpoint's result is preferred, then the one of more items."""
        return self.checkpoint == "best", self.items


def read_scores(run: Path) -> dict[str, TaskScore]:
    """Scores by task, as ``yurii evaluate --tasks`` left them. Of several results, that of the best
    checkpoint with most items. Tasks without an accuracy (perplexities) are left out."""
    found: dict[str, TaskScore] = {}
    for path in sorted((run / "evaluation").glob("*.json")):
        score = _read_score(run, path)
        if score is not None and (score.task not in found or score.rank > found[score.task].rank):
            found[score.task] = score
    return found


def _read_score(run: Path, path: Path) -> TaskScore | None:
    """What a file says of the task it is named for; None if it is no such file, or if the run has
    continued since: then the result is of an older model."""
    data = read_json(path)
    try:
        checkpoint = str(data.get("checkpoint", ""))
        manifest = read_json(run / "checkpoints" / checkpoint / "manifest.json")
        weights = manifest.get("files", {}).get("model.safetensors", {}).get("sha256")
        task = str(data["task"])
        scores = data["scores"][task.partition("@")[0]]
        metric = next((name for name in METRICS if name in scores), None)
        if metric is None or data.get("sha256") != weights:
            return None
        value, stderr = scores[metric]["value"], scores[metric]["stderr"]
        items, there = (int(sum(data[name].values())) for name in ("items", "items_there"))
        return TaskScore(
            task,
            metric,
            float(value),
            None if stderr is None else float(stderr),
            checkpoint,
            items,
            None if items == there else items,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
