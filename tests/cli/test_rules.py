"""`yurii` and `yurii rules`, called as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import yuriiformer as yf
from yuriiformer.cli.main import COMMANDS, main


def test_the_list_has_every_rule(capsys):
    assert main(["rules"]) == 0
    out = capsys.readouterr().out
    for rule in yf.rules.values():
        row = next(line for line in out.splitlines() if f" {rule.name} " in line)
        assert rule.label in row
        assert f"{rule.oracle_calls['attn']} + {rule.oracle_calls['mlp']}" in row
        assert " ".join(rule.coefficients) in row
    assert "38.6 M" in out
    classical = next(line for line in out.splitlines() if " nesterov-classical " in line)
    assert "(fixed: beta mu beta_half mu_half)" in classical


def test_the_list_as_json(capsys):
    assert main(["rules", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [rule["name"] for group in data.values() for rule in group] == list(yf.rules)
    assert (
        yf.Rule.from_dict(
            {k: v for k, v in data["paper"][5].items() if k in yf.rules["gd-euler"].to_dict()}
        )
        == yf.rules["nesterov-lie-trotter"]
    )


def test_show(capsys):
    assert main(["rules", "show", "imex1-attn-mlp+V=zero"]) == 0
    out = capsys.readouterr().out
    assert "Xₜ₊₁" in out
    assert r"\begin{aligned}" in out
    assert "V starts from zero" in out
    assert "unclear label" in out
    for form, text in (("latex", r"\begin{aligned}"), ("unicode", "Wₜ₊½"), ("json", "{")):
        assert main(["rules", "show", "imex1-attn-mlp", "--format", form]) == 0
        assert capsys.readouterr().out.startswith(text)


def test_show_says_what_was_measured(capsys):
    assert main(["rules", "show", "verlet-ama"]) == 0
    assert "order 1.00; not reversible (0.11); symplectic" in capsys.readouterr().out
    assert main(["rules", "show", "imex12-ln-mlp-attn"]) == 0
    out = capsys.readouterr().out
    assert "more refinements than it tried" in out
    assert "not measured; yurii lab order --rules imex12-ln-mlp-attn" in out
    assert main(["rules", "show", "imex0-attn-mlp"]) == 2
    assert "from 1 to 99 refinements" in capsys.readouterr().err


def test_diagram(tmp_path, capsys):
    target = tmp_path / "block.svg"
    assert main(["rules", "diagram", "verlet-ama", "-o", str(target)]) == 0
    assert capsys.readouterr().out.strip() == str(target)
    assert target.read_text().lstrip().startswith("<?xml")


ERRORS = [
    (["rules", "show", "nestrov"], "unknown rule 'nestrov' (did you mean"),
    (["rules", "show", "none.toml"], "no rule file 'none.toml'"),
    (["rules", "show"], "RULE"),
    (["rules", "shw"], "shw"),
    (["rules", "show", "gd-euler", "--format", "png"], "invalid choice 'png'"),
    (["rules", "diagram", "gd-euler", "-o", "x.gif"], "a figure is written as"),
    (["rules", "diagram", "gd-euler"], "-o"),
    (["rles"], "unknown command 'rles' (did you mean 'rules'?)"),
]


@pytest.mark.parametrize(("arguments", "reason"), ERRORS)
def test_errors_are_one_line_and_code_2(arguments, reason, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("yurii: ")
    assert err.count("\n") == 1
    assert reason in err


def test_debug_shows_the_trace():
    with pytest.raises(yf.YuriiError):
        main(["rules", "show", "nestrov", "--debug"])


def test_help_names_every_command(capsys):
    for arguments in ([], ["--help"], ["-h"]):
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert all(command in out for command in COMMANDS)
    with pytest.raises(SystemExit) as stop:
        main(["rules", "--help"])
    assert stop.value.code == 0
    assert "diagram" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert yf.__version__ in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error():
    yurii = Path(sys.executable).with_name("yurii")
    command = f"'{yurii}' rules --json | head -1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert result.stdout == "{\n"
    assert result.stderr == ""


def test_a_terminal_without_greek_letters():
    code = "from yuriiformer.cli.main import main; assert main(['rules', 'show', 'gd-euler']) == 0"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "Attn" in result.stdout


def test_a_missing_drawing_package_is_named(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "yuriiformer.methods.drawing.diagram", raising=False)
    assert main(["rules", "diagram", "gd-euler", "-o", str(tmp_path / "a.svg")]) == 2
    assert "pip install 'yuriiformer[report]'" in capsys.readouterr().err


def test_what_is_missing_is_named(monkeypatch, capsys):
    """Without the extra, the command says which package to install."""
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "yuriiformer.cli.rules", raising=False)
    monkeypatch.delitem(sys.modules, "yuriiformer.cli.parsing", raising=False)
    assert main(["rules"]) == 2
    assert "pip install 'yuriiformer[cli" in capsys.readouterr().err
