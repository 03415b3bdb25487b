"""``yurii train`` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import yuriiformer as yf
from tests.training.corpora import tales
from yuriiformer.cli.main import main
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.training.presets import PRESETS

FLOAT32 = ("--precision", "float32")  # auto is bfloat16 where the processor has it
FAST = (
    "--steps",
    "4",
    "--eval-every",
    "2",
    "--eval-sequences",
    "8",
    "--sequences",
    "4",
    "--no-tensorboard",
)


def run(*arguments: object) -> int:
    return main(["train", *map(str, arguments)])


def fails(capsys, *arguments: object) -> str:
    """The one line that refuses these arguments."""
    capsys.readouterr()
    assert run(*arguments) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert error.startswith("yurii: ")
    return error


def test_a_run_and_what_it_leaves(tmp_path, capsys):
    out = tmp_path / "run"
    assert run("--data", tales(), "--out", out, "--rule", "polyak-euler", *FAST) == 0
    said = capsys.readouterr()
    assert "finished 4 steps; best validation loss" in said.out
    assert "step 2/4" in said.err
    assert "tok/s" in said.err
    records = read_metrics(out / "metrics.jsonl")
    assert [record["step"] for record in records] == [0, 1, 2, 3, 4]
    assert [record["step"] for record in records if "val_loss" in record] == [0, 2, 4]
    assert set(records[2]["coefficients"]) == {"beta", "gamma"}
    assert len(records[2]["coefficients"]["beta"]) == 2  # layers
    assert records[4]["tokens"] == 4 * 4 * 64
    for name in ("best", "final", "last"):
        model = yf.load_model(out / "checkpoints" / name)
        assert model.config.rule.name == "polyak-euler"
        assert model.config.real_vocab == 512  # the data's
    config = json.loads((out / "config.json").read_text())
    assert config["config"]["recipe"]["steps"] == 4
    assert config["versions"]["torch"]
    assert "attn" in config["config"]["model"]["rule"]["equations"]


def test_going_on(tmp_path, capsys):
    out = tmp_path / "run"
    arguments = ("--data", tales(), "--out", out, *FAST)
    assert run(*arguments, "--resume") == 0  # nothing there yet: it begins
    assert "holds a run already" in fails(capsys, *arguments)
    assert run("--out", out, "--resume") == 0  # finished; nothing else need be said again
    assert "finished 4 steps" in capsys.readouterr().out
    error = fails(capsys, "--out", out, "--resume", "--steps", "6", "--muon-lr", "0.01")
    assert "steps 4 -> 6" in error
    assert "muon_lr 0.02 -> 0.01" in error
    assert "--allow-changed steps muon_lr" in error
    other = tales(700)
    assert "train_tokens" in fails(capsys, "--out", out, "--resume", "--data", other)
    error = fails(capsys, "--out", out, "--resume", "--rule", "gd-euler")
    assert "rule nesterov-lie-trotter -> gd-euler" in error
    assert run("--out", out, "--resume", "--steps", "6", "--allow-changed", "steps") == 0
    assert [r["step"] for r in read_metrics(out / "metrics.jsonl")] == list(range(7))
    history = json.loads((out / "config.json").read_text())["changes"]
    assert history == [{"step": 4, "fields": {"steps": [4, 6]}}]
    # what changes no number may always change
    assert run("--out", out, "--resume", "--save-every", "1") == 0


@pytest.mark.parametrize("name", PRESETS)
def test_dry_run(name, capsys):
    little = ("--n-layer", "1", "--n-head", "1", "--d-model", "8", "--context", "16")
    little += ("--sequences", "2", "--micro-batch", "1")
    little += ("--n-kv-head", "1") if PRESETS[name]("gd-euler").model.n_kv_head else ()
    assert run("--preset", name, "--data", tales(), "--dry-run", *little) == 0
    plan = capsys.readouterr().out
    for word in ("Parameters", "epochs", "Memory", "tokens", "vocabulary 512", "1 layers"):
        assert word in plan


def test_help_names_the_presets_defaults(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--preset", "openwebtext-medium", "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "0.006" in text
    assert "30000" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--out", "x"), "--data is needed"),
        (("--data", "nowhere", "--out", "x"), "no prepared data in 'nowhere'"),
        (("--data", "DATA"), "--out is needed"),
        (("--data", "DATA", "--out", "x", "--preset", "tales-tny"), "did you mean 'tales-tiny'"),
        (("--data", "DATA", "--out", "x", "--rule", "gd-eular"), "did you mean"),
        (("--data", "DATA", "--out", "x", "--steps", "0"), "steps must be at least 1"),
        (("--data", "DATA", "--out", "x", "--steps", "many"), "many"),
        (("--data", "DATA", "--out", "x", "--muon-lr", "-1"), "muon_lr must be a number"),
        (("--data", "DATA", "--out", "x", "--muon-momentum", "1.0"), "below 1"),
        (("--data", "DATA", "--out", "x", "--d-model", "65"), "n_head"),
        (("--data", "DATA", "--out", "x", "--device", "toaster"), "unknown device 'toaster'"),
        (("--data", "DATA", "--out", "x", "--device", "mps"), "not there on this machine"),
        (("--data", "DATA", "--out", "x", "--context", "999999"), "shorter than one block"),
        (("--data", "DATA", "--out", "x", "--context", "60000"), "--eval-every 0"),
        (("--data", "DATA", "--out", "FILE"), "is not a folder"),
        (("--data", "DATA", "--out", "x", "--no-such-flag"), "no-such-flag"),
        (("--data", "DATA", "--out", "x", "--allow-changed", "stepps"), "stepps"),
    ],
)
def test_bad_input_is_told_in_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    places = {"DATA": tales(), "FILE": tmp_path / "file"}
    assert words in fails(capsys, *FAST, *(places.get(a, a) for a in arguments))
    assert not Path("x/config.json").exists()


def test_the_same_seed_gives_the_same_bits(tmp_path):
    finals = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("--data", tales(), "--out", tmp_path / name, "--seed", seed, *FAST) == 0
        finals.append((tmp_path / name / "checkpoints/final/model.safetensors").read_bytes())
    assert finals[0] == finals[1]
    assert finals[0] != finals[2]


def test_every_part_of_the_machine(tmp_path):
    """Recomputing changes no bit; other micro-batches and bfloat16 change little."""
    losses = {}
    for name, flags in {
        "plain": FLOAT32,
        "recompute": (*FLOAT32, "--recompute"),
        "micro": (*FLOAT32, "--micro-batch", "3"),
        "bfloat16": ("--precision", "bfloat16"),
        "streams": ("--precision", "bfloat16", "--stream-precision", "bfloat16"),
    }.items():
        narrow = ("--d-model", "32", "--context", "32", *flags)
        assert run("--data", tales(), "--out", tmp_path / name, *FAST, *narrow) == 0
        records = read_metrics(tmp_path / name / "metrics.jsonl")
        losses[name] = [record["loss"] for record in records[1:]]
    assert losses["recompute"] == losses["plain"]
    assert losses["micro"] == pytest.approx(losses["plain"], rel=1e-5)
    assert losses["bfloat16"] == pytest.approx(losses["plain"], rel=1e-2)
    assert losses["bfloat16"] != losses["plain"]
    assert losses["streams"] == pytest.approx(losses["plain"], rel=2e-2)
    assert losses["streams"] != losses["bfloat16"]


def test_tensorboard_has_losses_rates_and_coefficients(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    assert run("--data", tales(), "--out", out, *FAST, "--tensorboard") == 0
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert tags >= {
        "loss/train",
        "loss/validation",
        "lr/muon",
        "lr/adamw",
        "run/grad_norm",
        "coefficients/beta/0",
        "coefficients/mu_half/1",
    }
    assert [event.step for event in events.Scalars("loss/train")] == [1, 2, 3, 4]


@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path):
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
    out = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "yuriiformer",
        "train",
        "--data",
        str(tales()),
        "--out",
        str(out),
        *FAST,
        "--wandb",
        "project",
    ]
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert list((out / "wandb").glob("offline-run-*/*.wandb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the compiler's own remarks on itself
def test_compiled_blocks_train_the_same(tmp_path, need_tool):
    need_tool("g++")
    losses = []
    for name in ("on", "off"):
        # The last micro-batch is smaller.
        flags = (*FLOAT32, "--compile", name, "--micro-batch", "3")
        assert run("--data", tales(), "--out", tmp_path / name, *FAST, *flags) == 0
        records = read_metrics(tmp_path / name / "metrics.jsonl")
        losses.append([record["loss"] for record in records[1:]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_run_from_another_runs_configuration(tmp_path, capsys):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    path = tmp_path / "mine.toml"
    path.write_text('equations = """\nX = X + attn(X)\nX = X + 0.5 * mlp(X)\n"""\n')
    assert run("--data", tales(), "--out", first, "--rule", path, "--seed", "3", *FAST) == 0
    path.unlink()  # the configuration has the rule's text
    assert run("--data", tales(), "--out", second, "--config", first / "config.json") == 0
    one, two = (json.loads((out / "config.json").read_text()) for out in (first, second))
    assert one["config"] == two["config"]
    losses = [
        [r.get("loss") for r in read_metrics(out / "metrics.jsonl")] for out in (first, second)
    ]
    assert losses[0] == losses[1]
    more = ("--config", first / "config.json", "--seed", "4", "--rule", "gd-euler")
    assert run("--data", tales(), "--out", third, *more) == 0
    changed = json.loads((third / "config.json").read_text())["config"]
    assert changed["recipe"]["seed"] == 4
    assert changed["model"]["rule"]["name"] == "gd-euler"
    assert changed["recipe"]["steps"] == 4
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "text.json").write_text("{")
    for arguments, words in (
        (("--config", tmp_path / "none.json"), "cannot be read"),
        (("--config", tmp_path / "text.json"), "is not JSON"),
        (("--config", tmp_path / "list.json"), "is no configuration"),
        (("--config", first / "config.json", "--preset", "tales-tiny"), "choose one"),
    ):
        assert words in fails(capsys, "--data", tales(), "--out", tmp_path / "x", *arguments)


def test_the_plan_is_kept(tmp_path):
    assert run("--data", tales(), "--out", tmp_path / "run", *FAST) == 0
    plan = json.loads((tmp_path / "run" / "config.json").read_text())["plan"]
    model = yf.load_model(tmp_path / "run" / "checkpoints" / "final")
    assert plan["parameters"] == model.num_parameters()
    assert plan["start_tables"] == model.num_parameters(velocity_table=True) - plan["parameters"]
    c = model.config
    scores = 4 * c.context * c.d_model * c.n_layer  # whose backward pass computes them once more
    assert (3 * plan["forward_flops_a_token"] + scores / 2) * plan["tokens"] == pytest.approx(
        plan["flops"]
    )
