"""Small suites, in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from tests.training.runs import tales
from yuriiformer.runs.metrics import read_metrics

SMALL = [
    *("d_model=32", "context=32", "sequences=8", "micro_batch=4"),
    *("eval_every=4", "eval_sequences=8", "save_every=3"),
    *("device=cpu", "compile=off", "precision=float32", "tensorboard=false"),
]


def command(out: Path, *more: str, steps: int = 8, rules: tuple[str, ...] = ()) -> list[str]:
    """``yurii suite`` on small tales."""
    words = [
        sys.executable,
        "-m",
        "yuriiformer",
        "suite",
        "--data",
        str(tales()),
        "--out",
        str(out),
    ]
    words += ["--threads", "1", "--set", f"steps={steps}", *SMALL]
    return [*words, *(["--rules", *rules] if rules else []), *more]


def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True, "text": True, "timeout": 500, **options}
    return subprocess.run(words, check=False, **options)


def results(
    suite: Path, arms: str = "*"
) -> dict[str, tuple[list[dict[str, Any]], dict[str, bytes]]]:
    """Of every run (of these arms), its records without times, and the bits of its last weights."""
    found = {}
    for config in sorted(suite.glob(f"runs/{arms}/*/config.json")):
        folder = config.parent
        records = read_metrics(folder / "metrics.jsonl")
        kept = [{k: v for k, v in record.items() if k != "timing"} for record in records]
        weights = load_file(folder / "checkpoints" / "final" / "model.safetensors")
        found[str(folder.relative_to(suite))] = (
            kept,
            {name: tensor.tobytes() for name, tensor in weights.items()},
        )
    return found


def definition(suite: Path) -> dict[str, Any]:
    return dict(json.loads((suite / "suite.json").read_text()))
