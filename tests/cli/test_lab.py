"""``yurii lab`` as it is called."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import yuriiformer as yf
from yuriiformer.cli.main import main
from yuriiformer.lab.run import default_rules

OWN = '''
equations = """
F = attn(X) + mlp(X)
X = X + gamma * (1.5 * F - 0.5 * G)
G = F
"""
[streams]
G = "zero"
'''


@pytest.fixture
def lab(tmp_path, monkeypatch, capsys):
    """Called in an empty folder; answers with the code, what was said, and lab.json."""
    monkeypatch.chdir(tmp_path)

    def call(*words, folder=None):
        code = main(["lab", *map(str, words)])
        said = capsys.readouterr()
        path = tmp_path / (folder or f"lab-{words[0]}") / "lab.json"
        strict = {"parse_constant": lambda name: pytest.fail(f"{name} in lab.json")}
        data = json.loads(path.read_text(), **strict) if path.exists() else None
        return code, said, data

    return call


@pytest.mark.parametrize("problem", ["quadratic", "particles"])
def test_every_rule_runs(lab, problem):
    code, said, data = lab(problem, "--rules", "all", "--steps", 40, "--no-figures")
    assert code == 0
    assert said.err == ""
    assert [each["rule"]["name"] for each in data["rules"]] == list(yf.rules)
    for name in yf.rules:
        assert name in said.out


def test_a_telling_few(lab):
    code, said, data = lab("quadratic", "--no-figures")
    assert code == 0
    assert [each["rule"]["name"] for each in data["rules"]] == list(default_rules("quadratic"))
    assert "goes uphill, however small the step" in " ".join(said.out.split())
    again, said_again, _ = lab("quadratic", "--no-figures")
    assert again == 0  # over an earlier lab's, and the same
    assert said_again.out == said.out


def test_pictures(lab, tmp_path):
    words = ("--rules", "gd-euler", "hamiltonian", "--steps", 30, "--formats", "png", "svg")
    code, said, _ = lab("quadratic", *words, "--out", "new/folder", folder="new/folder")
    assert code == 0
    made = sorted(path.name for path in (tmp_path / "new" / "folder").iterdir())
    names = [
        f"{name}.{kind}" for name in ("convergence", "paths", "rates") for kind in ("png", "svg")
    ]
    assert made == sorted([*names, "lab.json"])
    assert "new/folder/convergence.png" in said.out


def test_particles_cluster_with_the_defaults(lab):
    code, _, data = lab(
        "particles", "--rules", "gd-lie-trotter", "nesterov-lie-trotter", "--no-figures"
    )
    assert code == 0
    for each in data["rules"]:
        assert each["clusters"][0] > 20
        assert each["clusters"][-1] <= 4
        assert each["value"][-1] < each["value"][0]
    assert data["rules"][0]["rises"] == 0
    code, _, data = lab("particles", "--oracle", "attention", "--rules", "gd-euler", "--no-figures")
    assert data["options"]["oracle"] == "attention"
    assert data["rules"][0]["clusters"][-1] <= 4


def test_own_rules_and_variations(lab, tmp_path):
    (tmp_path / "ab.toml").write_text(OWN)
    code, said, data = lab(
        "quadratic",
        "--rules",
        "ab.toml",
        "polyak-euler+beta=0.2",
        "--step-size",
        0.5,
        "--set",
        "gamma=0.9",
        "--no-figures",
    )
    assert code == 0, said.err
    own, varied = data["rules"]
    assert own["step_size"] == varied["step_size"] == 0.5
    assert own["coefficients"] == {"gamma": [0.9, 0.9]}
    assert varied["coefficients"] == {"beta": [0.2, 0.2], "gamma": [0.9, 0.9]}
    assert own["fitted"]["block"] == pytest.approx(own["theory"]["block"], rel=1e-3)


def test_tuning_helps(lab):
    rules = ("--rules", "nesterov-lie-trotter", "imex1-attn-mlp", "--no-figures")
    before = lab("quadratic", *rules)[2]
    after = lab("quadratic", *rules, "--tune")[2]
    for old, new in zip(before["rules"], after["rules"], strict=True):
        assert new["theory"]["block"] < old["theory"]["block"]
        assert new["fitted"]["block"] == pytest.approx(new["theory"]["block"], rel=0.02)


def test_a_model_starts_elsewhere(lab):
    words = ("--rules", "nesterov-euler", "--coefficients", "model", "--no-figures")
    _, _, data = lab("quadratic", *words)
    assert data["rules"][0]["coefficients"]["mu"] == [0.9, 0.9]


def test_with_layer_norm(lab):
    words = ("--norm", "--dim", 8, "--rules", "polyak-euler", "gd-euler", "--no-figures")
    code, said, data = lab("quadratic", *words)
    assert code == 0
    assert data["rules"][0]["theory"]["block"] is None
    assert "not linear: no theory" in said.out
    assert data["rules"][1]["theory"]["block"] is not None  # it has no LN_v


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["quadratic", "--dim", "0"], "--dim must be at least 1, not 0"),
        (["quadratic", "--condition", "0.5"], "--condition must be from 1 to 1e+12"),
        (["quadratic", "--condition", "nan"], "--condition must be from 1 to 1e+12"),
        (["quadratic", "--steps", "0"], "--steps must be at least 1, not 0"),
        (["quadratic", "--rules", "nesterof-euler"], "did you mean 'nesterov-euler'"),
        (["quadratic", "--rules", "none.toml"], "no rule file 'none.toml'"),
        (["quadratic", "--set", "kappa=1"], "no rule here has a coefficient 'kappa'"),
        (["quadratic", "--set", "mu"], "write NAME=NUMBER"),
        (["quadratic", "--step-size", "0"], "--step-size must be a number above 0, not 0"),
        (["quadratic", "--step-size", "inf"], "--step-size must be a number above 0"),
        (["quadratic", "--seed", "-1"], "--seed must be from 0 to"),
        (["quadratic", "--norm", "--tune"], "leave out --norm"),
        (["quadratic", "--tune", "--dim", "40"], "--tune searches in up to 32 dimensions, not 40"),
        (["quadratic", "--norm", "--dim", "1"], "--norm needs --dim 2 or more"),
        (["quadratic", "--split", "odd"], "invalid choice"),
        (["particles", "--tokens", "0"], "--tokens must be at least 1, not 0"),
        (["particles", "--distance", "0"], "--distance must be a number above 0"),
        (["particles", "--step-size", "-1"], "--step-size must be a number above 0, not -1"),
        (["quadratic", "--out", "taken"], "taken is not a folder: give another"),
        (["quadratic", "--out", "full"], "full holds something else"),
        (["quadratic", "--out", "foreign"], "foreign holds something else"),
        (["quadratic", "--out", "taken/below"], "taken/below cannot be written to"),
        (["circles"], "circles"),
    ],
)
def test_bad_input_is_one_line(lab, tmp_path, words, says):
    (tmp_path / "taken").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "lab.json").write_text("[]")
    code, said, _ = lab(*words)
    assert code == 2
    assert says in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
    assert not (tmp_path / "lab-quadratic").exists()
    assert (tmp_path / "full" / "thesis.tex").read_text() == "x"


def test_the_page(lab, tmp_path, capsys):
    """What docs/lab.md shows runs, and its pictures are there and small."""
    page = Path(__file__).parents[2] / "docs" / "lab.md"
    text = page.read_text(encoding="utf-8")
    (rule,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    (tmp_path / "my_rule.toml").write_text(rule, encoding="utf-8")
    commands = re.findall(r"^yurii .*$", text, flags=re.MULTILINE)
    assert len(commands) == 6
    short = ["--blocks", "8", "16", "32", "64", "--drift-time", "10"]  # orders take seconds
    for command in commands:
        more = short if " order" in command else []
        assert main([*shlex.split(command, comments=True)[1:], "--no-figures", *more]) == 0
    assert "my_rule" in capsys.readouterr().out
    for picture in re.findall(r"\]\((images/.*?)\)", text):
        assert 1000 < (page.parent / picture).stat().st_size < 150_000


def test_the_pages_table_is_what_the_lab_measures(lab):
    text = (Path(__file__).parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
    found = [lab("quadratic", "--no-figures", *words)[2]["rules"] for words in ((), ("--tune",))]
    for plain, tuned in zip(*found, strict=True):
        line = next(
            line for line in text.splitlines() if line.startswith(f"| `{plain['rule']['name']}` | ")
        )
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        rates = [plain["theory"]["block"], plain["fitted"]["block"], plain["theory"]["call"]]
        assert cells[3:6] == [f"{rate:.4f}" for rate in rates]
        if plain["stopped"] is None:
            assert cells[6] == f"{tuned['theory']['block']:.4f}"


def test_orders(lab, tmp_path):
    """Names, variations and files side by side; the table says what is measured."""
    (tmp_path / "own.toml").write_text(OWN)
    words = ("--rules", "verlet-ama", "verlet-symmetric-ama", "imex3-attn-mlp", "own.toml")
    few = ("--blocks", 16, 32, 64, 128, "--drift-time", 20, "--formats", "svg")
    code, said, data = lab("order", *words, *few)
    assert code == 0
    assert said.err == ""
    assert [round(each["order"]) for each in data["rules"]] == [1, 2, 1, 2]
    row = next(line for line in said.out.splitlines() if line.startswith("verlet-symmetric-ama"))
    assert row.split().count("yes") == 2
    assert (tmp_path / "lab-order" / "orders.svg").exists()
    code, said, _ = lab("order", "--blocks", 16, 32)
    assert code == 2
    assert "--blocks" in said.err
