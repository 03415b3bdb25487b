"""The parts of the benchmarks, at tiny sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import yuriiformer as yf
from benchmarks.loss import plain_loss
from benchmarks.subjects import rounds_of
from benchmarks.training_step import GD, TINY, Matmuls, steps_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def figures(tmp_path: Path, name: str, *flags: str) -> dict[str, Any]:
    """What a benchmark wrote; it must print something, and end well."""
    out = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHMARKS / name), *flags, "--json", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout
    return json.loads(out.read_text(encoding="utf-8"))


def test_muon():
    found = rounds_of("muon", quick=True)
    assert found["ours / float64"][0] < 1e-4
    assert found["torch / float64"][0] < 0.05  # bfloat16's


def test_matmuls_are_those_of_a_step():
    """Forward and twice that backward, of QKV, output, MLP and logits."""
    size = TINY
    recorder = Matmuls()
    steps = steps_of(size, (GD,))
    with recorder:
        steps[GD]()
    weights = size.layers * (3 + 1 + 4 + 4) * size.width**2 + size.vocab * size.width
    assert recorder.flops() == 3 * 2 * size.batch * size.context * weights


def test_the_plain_step_is_gradient_descents():
    """The benchmark's own computation, beside the model's, in loss and gradients."""
    torch.manual_seed(0)
    model, batch = TINY.model(GD), TINY.tokens()
    grads = []
    for loss in (model, lambda *batch: plain_loss(model, *batch)):
        model.zero_grad(set_to_none=True)
        loss(*batch).backward()
        grads.append([p.grad for p in model.parameters()])
    assert len(grads[0]) > 10
    for one, two in zip(*grads, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_gpu_smoke_on_a_cpu(tmp_path):
    found = figures(tmp_path, "gpu_smoke.py", "--device", "cpu", "--quick")
    assert found["passed"]
    assert all(check["passed"] and not check["error"] for check in found["checks"])
    names = {check["name"] for check in found["checks"]}
    assert names >= {"data", "stop and resume", "several processes"}
    assert names >= {f"{kind}: {rule}" for rule in yf.rules for kind in ("learns", "precision")}


@pytest.mark.slow
def test_gpu_smoke_reports_a_failure_and_goes_on(tmp_path):
    """A rule that does not exist fails its two checks; the others are made all the same."""
    out = tmp_path / "figures.json"
    flags = ["--device", "cpu", "--quick", "--rules", "no-such-rule"]
    command = [sys.executable, str(BENCHMARKS / "gpu_smoke.py"), *flags, "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [check["passed"] for check in found["checks"]] == [True] * 7 + [False] * 2
    assert "no-such-rule" in found["checks"][7]["error"]
