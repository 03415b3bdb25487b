"""The benchmarks of training run, at tiny sizes, and write the figures they promise."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import yuriiformer as yf

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


def figures_here(tmp_path: Path, monkeypatch, capsys, name: str, *flags: str) -> dict[str, Any]:
    """The same in this process, which has imported torch already."""
    out = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", [name, *flags, "--json", str(out)])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
    assert capsys.readouterr().out
    return json.loads(out.read_text(encoding="utf-8"))


def all_positive(values: dict[str, dict[str, float]], kinds: set[str]) -> bool:
    return all(set(each) >= kinds and min(each.values()) > 0 for each in values.values())


def test_muon(tmp_path, monkeypatch, capsys):
    found = figures_here(tmp_path, monkeypatch, capsys, "muon.py", "--quick")
    assert len(found["matrices"]) == 4 * found["layers"]
    assert found["torch / ours"].keys() == {"median", "best"}
    assert all_positive(found["seconds"], {"median", "best", "rounds"})
    near = found["near"]
    assert near["ours / torch"]["least_cosine"] > 0.999
    assert near["ours / torch"]["largest_relative_difference"] < 0.05  # bfloat16's
    assert near["ours / float64"]["largest_relative_difference"] < 1e-4


def test_training_step(tmp_path, monkeypatch, capsys):
    pytest.importorskip("transformers")
    found = figures_here(tmp_path, monkeypatch, capsys, "training_step.py", "--quick")
    small, large = found["speed"]
    assert small["size"]["vocab"] < large["size"]["vocab"]
    for part in (small, large):
        ways = {"gd", "nesterov", "gpt2 hf", "gpt2 hf exact gelu"}
        assert part["seconds"].keys() == ways | {"matmuls alone", "attention alone"}
        wanted = {"nesterov / gd", "gd / gpt2 hf", "gd / gpt2 hf exact gelu", "matmuls alone / gd"}
        assert part["ratios"].keys() >= wanted
        assert all_positive(part["seconds"], {"median", "best"})
        assert all_positive(part["ratios"], {"median", "best"})
        assert 1 < part["saved_ratios"]["nesterov / gd"]["bytes"] < 3
        assert part["matmul_flops"] == matmul_flops(**part["size"])
        assert part["attainable_flops_per_second"] > 0


def matmul_flops(vocab: int, layers: int, heads: int, width: int, context: int, batch: int) -> int:
    """Forward and twice that backward, of QKV, output, MLP and logits."""
    assert width % heads == 0
    weights = layers * (3 + 1 + 4 + 4) * width**2 + vocab * width
    return 3 * 2 * batch * context * weights


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
    assert [check["passed"] for check in found["checks"]] == [True] * 3 + [False] * 2
    assert "no-such-rule" in found["checks"][3]["error"]


@pytest.mark.slow
def test_generation(tmp_path, monkeypatch, capsys):
    found = figures_here(tmp_path, monkeypatch, capsys, "generation.py", "--quick")
    assert min(found["tokens_per_second"].values()) > 0
    assert set(found["ratios"]) == {
        "gd / hf gpt2",
        "nesterov / hf gpt2",
        "cache / no cache",
        "time of nesterov / gd",
    }
