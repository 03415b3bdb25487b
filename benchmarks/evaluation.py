"""The paper's four tasks by our model in the evaluation harness, and by the harness's own ``hf``
model of the same weights, exported as GPT-2. Each task is a round, and every score must be equal.
"""

from __future__ import annotations

import io
import tempfile
import time
from contextlib import redirect_stderr
from typing import Any

import yuriiformer as yf
from benchmarks.measuring import DATA, MissingError, Rounds, Row, subject
from benchmarks.training_step import GD
from yuriiformer.evaluation.local_tasks import PAPER_TASKS, parse_tasks

SIZE = {"n_layer": 6, "n_head": 6, "d_model": 384, "context": 512}
QUICK = {"n_layer": 2, "n_head": 2, "d_model": 32, "context": 512}
ITEMS = 200
HF_BATCH = 8  # the fastest of 1, 4, 8, 16 and 32 on two cores


def pair(size: dict[str, int]) -> dict[str, Any]:
    """The two models of the harness, with the same weights."""
    from lm_eval.models.huggingface import HFLM

    from yuriiformer.data.tokenizers import GPT2
    from yuriiformer.evaluation.harness import YuriiLM
    from yuriiformer.huggingface.export import export_model

    model = yf.YuriiFormer(yf.ModelConfig(GD, **size, vocab_size=50257))
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        export_model(model, folder, GPT2(), kind="gpt2")
        theirs = HFLM(pretrained=folder, dtype="float32", device="cpu", batch_size=HF_BATCH)
    return {"ours": YuriiLM(model, GPT2()), "hf": theirs}


@subject(
    "harness",
    Row(
        f"Speed of the paper's four tasks, {ITEMS} items each: {SIZE['n_layer']} layers, "
        f"d {SIZE['d_model']}, context {SIZE['context']}",
        f"the harness's `hf` model, batch {HF_BATCH}",
        ("hf", "ours"),
        "≥ 2",
        pooled=True,
    ),
)
def harness(*, quick: bool) -> Rounds:
    from yuriiformer.evaluation.tasks import run_tasks

    if not (DATA / "hellaswag").is_dir() or not (DATA / "arc_easy").is_dir():
        raise MissingError("HellaSwag and ARC-Easy are not here (docs/evaluating.md)")
    models = pair(QUICK if quick else SIZE)
    rounds: Rounds = {name: [] for name in models}
    for spec in parse_tasks(list(PAPER_TASKS)[2:] if quick else ["paper"]):
        scores = {}
        for name, lm in models.items():
            start = time.perf_counter()
            [(_, found)] = run_tasks(lm, [spec], limit=4 if quick else ITEMS, tasks_data=DATA)
            rounds[name].append(time.perf_counter() - start)
            scores[name] = found["scores"]
        assert scores["ours"] == scores["hf"], f"{spec}: {scores}"
    return rounds
