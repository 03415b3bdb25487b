"""The data of a report's page."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from yuriiformer.comparison.outcomes import Arm, Comparison, Outcome, same_data
from yuriiformer.display.curves import smooth, thin
from yuriiformer.display.page import Page, for_json
from yuriiformer.methods.drawing.equations import unicode_equations
from yuriiformer.methods.drawing.listing import human_count
from yuriiformer.methods.rule import Rule
from yuriiformer.report.curves import across_axis, difference_curve, drawn_runs, mean_curve, styles
from yuriiformer.report.downstream import TITLE, downstream_table
from yuriiformer.report.headline import (
    CLAIMS,
    HYPOTHESES,
    claims_sentence,
    claims_table,
    headline,
    hypothesis_sentence,
    hypothesis_table,
)
from yuriiformer.report.results import result_table
from yuriiformer.report.scaling import scaling_payload, scaling_tables
from yuriiformer.runs.metrics import Curves
from yuriiformer.runs.run import Run

SCRIPTS = """report_table.js report_curves.js report_scaling.js report_coefficients.js
    report_text.js report.js"""
PAGE = Page("report", "report.html", ("report.css",), tuple(SCRIPTS.split()))
SIGMAS = (0, 10, 50, 200)  # steps
BUCKETS, SMOOTH_BUCKETS = 150, 80  # of a raw and a smoothed curve, up to four points each
MOMENTS = 60  # of a coefficient's path

Samples = Mapping[str, tuple[list[dict[str, Any]], str]]  # of an arm's first run, by its folder


@dataclass(frozen=True)
class Extras:
    """What a page shows besides the comparisons."""

    title: str = "YuriiFormer report"
    made: str = ""
    samples: Samples = field(default_factory=dict)
    commands: Sequence[tuple[str, str]] = ()


def payload(comparisons: Sequence[Comparison], extras: Extras) -> dict[str, Any]:
    """All that the page needs, as rounded data."""
    said, remarks = [], []
    for each in comparisons:
        prefix = f"{each.name}: " if each.name else ""
        asked = [each.study.question, hypothesis_sentence(each)] if each.study else []
        told = (*asked, *headline(each), claims_sentence(each))
        said += [prefix + text for text in told if text]
        remarks += [prefix + text for text in each.remarks]
        remarks += [text for text in result_table(each).footnotes if text not in remarks]
    page = {
        "title": extras.title,
        "subtitle": " · ".join(_subtitle(each) for each in comparisons),
        "made": extras.made,
        "headline": said,
        "remarks": remarks,
        "groups": [_group(each, extras.samples) for each in comparisons],
        "commands": [{"what": what, "command": text} for what, text in extras.commands],
        "data": _data(comparisons),
    }
    return dict(for_json(page, digits=6))


def _subtitle(comparison: Comparison) -> str:
    arms, seeds = len(comparison.arms), len(comparison.seeds)
    name = comparison.name or comparison.preset
    shape = f"{arms} arm{'s' * (arms > 1)} × {seeds} seed{'s' * (seeds > 1)}"
    steps = max(arm.first.steps for arm in comparison.arms)
    return " · ".join(filter(None, [name, shape, f"{steps:,} steps"]))


def _data(comparisons: Sequence[Comparison]) -> list[list[str]]:
    """The data of all comparisons, or of each under its name where they differ."""
    if same_data(comparisons):
        return data_facts(comparisons[0].arms[0].first)
    return [
        [f"{each.name}: {name}", text]
        for each in comparisons
        for name, text in data_facts(each.arms[0].first)
    ]


def data_facts(run: Run) -> list[list[str]]:
    data = run.data
    facts = [
        ("folder", data.get("folder")),
        ("tokeniser", data.get("tokenizer")),
        ("training tokens", data.get("train_tokens")),
        ("validation tokens", data.get("val_tokens")),
        ("SHA-256 of the training tokens", data.get("train_sha256")),
    ]
    known = [(name, value) for name, value in facts if value is not None]
    return [[name, f"{value:,}" if isinstance(value, int) else value] for name, value in known]


def _group(comparison: Comparison, samples: Samples) -> dict[str, Any]:
    style = styles(comparison)
    base = comparison.baseline
    return {
        "name": comparison.name,
        "metric": comparison.metric.capitalize(),
        "baseline": base.slug,
        "table": result_table(comparison).to_payload(),
        "tables_extra": _extra_tables(comparison),
        "scaling": scaling_payload(comparison),
        "ranking": [
            {
                "arm": each.arm.slug,
                **asdict(comparison.primary(each)),
                "points": list(each.arm.values(comparison.metric).values()),
            }
            for each in comparison.ranked()
        ],
        "arms": [_arm(each, base, style[each.arm.slug], samples) for each in comparison.outcomes],
    }


def _extra_tables(comparison: Comparison) -> list[dict[str, Any]]:
    tables = {
        HYPOTHESES: hypothesis_table(comparison),
        CLAIMS: claims_table(comparison),
        TITLE: downstream_table(comparison),
        **scaling_tables(comparison),
    }
    made = [(title, table) for title, table in tables.items() if table is not None]
    return [{"title": title, "note": " ".join(t.footnotes), **t.to_payload()} for title, t in made]


def _arm(each: Outcome, base: Arm, style: int, samples: Samples) -> dict[str, Any]:
    arm = each.arm
    found, note = samples.get(str(arm.first.folder), ([], "no sample was made"))
    return {
        "id": arm.slug,
        "label": arm.label,
        "rule": arm.rule.name,
        "baseline": arm.slug == base.slug,
        "style": style,
        "tokens_a_step": arm.first.plan("tokens_a_step"),
        "flops_a_token": arm.first.flops_a_token,
        "curves": _curves(drawn_runs(arm), arm.first.steps),
        "runs": [_run(run) for run in arm.runs],
        "difference": None if arm.slug == base.slug else _difference(arm, base),
        "coefficients": _coefficients(arm.first.curves),
        "diagram": block_svg(arm.rule),
        "equations": unicode_equations(arm.rule),
        "note": arm.rule.note,
        "samples": found,
        "samples_note": note,
        "facts": _facts(each),
        "config": arm.first.config.to_dict(),
        "command": repeat_command(arm.first),
    }


def _run(run: Run) -> dict[str, Any]:
    more = {
        "unfinished": f"{run.step:,} of {run.steps:,} steps",
        "failed": f"failed: {run.failure}",
    }
    return {
        "seed": run.seed,
        "status": "running or stopped" if run.status == "unfinished" else run.status,
        "status_text": more.get(run.status, run.status),
        "step": run.step,
        "steps": run.steps,
        "folder": str(run.folder),
        "curves": _curves([run], run.steps),
    }


def _curves(runs: Sequence[Run], steps: int) -> dict[str, Any] | None:
    """Curves of a run, or means over seeds, at the steps that all of them have."""
    begun = [run for run in runs if len(run.curves.step) or len(run.curves.val_step)]
    if not begun:
        return None
    step, loss = mean_curve([(run.curves.val_step, run.curves.val_loss) for run in begun])
    train = mean_curve([(run.curves.step, run.curves.loss) for run in begun])
    return {
        "val": {"step": step, "loss": loss},
        "train": smoothed(*train, steps),
        "time": _time(begun),
    }


def smoothed(step: Any, loss: Any, steps: int) -> dict[str, Any]:
    """A training curve raw (thinned, its extremes kept) and smoothed over all its points."""
    found = {}
    for sigma in SIGMAS:
        if sigma and (sigma > steps / 10 or len(step) < 3):
            continue
        value = smooth(step, loss, sigma)
        kept = thin(step, value, SMOOTH_BUCKETS if sigma else BUCKETS)
        found[str(sigma)] = {"step": np.asarray(step)[kept], "loss": value[kept]}
    return found


def _time(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Seconds until a step, as the mean over seeds."""
    last = min((int(run.curves.step[-1]) for run in runs if len(run.curves.step)), default=None)
    if last is None:
        return None
    steps = np.unique(np.linspace(0, last, 40).astype(int))
    return {"step": steps, "seconds": across_axis(runs, steps, "time")}


