"""Results of downstream tasks, as ``yurii evaluate --tasks`` left them in runs' folders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = ("acc_norm", "acc")  # the first that a task has; others as they come


@dataclass(frozen=True)
class TaskScore:
    """One task of one run. ``limit``: only the first so many items were asked."""

    task: str
    metric: str
    value: float
    stderr: float | None
    checkpoint: str
    limit: int | None


def read_scores(run: Path) -> dict[str, TaskScore]:
    """By task: of the best checkpoint and of all items, where there are several results."""
    found: dict[str, TaskScore] = {}
    for path in sorted((run / "evaluation").glob("*.json")):
        score = _read(path)
        if score is None:
            continue
        known = found.get(score.task)
        if known is None or _rank(score) > _rank(known):
            found[score.task] = score
    return found


def _rank(score: TaskScore) -> tuple[bool, float]:
    return score.checkpoint == "best", float("inf") if score.limit is None else score.limit


def _read(path: Path) -> TaskScore | None:
    """What a file says of the task it is named for; None if it is no such file."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        task = str(data["task"])
        scores = data["scores"][task.partition("@")[0]]
        metric = next((name for name in (*METRICS, *scores) if name in scores), None)
        if metric is None:
            return None
        found = scores[metric]
        stderr = found["stderr"]
        return TaskScore(
            task,
            metric,
            float(found["value"]),
            None if stderr is None else float(stderr),
            str(data.get("checkpoint", "")),
            data.get("limit"),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
