"""Results of ``yurii evaluate`` for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yuriiformer.display.columns import aligned

PAPER_NAMES = {  # of the paper's tasks
    "hellaswag@10": "HellaSwag 10-shot",
    "arc_easy@25": "ARC-Easy 25-shot",
    "hellaswag@0": "HellaSwag 0-shot",
    "arc_easy@0": "ARC-Easy 0-shot",
}
PERCENT = ("acc", "exact_match", "f1", "em", "mcc")  # metrics that are shares

Row = tuple[str, ...]


def validation_text(found: Mapping[str, Any], *, judged: bool) -> str:
    """The losses; ``judged`` by a run that has a validation split of its own."""
    name = found["rule"]
    lines = [f"{name}, {found['checkpoint']} checkpoint, step {found['step']:,}"
             if "step" in found else f"{name}, {found['model']}", ""]  # fmt: skip
    rows: list[Row] = [("", "loss", "perplexity", "bits/byte", "tokens")]
    by = f"protocol ({found['eval_sequences']:,} sequences)"
    for label, part in ((by, found["protocol"]), ("exact", found["exact"])):
        bits = part.get("bits_per_byte")
        rows.append((label, f"{part['loss']:.4f}", f"{part['perplexity']:.4g}",
                     f"{bits:.4f}" if bits else "", f"{part['tokens']:,}"))  # fmt: skip
    lines += aligned(rows)
    if "recorded_val_loss" in found and found["own_data"]:
        lines.append(f"the run recorded {found['recorded_val_loss']:.4f} by the protocol")
    if judged and not found["own_data"]:
        lines.append("note: this is not the validation split that the run was judged by")
    return "\n".join([*lines, found["exact"]["note"]])


def tasks_text(
    found: Mapping[str, Any], figures: Mapping[str, float], references: Mapping[str, float]
) -> str:
    """A row per task, beside the paper's figures for the same rule and its references."""
    rows: list[Row] = [("task", "metric", "value", "± stderr", "items", "paper", "GPT-2 124M")]
    notes = []
    for label, result in found.items():
        for name, scores in result["scores"].items():
            alone = len(result["scores"]) == 1
            title = PAPER_NAMES.get(label, label if alone else f"  {name}")
            rows += _row(title, result["items"].get(name), scores, figures, references)
        cut = result.get("truncated_requests", 0)
        notes.append(
            f"{label}: scored on the {result['split']} split, examples: {result['examples_from']}"
            + (f"; {cut:,} of {result['requests']:,} texts cut from the left" if cut else "")
            + (f"; the first {result['limit']:,} items only" if result["limit"] else "")
        )
    kept = [place for place in range(len(rows[0])) if any(row[place] for row in rows[1:])]
    shown = aligned([tuple(row[place] for place in kept) for row in rows])
    return "\n".join([*shown, *notes])


def _row(
    title: str,
    items: int | None,
    scores: Mapping[str, Any],
    figures: Mapping[str, float],
    references: Mapping[str, float],
) -> list[Row]:
    metric = next((name for name in ("acc_norm", *PERCENT) if name in scores), None)
    metric = metric or next(iter(scores), None)
    if metric is None:  # a group that has no score of its own
        return []
    percent = metric.partition(",")[0].startswith(PERCENT)
    value, stderr = (
        "" if number is None else f"{100 * number:.2f}" if percent else f"{number:.4g}"
        for number in (scores[metric]["value"], scores[metric]["stderr"])
    )
    reference = next((v for what, v in references.items() if f", {title}, " in what), None)
    return [(
        title, f"{metric} %" if percent else metric, value, stderr,
        "" if items is None else f"{items:,}",
        f"{figures[title]:.1f}" if title in figures else "",
        "" if reference is None else f"{reference:.2f}",
    )]  # fmt: skip
