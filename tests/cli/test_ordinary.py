"""What goes wrong on ordinary paths is one line, not a trace."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.training.corpora import corpus
from tests.training.runs import small, tales
from yuriiformer.cli import main as module
from yuriiformer.cli import sample
from yuriiformer.cli.main import main
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.data.prepare import Settings
from yuriiformer.errors import RuleError, RunError, YuriiError
from yuriiformer.files import write_json
from yuriiformer.methods.rule import Rule
from yuriiformer.report.tables import _cell
from yuriiformer.training.session import train


def call(capsys, *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("ordinary") / "runs" / "run"
    train(small(steps=2, eval_every=2), tales(), out)
    return out


@pytest.fixture(scope="module")
def unvalidated(tmp_path_factory):
    """Trained on data without a validation split."""
    data = corpus(40, Settings("bytes", val_fraction=0.0))
    out = tmp_path_factory.mktemp("unvalidated") / "run"
    train(small(steps=2, eval_every=0), data, out)
    return out


def test_a_run_without_validation(unvalidated, capsys):
    code, said, _ = call(capsys, "report", unvalidated, "--no-figures")
    assert code == 0
    assert "no sample: the validation split has no text" in said
    code, _, error = call(capsys, "trace", unvalidated)
    assert code == 2
    assert "give a --prompt" in error


def test_a_report_with_empty_samples(run, tmp_path, capsys):
    words = ("report", run, "--no-figures", "--max-new-tokens", "0", "--out", tmp_path / "out")
    assert call(capsys, *words)[0] == 0


def test_an_export_beside_runs_is_passed_over(run, tmp_path, capsys):
    home = tmp_path / "runs"
    shutil.copytree(run, home / "run")
    (home / "export").mkdir()
    (home / "export" / "config.json").write_text('{"model_type": "yuriiformer"}')
    assert call(capsys, "report", home, "--no-figures", "--no-samples")[0] == 0
    assert call(capsys, "report", home / "export", "--no-figures")[0] == 2


def test_a_run_from_within_its_folder(run, monkeypatch, capsys):
    monkeypatch.chdir(run)
    assert call(capsys, "sample", ".", "--max-new-tokens", "2")[0] == 0
    monkeypatch.chdir(run / "checkpoints" / "best")
    assert call(capsys, "sample", ".", "--max-new-tokens", "2")[0] == 0


def test_data_that_are_not_there_are_named(run, capsys):
    code, _, error = call(capsys, "sample", run, "--data", "nosuch")
    assert code == 2
    assert "there is no folder 'nosuch'" in error


def test_many_samples_are_made_in_groups(run, capsys, monkeypatch):
    words = ("sample", run, "-n", "5", "--max-new-tokens", "3", "--prompt", "a")
    together = call(capsys, *words)[1], call(capsys, *words, "--json")[1]
    monkeypatch.setattr(sample, "TOGETHER", 2)
    assert (call(capsys, *words)[1], call(capsys, *words, "--json")[1]) == together


def test_a_name_that_is_too_long_or_not_utf8(run, tmp_path, capsys):
    code, _, error = call(capsys, "sample", run / ("a" * 300))
    assert code == 2
    assert error.startswith("yurii: ")
    odd = tmp_path / "\udcff\udcfe"
    shutil.copytree(run, odd)
    assert call(capsys, "report", odd, "--no-figures", "--no-samples")[0] == 0
    write_json(tmp_path / "file.json", {"folder": str(odd)})
    assert json.loads((tmp_path / "file.json").read_text())["folder"] == str(odd)


def test_errors_of_the_machine_are_one_line(monkeypatch, capsys):
    for error, said in (
        (OSError(28, "No space left on device", "x/config.json"), "x/config.json: No space left"),
        (PermissionError(13, "Permission denied", "x"), "x: Permission denied"),
        (MemoryError(), "not enough memory"),
    ):

        def fail(_: list[str], error: BaseException = error) -> int:
            raise error

        monkeypatch.setattr(module, "_run", fail)
        code, _, text = call(capsys, "train")
        assert (code, text.count("\n")) == (2, 1)
        assert said in text
        with pytest.raises(type(error)):
            main(["train", "--debug"])


@pytest.mark.parametrize("closed", ["0<&-", ">&-", "2>&-", "0<&- >&- 2>&-"])
def test_streams_that_are_closed(closed):
    words = f"exec {sys.executable} -m yuriiformer rules nosuch {closed}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    def fail(name: str) -> None:
        raise ModuleNotFoundError(name="transformers.models")

    monkeypatch.setattr(module, "import_module", fail)
    with pytest.raises(YuriiError, match=r"pip install 'yuriiformer\[hf\]'$"):
        module._run(["export"])


def test_no_label_steers_the_terminal(tmp_path, capsys):
    with pytest.raises(RuleError, match="'label' holds a control character"):
        Rule("r", "X = X + attn(X) + mlp(X)", label="\x1b[31mred")
    odd = tmp_path / "\x1b[31mred"
    _, _, error = call(capsys, "report", odd)
    assert "\x1b" not in error


def test_cells_of_a_spreadsheet_are_no_formulas():
    for text in ("=1+1", "+1", "-1", "@x"):
        assert next(csv.reader([_cell(text)]))[0] == f"'{text}"
    assert [_cell(value) for value in (-1.5, "gd", None)] == [-1.5, "gd", None]


def test_an_argument_by_name_is_said():
    with pytest.raises(RuleError, match="attn takes 1 argument, not one by name"):
        Rule("r", "X = X + attn(x=X)")


SUITE = {
    "format": 1,
    "preset": "tales-tiny",
    "threads": 1,
    "data": {"folder": "/nowhere"},
    "arms": [{"slug": "gd", "label": "GD", "settings": {}}],
    "seeds": [0],
    "commands": [],
}


@pytest.mark.parametrize(
    "change",
    [
        {"preset": "/tmp/outside"},
        {"preset": "../outside"},
        {"arms": [{"slug": "../../outside", "label": "x"}]},
        {"arms": [{"slug": "/tmp/outside", "label": "x"}]},
        {"arms": [{"slug": "x", "label": "\x1b[31m"}]},
        {"seeds": ["../x"]},
        {"data": {"folder": "a\0b"}},
    ],
)
def test_names_in_a_suites_file_are_checked(tmp_path, change, capsys):
    home = tmp_path / "home" / "suite"
    home.mkdir(parents=True)
    (home / "suite.json").write_text(json.dumps({**SUITE, **change}))
    with pytest.raises(RunError, match=r"suite\.json is damaged"):
        SuiteFolder(home).read()
    for words in (("report", home), ("suite", "--out", home), ("archive", home, tmp_path / "a")):
        assert call(capsys, *words)[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_rule_that_cannot_be_tuned_says_so(tmp_path, capsys):
    words = ("lab", "quadratic", "--rules", "nesterov-lie-trotter+mu=t/(t+3)+fixed=mu")
    code, said, _ = call(capsys, *words, "--tune", "--no-figures", "--out", tmp_path / "lab")
    assert code == 0
    assert "not tuned: its blocks differ" in " ".join(re.sub(r"\n +", " ", said).split())
