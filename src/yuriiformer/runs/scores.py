"""Results of downstream tasks, as ``yurii evaluate --tasks`` left them in runs' folders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = ("acc_norm", "acc", "exact_match")  # shares; the first that a task has


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


def read_scores(run: Path) -> dict[str, TaskScore]:
    """Scores by task. Of several results, that of the best checkpoint with most items. Tasks
    without an accuracy (perplexities) are left out."""
    found: dict[str, TaskScore] = {}
    for path in sorted((run / "evaluation").glob("*.json")):
        score, weights = _read(path)
        if score is None or weights != _weights(run, score.checkpoint):
            continue  # the run has continued since: the result is of an older model
        known = found.get(score.task)
        if known is None or _rank(score) > _rank(known):
            found[score.task] = score
    return found


def _rank(score: TaskScore) -> tuple[bool, int]:
    return score.checkpoint == "best", score.items


def _weights(run: Path, checkpoint: str) -> str | None:
    """The SHA-256 of the weights that a checkpoint has now."""
    try:
        path = run / "checkpoints" / checkpoint / "manifest.json"
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return str(manifest["files"]["model.safetensors"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(path: Path) -> tuple[TaskScore | None, str | None]:
    """What a file says of the task it is named for, and of which weights; None if it is no such
    file."""
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        task = str(data["task"])
        scores = data["scores"][task.partition("@")[0]]
        metric = next((name for name in METRICS if name in scores), None)
        if metric is None:
            return None, None
        found = scores[metric]
        stderr = found["stderr"]
        items, there = (sum(data[name].values()) for name in ("items", "items_there"))
        score = TaskScore(
            task,
            metric,
            float(found["value"]),
            None if stderr is None else float(stderr),
            str(data.get("checkpoint", "")),
            int(items),
            None if items == there else int(items),
        )
        return score, data.get("sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None, None
