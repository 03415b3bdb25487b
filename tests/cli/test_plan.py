"""``yurii plan`` as a user meets it."""

from __future__ import annotations

import json

import pytest

import yuriiformer as yf
from tests.training.corpora import tales
from yuriiformer.cli.main import main
from yuriiformer.planning import devices
from yuriiformer.planning.devices import known_devices

SMALL = (
    "--preset",
    "tales-tiny",
    "--n-layer",
    "1",
    "--vocab-size",
    "128",
    "--sequences",
    "4",
    "--micro-batch",
    "2",
)


def run(*arguments: object) -> int:
    return main(["plan", *map(str, arguments)])


def planned(capsys, *arguments: object):
    capsys.readouterr()
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_a_plan_has_all_sections(capsys):
    assert run(*SMALL) == 0
    text = capsys.readouterr().out
    for words in (
        "Parameters",
        "Work, FLOPs per token",
        "Memory of a process, micro-batch 2",
        "Time",
        "Beside gd-lie-trotter",
        "Disk",
        "NVIDIA H200",
        "assumed: --mfu",
    ):
        assert words in text


def test_flags_change_the_plan(capsys):
    plain = planned(capsys, *SMALL)
    assert plain["rule"] == yf.ModelConfig().rule.name
    assert plain["model"]["vocab_size"] == 128
    assert plain["disk"]["data"] is None
    more = planned(
        capsys,
        *SMALL,
        "--steps",
        240,
        "--device",
        "t4",
        "--gpus",
        2,
        "--mfu",
        0.2,
        "--tokens",
        5000,
        "--recompute",
        "--rule",
        "gd-euler",
    )
    assert more["rule"] == "gd-euler"
    assert more["run"]["tokens"] == 2 * plain["run"]["tokens"]
    assert (more["run"]["gpus"], more["run"]["precision"]) == (2, "float32")
    assert more["run"]["recompute"]
    assert more["flops"]["recomputed"] > 0
    assert more["time"]["mfu"] == 0.2
    assert more["disk"]["data"] == 10_000


def test_several_rules_in_a_table(capsys):
    names = ("gd-lie-trotter", "nesterov-lie-trotter+V=zero")
    assert run(*SMALL, "--rules", *names) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "rule"
    assert [line.split()[0] for line in lines[1:3]] == list(names)
    found = planned(capsys, *SMALL, "--rules", *names)
    assert [each["rule"] for each in found] == list(names)


@pytest.mark.slow
def test_the_whole_catalogue(capsys):
    found = planned(capsys, *SMALL, "--all-rules")
    assert [each["rule"] for each in found] == list(yf.rules)


def test_the_datas_vocabulary_and_size(capsys):
    store = yf.TokenStore.open(tales())
    found = planned(capsys, "--preset", "tales-tiny", "--n-layer", 1, "--data", tales())
    assert found["model"]["vocab_size"] == 512
    tokens = len(store.train) + len(store.val)
    assert found["disk"]["data"] == 2 * tokens
    assert found["run"]["epochs"] == pytest.approx(120 * 16 / ((len(store.train) - 1) // 64))


def test_this_machine_is_measured(capsys):
    found = planned(capsys, *SMALL, "--device", "cpu")
    assert found["time"]["measured"]
    assert 0 < found["time"]["mfu"] < 1.5
    assert 1e9 < found["device"]["float32"] < 1e14
    assert 1e8 < found["device"]["bandwidth"] < 1e13
    assumed = planned(capsys, *SMALL, "--device", "cpu", "--mfu", 0.3)
    assert not assumed["time"]["measured"]
    assert assumed["time"]["mfu"] == 0.3


def test_every_rule_of_a_table_is_measured(capsys):
    words = ("--rules", "gd-lie-trotter", "verlet-ama", "gd-lie-trotter", "--device", "cpu")
    found = planned(capsys, *SMALL, *words)
    assert [each["rule"] for each in found] == ["gd-lie-trotter", "verlet-ama"]
    assert all(each["time"]["measured"] for each in found)
    assert found[0]["time"]["training_seconds"] != found[1]["time"]["training_seconds"]
    run(*SMALL, "--rules", "gd-lie-trotter", "--device", "cpu")
    assert "(measured)" in capsys.readouterr().out


def test_a_step_that_would_take_long_is_not_taken(capsys, monkeypatch):
    monkeypatch.setattr(devices, "PATIENCE", 1e-9)
    monkeypatch.setattr(devices, "time_step", None)
    assert not planned(capsys, *SMALL, "--device", "cpu")["time"]["measured"]


def test_sizes_of_corpora_are_of_their_tokeniser(capsys):
    little = ("--n-layer", 1, "--n-head", 2, "--d-model", 64, "--context", 64, *SMALL[-4:])
    known = planned(capsys, *little)
    assert known["disk"]["tokens"] == 473_992_236
    other = planned(capsys, *little, "--vocab-size", 128)  # the model of the other tests
    assert other["disk"]["tokens"] is None


def test_the_devices(capsys):
    assert run("--devices") == 0
    text = capsys.readouterr().out
    assert all(name in text for name in known_devices())
    assert "data sheets" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "h20"), "did you mean 'h200'"),
        (("--device", "abacus"), "known are"),
        (("--gpus", "0"), "gpus must be at least 1"),
        (("--gpus", "5"), "5 GPUs for 4 sequences"),
        (("--mfu", "2"), "mfu must be above 0"),
        (("--vocab-size", "70000"), "at most 65536"),
        (("--context", "9223372036854775807"), "context must be at most"),
        (("--tokens", "0"), "tokens must be at least 1"),
        (("--vocab-size", "0"), "vocab_size must be"),
        (("--device", "cpu", "--gpus", "2"), "leave --gpus out"),
        (("--device", "t4", "--precision", "bfloat16"), "no bfloat16"),
        (("--rule", "gd-eular"), "did you mean"),
        (("--rule", "gd-euler", "--all-rules"), "choose one"),
        (("--preset", "tiny-tales"), "unknown preset"),
        (("--data", "nowhere"), "leave those flags out"),
        (("--micro-batch", "0"), "micro_batch must be at least 1"),
        (("--steps", "many"), "many"),
        (("--config", "x.json"), "x.json cannot be read"),
    ],
)
def test_bad_input_is_told_in_one_line(capsys, arguments, words):
    assert run(*SMALL, *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert words in error


def test_help_has_the_presets_defaults(capsys):
    with pytest.raises(SystemExit) as stop:
        run("--preset", "openwebtext-medium", "--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "0.006" in text
    assert "--all-rules" in text
