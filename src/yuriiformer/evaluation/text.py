"""Results of ``yurii evaluate`` for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yuriiformer.display.columns import aligned
from yuriiformer.evaluation.local_tasks import PAPER_TASKS

PERCENT = ("acc", "exact_match", "f1", "em", "mcc")  # metrics that are shares


def validation_text(found: Mapping[str, Any], *, judged: bool) -> str:
    """The losses; ``judged``: whether a run has a validation split of its own."""
    what = found.get("model")
    if "step" in found:
        what = f"{found['checkpoint']} checkpoint, step {found['step']:,}"
    lines = [f"{found['rule']}, {what}", ""]
    rows: list[tuple[str, ...]] = [("", "loss", "perplexity", "bits/byte", "tokens")]
    by = f"protocol ({found['eval_sequences']:,} sequences)"
    for label, part in ((by, found["protocol"]), ("exact", found["exact"])):
        bits = part.get("bits_per_byte")
        losses = f"{part['loss']:.4f}", f"{part['perplexity']:.4g}", f"{bits:.4f}" if bits else ""
        rows.append((label, *losses, f"{part['tokens']:,}"))
    lines += aligned(rows)
    if "recorded_val_loss" in found and found["own_data"]:
        lines.append(f"the run recorded {found['recorded_val_loss']:.4f} by the protocol")
    if judged and not found["own_data"]:
        lines.append("note: this is not the validation split that the run was judged by")
    return "\n".join([*lines, found["exact"]["note"]])


def tasks_text(found: Mapping[str, Any], others: Mapping[str, Mapping[str, float]]) -> str:
    """A row per task, beside what ``others`` (the paper, released models) reach in it."""
    rows: list[tuple[str, ...]] = [("task", "metric", "value", "± stderr", "items", *others)]
    notes = []
    for label, result in found.items():
        theirs = [each.get(label) for each in others.values()]
        beside = ["" if value is None else f"{value:.4g}" for value in theirs]
        for name, scores in result["scores"].items():
            alone = len(result["scores"]) == 1
            title = PAPER_TASKS.get(label, label if alone else f"  {name}")
            if scores:  # a group may have no score of its own
                rows.append((title, *_score(scores, result["items"].get(name)), *beside))
        cut = result.get("truncated_requests", 0)
        notes.append(
            f"{label}: scored on the {result['split']} split, examples: {result['examples_from']}"
            + (f"; {cut:,} of {result['requests']:,} texts cut from the left" if cut else "")
            + (f"; the first {result['limit']:,} items only" if result["limit"] else "")
        )
    kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    shown = aligned([tuple(row[place] for place in kept) for row in rows])
    return "\n".join([*shown, *notes])


def _score(scores: Mapping[str, Any], items: int | None) -> tuple[str, ...]:
    """Metric, value, standard error and number of items."""
    metric = next((name for name in ("acc_norm", *PERCENT) if name in scores), None)
    metric = metric or next(iter(scores))
    percent = metric.partition(",")[0].startswith(PERCENT)
    value, stderr = (
        "" if number is None else f"{100 * number:.2f}" if percent else f"{number:.4g}"
        for number in (scores[metric]["value"], scores[metric]["stderr"])
    )
    name = f"{metric} %" if percent else metric
    return name, value, stderr, "" if items is None else f"{items:,}"
