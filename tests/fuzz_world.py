"""Small files of every kind for `tests.fuzz`, and the commands that read each."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.training.runs import small, tales
from yuriiformer.cli.main import main
from yuriiformer.comparison.archive import read_suite, write_archive
from yuriiformer.comparison.arms import make_arms
from yuriiformer.comparison.definition import Request
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.training.session import train

SECONDS = 60  # a case may take; machines may be busy


@dataclass(frozen=True)
class World:
    """Small files of every kind, and the commands that read each."""

    home: Path

    @property
    def readers(self) -> dict[str, list[list[str]]]:
        h = str(self.home)
        run, out = f"{h}/run", f"{h}/out"
        chosen, nowhere = ["--rules", "gd-lie-trotter"], ["--data", f"{h}/none"]
        sample = ["sample", run, "--max-new-tokens", "2"]
        report = ["report", run, "--no-figures", "--no-samples", "--out", out]
        suite = ["report", f"{h}/suite", "--no-figures", "--no-samples", "--out", out]
        archive = ["report", f"{h}/archive", "--no-figures", "--out", out]
        model = ["sample", f"{h}/model", "--max-new-tokens", "2"]
        resume = ["train", "--resume", "--out", run, "--no-tensorboard"]
        again = ["suite", "--out", f"{h}/suite", "--print-commands"]
        return {
            "run/config.json": [report, sample, resume],
            "run/samples.json": [[*report[:3], "--out", out, "--max-new-tokens", "2"]],
            "run/evaluation/task.json": [report],
            "run/nonfinite.json": [report],
            "run/checkpoints/best/manifest.json": [sample],
            "run/checkpoints/best/model.json": [sample],
            "run/checkpoints/last/state.json": [resume],
            "suite/suite.json": [suite, again],
            "suite/failures.json": [suite],
            "suite/configs/gd-lie-trotter/seed-0.json": [suite, again],
            "archive/archive.json": [archive],
            "archive/runs/gd-lie-trotter/seed-0.json.gz": [archive],
            "data/meta.json": [
                ["data", "show", f"{h}/data"],
                ["suite", "--data", f"{h}/data", "--out", out, *chosen, "--print-commands"],
            ],
            "model/model.json": [model],
            "gpt2/config.json": [["sample", f"{h}/gpt2", "--max-new-tokens", "2"]],
            "part.json": [["train", "--config", f"{h}/part.json", *nowhere, "--out", out]],
            "lab/lab.json": [
                [
                    "lab",
                    "quadratic",
                    "--rules",
                    "gd-lie-trotter",
                    "--steps",
                    "2",
                    "--no-figures",
                    "--out",
                    f"{h}/lab",
                ]
            ],
        }


def build(home: Path) -> World:
    """Train one small run, and make everything else from it."""
    home.mkdir(parents=True, exist_ok=True)
    shutil.copytree(tales(), home / "data")
    run = home / "run"
    train(small("gd-lie-trotter", steps=3, eval_every=2), home / "data", run)
    quiet(
        ["report", str(run), "--no-figures", "--out", str(home / "first"), "--max-new-tokens", "2"]
    )
    manifest = json.loads((run / "checkpoints/best/manifest.json").read_text())
    task = {
        "checkpoint": "best",
        "sha256": manifest["files"]["model.safetensors"]["sha256"],
        "task": "t",
        "scores": {"t": {"acc": {"value": 0.5, "stderr": 0.1}}},
        "items": {"t": 4},
        "items_there": {"t": 4},
    }
    (run / "evaluation").mkdir()
    (run / "evaluation/task.json").write_text(json.dumps(task))
    (run / "nonfinite.json").write_text('{"step": 2}')
    suite = SuiteFolder(home / "suite")
    saved = json.loads((run / "config.json").read_text())
    request = Request("tales-tiny", make_arms(["gd-lie-trotter"], [], []), [0], saved["data"])
    [spec] = suite.extend(request, "yurii suite")
    shutil.copytree(run, spec.folder.path)
    suite.failures_file.write_text('{"gd-lie-trotter/seed-0": "a failure"}')
    write_archive(read_suite(suite), home / "archive")
    quiet(["import", str(run), str(home / "model")])
    write_gpt2(home / "gpt2")
    part = {"preset": "tales-tiny", "steps": 2, "model": {"n_layer": 1}, "muon_lr": 0.1}
    (home / "part.json").write_text(json.dumps(part))
    quiet(
        [
            "lab",
            "quadratic",
            "--rules",
            "gd-lie-trotter",
            "--steps",
            "2",
            "--no-figures",
            "--out",
            f"{home}/lab",
        ]
    )
    return World(home)


def write_gpt2(folder: Path) -> None:
    """As Hugging Face writes one, without needing its library."""
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "vocab_size": 257, "n_positions": 16}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    shapes = {"wte.weight": (257, 8), "wpe.weight": (16, 8), "ln_f.weight": (8,), "ln_f.bias": (8,)}
    for name, (inner, outer) in {
        "attn.c_attn": (8, 24),
        "attn.c_proj": (8, 8),
        "mlp.c_fc": (8, 32),
        "mlp.c_proj": (32, 8),
    }.items():
        shapes |= {f"h.0.{name}.weight": (inner, outer), f"h.0.{name}.bias": (outer,)}
    for name in ("ln_1", "ln_2"):
        shapes |= {f"h.0.{name}.weight": (8,), f"h.0.{name}.bias": (8,)}
    save_file(
        {name: torch.zeros(shape) for name, shape in shapes.items()}, folder / "model.safetensors"
    )


class TooLongError(BaseException):
    """A case took too long."""


def quiet(words: list[str]) -> tuple[Any, str]:
    """A command's exit code (or its exception's trace), and what it said."""
    out, err = io.StringIO(), io.StringIO()

    def alarm(*_: Any) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code: Any = main(words)
    except SystemExit as stop:
        code = stop.code or 0
    except TooLongError:
        code = "took too long: " + "".join(traceback.format_exc()[-600:])
    except BaseException:
        code = traceback.format_exc()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    return code, err.getvalue()