def _difference(arm: Arm, base: Arm) -> dict[str, Any] | None:
    found = difference_curve(arm, base)
    if not found.n:
        return None
    return {"step": found.step, "mean": found.mean, "low": found.low, "high": found.high}


def _coefficients(curves: Curves) -> dict[str, Any] | None:
    """The path of every coefficient, layer by layer, at some of the validations."""
    known = curves.coefficients
    if not known or not known[-1][1]:
        return None
    kept = [known[i] for i in np.unique(np.linspace(0, len(known) - 1, MOMENTS).astype(int))]
    names = [name for name in known[-1][1] if "." not in name]
    return {
        "steps": [step for step, _ in kept],
        "values": {name: [values.get(name, []) for _, values in kept] for name in names},
    }


def _facts(each: Outcome) -> list[list[str]]:
    calls = each.arm.rule.oracle_calls
    facts = [
        ("rule", each.arm.rule.name),
        ("a block calls", f"attention {calls['attn']} ×, MLP {calls['mlp']} ×"),
        ("parameters", each.parameters and f"{each.parameters:,.0f}"),
        ("start tables (v0)", f"{each.start_tables:,.0f}"),
        ("FLOPs per token (training)", each.flops_a_token and human_count(int(each.flops_a_token))),
        ("tokens per second", each.tokens_per_second and f"{each.tokens_per_second:,.0f}"),
    ]
    return [[name, text] for name, text in facts if text]


def repeat_command(run: Run) -> str:
    """One run again, from the configuration in its folder."""
    config = run.folder if run.archived else run.folder.resolve() / "config.json"
    data = run.data.get("folder", "DATA")
    words = ["yurii", "train", "--config", str(config), "--data", data]
    return shlex.join([*words, "--out", "again"])


@cache
def block_svg(rule: Rule) -> str:
    """The block's drawing as SVG; arms that differ in their settings share it."""
    from yuriiformer.methods.drawing.diagram import draw_rule  # noqa: PLC0415  matplotlib takes a second

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.svg"
        draw_rule(rule, path)
        return path.read_text(encoding="utf-8")
