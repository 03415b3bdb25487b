"""No command removes or overwrites what this program did not write."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.runs.test_saving import write_checkpoint
from tests.training.runs import small, tales
from yuriiformer.cli.main import main
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Tales
from yuriiformer.errors import RunError
from yuriiformer.files import write_json
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.training.session import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("claims") / "run"
    train(small(steps=2, eval_every=2), tales(), out)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def refused(capsys, *words: object) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


# What a folder of the user's may hold: the names are ours, the content is not.
FOREIGN = {
    "checkpoints": {"checkpoints/last/model.bin": b"mine", "checkpoints/best.part/x": b"mine"},
    "metrics": {"metrics.jsonl": b"mine"},
    "weights": {"model.safetensors": b"mine"},
    "json": {"model.json": b'{"mine": 1}', "model.safetensors": b"mine"},
    "folder": {"model.safetensors/deep/file": b"mine"},
    "report": {"report.html": b"mine", "tables/results.json": b'{"mine": 1}'},
    "evaluation": {"validation-best.json": b'{"mine": 1}'},
    "result": {"validation-best.json": b"mine"},
    "answers": {"cache.jsonl": b"mine\nmine\n"},
    "suite": {"suite.json.part": b"mine", "runs/a/seed-0/x": b"mine"},
    "config": {"config.json": b'{"model_type": "gpt2"}'},
}
COMMANDS = {
    "train": ("train", "--data", "{data}", "--steps", "1"),
    "resume": ("train", "--data", "{data}", "--steps", "1", "--resume", "--preset", "tales-tiny"),
    "suite": ("suite", "--data", "{data}", "--rules", "gd-lie-trotter"),
    "import": ("import", "{run}"),
    "export": ("export", "{run}"),
    "report": ("report", "{run}", "--no-figures", "--no-samples"),
    "evaluate": ("evaluate", "{run}"),
    "trace": ("trace", "{run}", "--sequences", "1", "--max-tokens", "4"),
    "lab": ("lab", "quadratic", "--no-figures"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_of_the_users_stays_as_it_is(run, tmp_path, capsys, command):
    words = [word.format(run=run, data=tales()) for word in COMMANDS[command]]
    for name, files in FOREIGN.items():
        out = tmp_path / name
        for path, data in files.items():
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes(data)
        before = contents(tmp_path)
        where = [out] if command in ("import", "export") else ["--out", out]
        said = refused(capsys, *words, *where)
        assert str(out) in said
        assert contents(tmp_path) == before, name


def test_a_run_that_lost_its_configuration_is_not_begun_anew(run, tmp_path, capsys):
    lost = shutil.copytree(run, tmp_path / "lost")
    (lost / "config.json").unlink()
    before = contents(lost)
    for more in ([], ["--resume"]):
        words = ("train", "--data", tales(), "--out", lost, *more)
        assert "holds something else than a run" in refused(capsys, *words)
    assert contents(lost) == before


def test_a_run_is_not_trained_into_a_suite_or_an_imported_model(run, tmp_path, capsys):
    suite = tmp_path / "suite"
    words = ("suite", "--data", tales(), "--rules", "gd-lie-trotter", "--print-commands")
    assert main([*map(str, words), "--out", str(suite)]) == 0
    assert main(["import", str(run), str(tmp_path / "model")]) == 0
    for folder in (suite, tmp_path / "model"):
        before = contents(folder)
        for more in ([], ["--resume"]):
            said = refused(capsys, "train", "--data", tales(), "--out", folder, *more)
            assert "holds something else than a run" in said
        assert "holds no run to resume" in refused(capsys, "train", "--resume", "--out", folder)
        assert contents(folder) == before


def test_own_outputs_are_replaced(run, tmp_path):
    for command in ("import", "export", "report", "evaluate", "trace", "lab"):
        words = [word.format(run=run, data=tales()) for word in COMMANDS[command]]
        out = str(tmp_path / command)
        where = [out] if command in ("import", "export") else ["--out", out]
        assert main([*words, *where]) == 0
        assert main([*words, *where]) == 0


@pytest.mark.parametrize(
    "words", [("train",), ("suite",), ("prepare", "tales"), ("lab", "quadratic")]
)
@pytest.mark.parametrize("out", [["--out", ""], ["--out="]])
def test_an_empty_path_is_not_the_current_folder(words, out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert "--out: the path is empty" in refused(capsys, *words, *out)
    assert not list(tmp_path.iterdir())


def test_a_foreign_partial_folder_is_not_emptied(tmp_path, capsys):
    words = ("prepare", "tales", "--stories", "20", "--tokenizer", "bytes", "--workers", "1")
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "thesis.txt").write_text("mine")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis.txt").write_text("mine")
    (tmp_path / "link.partial").symlink_to(tmp_path / "elsewhere")
    before = contents(tmp_path)
    for name in ("out", "link"):
        for more in ([], ["--restart"]):
            refused(capsys, *words, "--out", tmp_path / name, *more)
    assert contents(tmp_path) == before


def test_links_among_a_preparations_files_are_not_followed(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    partial = tmp_path / "out.partial"
    partial.mkdir()
    for name in ("train.bin", "progress.json.part", "meta.json.part"):
        (partial / name).symlink_to(mine)
    (partial / "lock").touch()
    (partial / "progress.json").write_text("{")
    prepare(Tales(20, 0), tmp_path / "out", Settings("bytes"), restart=True)
    assert mine.read_text() == "mine"


def test_a_file_being_written_does_not_follow_a_link(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "new.json.part").symlink_to(mine)
    write_json(tmp_path / "new.json", {"a": 1})
    assert mine.read_text() == "mine"
    assert json.loads((tmp_path / "new.json").read_text()) == {"a": 1}


def test_checkpoints_that_are_links_are_saved(tmp_path):
    """What a link leads to stays; the next checkpoint is a folder of the run's own."""
    away, folder = tmp_path / "other disk", tmp_path / "checkpoints"
    folder.mkdir()

    def write(name: Path, step: int, keep: Path | None = None) -> None:
        write_checkpoint(
            name, lambda part: (part / "a").write_bytes(b"1") and None, {"step": step}, keep
        )

    write(away, 1)
    for step, name in enumerate(("last", "last.part"), 2):
        (folder / name).symlink_to(away)
        write(folder / "last", step, folder / "last.previous")
        assert read_checkpoint(folder / "last").step == step
        assert read_checkpoint(folder / "last.previous").step == step - 1
        assert read_checkpoint(away).step == 1
    assert {path.name for path in folder.iterdir()} == {"last", "last.previous"}


def test_a_file_where_a_run_should_stand(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match="not a folder"):
        train(small(), tales(), tmp_path / "file")
