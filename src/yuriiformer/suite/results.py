"""A run's results, read from its folder: finished, unfinished or failed. Needs no torch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from yuriiformer.errors import RunError, YuriiError
from yuriiformer.methods.rule import Rule
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import Record, iterate_metrics

Floats = NDArray[np.float64]
Status = Literal["finished", "unfinished", "failed"]


@dataclass(frozen=True)
class Curves:
    """What a run recorded, in columns. ``loss`` is the training batch's, before its step."""

    step: NDArray[np.int64]
    loss: Floats
    seconds: Floats  # of training, validation not counted
    speed: Floats  # tokens a second
    val_step: NDArray[np.int64]
    val_loss: Floats
    coefficients: list[tuple[int, dict[str, list[float]]]] = field(repr=False)

    def seconds_at(self, step: float) -> float | None:
        """Time until a step was done."""
        if not len(self.step):
            return None
        return float(np.interp(step, [0.0, *self.step], [0.0, *self.seconds]))


def read_curves(path: Path) -> Curves:
    """The records of ``metrics.jsonl``; a half-written last line is left out."""
    rows: list[tuple[int, float, float, float]] = []
    validations: list[tuple[int, float]] = []
    coefficients = []
    for record in iterate_metrics(path) if path.exists() else ():
        step = record["step"]
        timing = record.get("timing") or {}
        if "loss" in record:
            speed = _number(timing.get("tokens_per_second"))
            rows.append((step, _number(record["loss"]), _number(timing.get("seconds")), speed))
        if "val_loss" in record:
            validations.append((step, _number(record["val_loss"])))
        if record.get("coefficients"):
            coefficients.append((step, _coefficients(record)))
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    val = np.array(validations, dtype=np.float64).reshape(-1, 2)
    return Curves(
        table[:, 0].astype(np.int64), table[:, 1], table[:, 2], table[:, 3],
        val[:, 0].astype(np.int64), val[:, 1], coefficients,
    )  # fmt: skip


def _number(value: Any) -> float:
    """NaN and infinity are written as text, for JSON has none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def _coefficients(record: Record) -> dict[str, list[float]]:
    return {
        name: [_number(value) for value in layers]
        for name, layers in record["coefficients"].items()
        if isinstance(layers, list)
    }


@dataclass(frozen=True)
class Run:
    """One run folder. ``saved`` is its ``config.json``."""

    folder: Path
    saved: dict[str, Any] = field(repr=False)
    curves: Curves = field(repr=False)
    failure: str | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The run's configuration, by parts (model, recipe, validation, machine, habits)."""
        return dict(self.saved["config"])

    @cached_property
    def rule(self) -> Rule:
        return Rule.from_dict(self.config["model"]["rule"])

    @property
    def seed(self) -> int:
        return int(self.config["recipe"]["seed"])

    @property
    def steps(self) -> int:
        """How many it is to have."""
        return int(self.config["recipe"]["steps"])

    @property
    def step(self) -> int:
        """How many it has."""
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
        """Whether it came to its end with a loss that is none."""
        return self.finished and self.validates and self.final is None

    @property
    def final(self) -> float | None:
        """Validation loss after the last step; only a finished run has one."""
        ends = self.finished and len(self.curves.val_step) > 0
        if not ends or self.curves.val_step[-1] != self.steps:
            return None
        return _finite(self.curves.val_loss[-1])

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
        speed = self.curves.speed[np.isfinite(self.curves.speed)]
        return float(np.median(speed)) if len(speed) else None

    def plan(self, name: str) -> float | None:
        """A number of the plan that the run was begun with."""
        value = (self.saved.get("plan") or {}).get(name)
        return value if value else None

    @property
    def flops_a_token(self) -> float | None:
        """Of training: a forward pass, and twice as much for the backward one."""
        forward = self.plan("forward_flops_a_token")
        return None if forward is None else 3 * forward

    def reached(self, loss: float) -> int | None:
        """The first step with a validation loss that low."""
        hits = np.flatnonzero(self.curves.val_loss <= loss)
        return int(self.curves.val_step[hits[0]]) if len(hits) else None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def read_run(folder: Path, failure: str | None = None) -> Run:
    """The run in a folder."""
    place = RunFolder(folder)
    saved = place.read_config()
    if failure is None and place.nonfinite_file.exists():
        failure = _nonfinite(place.nonfinite_file)
    run = Run(folder, saved, read_curves(place.metrics_file), failure)
    try:
        run.rule, run.seed, run.steps  # noqa: B018  whether they can be read
    except (YuriiError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{place.config_file} is damaged: {error!r:.80}") from None
    return run


def _nonfinite(path: Path) -> str:
    try:
        step = json.loads(path.read_text(encoding="utf-8"))["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return "a step was not finite"
    return f"step {step} was not finite"
