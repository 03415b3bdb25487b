"""A trained transformer continued with several rules."""

from __future__ import annotations

import numpy as np

from results.tables.archives import STUDY, markdown
from yuriiformer.comparison.collect import collect


def upcycling_table() -> str:
    """A row for each rule that a trained transformer was continued with: how far the loss jumps at
    step 0, where it ends, and the verdict on the hypothesis about it."""
    [comparison] = collect([STUDY / "upcycling"])
    said = {each.hypothesis.arm: each.verdict for each in comparison.verdicts}
    rows = []
    for each in comparison.outcomes:
        jumps = [run.curves.val_loss[0] - run.saved["init"]["loss_before"] for run in each.arm.runs]
        own, beside = each.exact, each.difference
        interval = ""
        if each.arm.slug != comparison.baseline.slug:
            interval = f"{beside.mean:+.4f} ({beside.low:+.4f} to {beside.high:+.4f})"
        row = [f"`{each.arm.rule.name}`", f"{np.mean(jumps):+.4f}", f"{own.mean:.4f}", interval]
        rows.append([text.replace("-0", "−0") for text in row] + [said.get(each.arm.label, "")])
    heads = ["continued as", "jump at step 0", "exact loss", "difference (95 %)", "hypothesis"]
    return markdown(heads, rows)
