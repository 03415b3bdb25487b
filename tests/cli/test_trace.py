"""``yurii trace`` as a person uses it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import torch

from tests.training.runs import corpus, small, tales
from yuriiformer.cli.main import main
from yuriiformer.data.prepare import Settings
from yuriiformer.runs.loading import open_model
from yuriiformer.training.session import train


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("trace")
    for rule in ("gd-lie-trotter", "nesterov-lie-trotter"):
        train(small(rule), tales(), out / rule)
    return out


def yurii(capsys, *arguments):
    code = main(["trace", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_two_runs_on_a_prompt(runs, tmp_path, capsys):
    words = (runs / "gd-lie-trotter", runs / "nesterov-lie-trotter", "--out", tmp_path / "seen")
    code, said, _ = yurii(capsys, *words, "--prompt", "Once upon a time")
    assert code == 0
    assert "GD+Lie–Trotter" in said
    assert "mean effective depth" in said
    assert str(tmp_path / "seen" / "depth.html") in said
    found = json.loads((tmp_path / "seen" / "trace.json").read_text())
    first, second = found["runs"]
    assert first["streams"] == ["X"]
    assert second["streams"] == ["X", "V"]
    text = second["texts"][0]
    assert "".join(text["pieces"]) == "Once upon a time"
    assert text["target_pieces"] == [*text["pieces"][1:], None]
    opened = open_model(runs / "nesterov-lie-trotter")
    ids = torch.tensor([text["tokens"]])
    loss = opened.model(ids[:, :-1], ids[:, 1:]).item()
    lens = text["by_layer"]["lens_loss"][-1]
    assert lens[-1] is None
    assert sum(lens[:-1]) / (len(lens) - 1) == pytest.approx(loss, rel=1e-4)
    assert (second["sha256"], second["checkpoint"]) == (
        opened.about["sha256"],
        opened.about["checkpoint"],
    )
    page = (tmp_path / "seen" / "depth.html").read_text()
    assert "Once upon a time" in page


def test_the_validation_split_into_the_runs_own_folder(runs, capsys):
    run = runs / "nesterov-lie-trotter"
    code, _, _ = yurii(capsys, run, "--sequences", "3", "--max-tokens", "10", "--top", "2")
    assert code == 0
    found = json.loads((run / "trace" / "trace.json").read_text())
    texts = found["runs"][0]["texts"]
    val = open_model(run).store.val
    assert len(texts) == 3
    for number, text in enumerate(texts):
        start = 32 * number  # the context
        assert text["tokens"] == val[start : start + 10].tolist()
        assert text["targets"] == val[start + 1 : start + 11].tolist()
        assert len(text["top"][0][0]) == 2
    assert open_model(run).saved  # still a run


def test_what_is_there_is_not_written_over(runs, tmp_path, capsys):
    (tmp_path / "trace.json").write_text('{"mine": 1}')
    code, _, problem = yurii(capsys, runs / "gd-lie-trotter", "--out", tmp_path)
    assert code == 2
    assert "holds something else" in problem
    assert (tmp_path / "trace.json").read_text() == '{"mine": 1}'
    own = tmp_path / "own"
    for _ in range(2):  # an earlier trace is
        assert yurii(capsys, runs / "gd-lie-trotter", "--out", own, "--prompt", "O")[0] == 0
    assert "1 token" in (own / "depth.html").read_text()


def test_json_to_standard_output_writes_nothing(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("There was"))
    run = runs / "gd-lie-trotter"
    code, said, _ = yurii(capsys, run, "--prompt", "-", "--json")
    assert code == 0
    assert json.loads(said)["runs"][0]["texts"][0]["name"] == "There was"
    assert not (run / "trace").exists()


def test_runs_of_the_same_rule_are_told_apart(runs, tmp_path, capsys):
    train(small(seed=1), tales(), tmp_path / "other")
    words = (runs / "nesterov-lie-trotter", tmp_path / "other", "--prompt", "Once", "--json")
    _, said, _ = yurii(capsys, *words)
    assert [run["label"] for run in json.loads(said)["runs"]] == ["nesterov-lie-trotter", "other"]


def test_runs_on_other_data_share_prompts_only(runs, tmp_path, capsys):
    data = corpus(120, Settings("bpe:300", val_fraction=0.1))
    base = small()
    train(replace(base, recipe=replace(base.recipe, steps=1)), data, tmp_path / "bpe")
    words = (runs / "nesterov-lie-trotter", tmp_path / "bpe")
    code, _, problem = yurii(capsys, *words)
    assert code == 2
    assert "--prompt" in problem
    code, said, _ = yurii(capsys, *words, "--prompt", "Once upon a time", "--json")
    one, other = (run["texts"][0] for run in json.loads(said)["runs"])
    assert code == 0
    assert len(one["tokens"]) > len(other["tokens"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "a model is needed"),
        (["{run}", "{run}", "{run}"], "a model is needed, or two"),
        (["nowhere"], "nowhere"),
        (["{run}", "--prompt", ""], "prompt is empty"),
        (["{run}", "--prompt", "word " * 30], "prompt 1 has 150 tokens"),
        (["{run}", "--sequences", "0"], "--sequences must be at least 1"),
        (["{run}", "--max-tokens", "0"], "--max-tokens must be at least 1"),
        (["{run}", "--top", "-1"], "--top must be at least 1"),
        (["{run}", "--checkpoint", "best", "--out", "{run}/config.json"], "not a folder"),
        (["{run}", "--out", "{run}"], "holds something else"),
        (["{run}", "--out", "/proc/nowhere/x"], "cannot be written"),
        (["{run}", "--prompt", "-", "--prompt", "-"], "give it once"),
        (["{run}", "--top", "101"], "--top must be at most 100"),
        (["{run}", "--sequences", "1000000"], "are too many"),
    ],
)
def test_errors_are_one_line(runs, capsys, words, said):
    run = str(runs / "gd-lie-trotter")
    code, _, problem = yurii(capsys, *(word.replace("{run}", run) for word in words))
    assert code == 2
    assert said in problem
    assert problem.count("\n") == 1
