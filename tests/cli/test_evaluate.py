"""``yurii evaluate`` as a person uses it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import yuriiformer as yf
from tests.comparison.synthetic import DATA
from tests.evaluation.items import made_up
from tests.training.corpora import tales as tales_bpe
from tests.training.runs import small, tales
from yuriiformer.cli import evaluate
from yuriiformer.comparison.paper import paper_downstream, task_references
from yuriiformer.data.store import TokenStore
from yuriiformer.evaluation import evaluate as measuring
from yuriiformer.evaluation.evaluate import tasks_text
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.runs.loading import LoadedModel
from yuriiformer.training.presets import preset
from yuriiformer.training.session import train

NESTEROV = "nesterov-lie-trotter"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("evaluate") / "run"
    config = small()
    config = replace(config, model=replace(config.model, context=96))  # answers must fit
    train(config, tales(), out)
    return out


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def say(capsys, *arguments) -> tuple[int, str, str]:
    capsys.readouterr()
    from yuriiformer.cli.main import COMMANDS, main

    if "evaluate" in COMMANDS:
        code = main(["evaluate", *map(str, arguments)])
    else:
        code = evaluate.run([*map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def fails(*arguments) -> str:
    with pytest.raises(yf.YuriiError) as error:
        evaluate.run([*map(str, arguments)])
    assert "\n" not in str(error.value)
    return str(error.value)


def test_validation(run, capsys):
    code, said, _ = say(capsys, run)
    assert code == 0
    manifest = json.loads((run / "checkpoints" / "best" / "manifest.json").read_text())
    recorded = manifest["about"]["val_loss"]
    assert f"the run recorded {recorded:.4f} by the protocol" in said
    assert "over the UTF-8 bytes of the text, end marks not included" in said
    found = json.loads((run / "evaluation" / "validation-best.json").read_text())
    assert found["protocol"]["loss"] == pytest.approx(recorded, abs=1e-6)
    assert f"{found['exact']['loss']:.4f}" in said
    assert f"{found['exact']['bits_per_byte']:.4f}" in said
    store = TokenStore.open(tales())
    assert found["exact"]["tokens"] == len(store.val) - 1
    assert found["exact"]["text_bytes"] == store.meta["splits"]["val"]["text_bytes"]
    assert found["sha256"] == manifest["files"]["model.safetensors"]["sha256"]
    assert found["versions"]["torch"]
    assert (found["own_data"], found["eval_sequences"]) == (True, 8)


def test_what_was_measured_is_not_measured_again(run, capsys, monkeypatch):
    _, first, _ = say(capsys, run)
    monkeypatch.setattr(measuring, "exact_windows", None)
    assert say(capsys, run)[1] == first
    monkeypatch.undo()
    path = run / "evaluation" / "validation-best.json"
    path.write_text("{half")
    assert say(capsys, run)[1] == first
    _, other, _ = say(capsys, run, "--checkpoint", "last", "--json")
    found = json.loads(other)
    assert found["checkpoint"] == "last"
    assert found["validation"]["protocol"]["loss"] == pytest.approx(found["recorded_val_loss"])
    assert (run / "evaluation" / "validation-last.json").exists()


def test_a_model_without_a_run(run, tmp_path, capsys, monkeypatch):
    assert measuring.SEQUENCES == 4800  # the paper's
    monkeypatch.setattr(measuring, "SEQUENCES", 20)
    model = yf.load_model(run / "checkpoints" / "best")
    yf.save_model(model, tmp_path / "model")
    assert "say its data with --data" in fails(tmp_path / "model")
    _, said, _ = say(capsys, tmp_path / "model", "--data", tales(), "--json")
    found = json.loads(said)
    assert found["validation"]["protocol"]["tokens"] == 20 * 96
    assert (tmp_path / "model-evaluation" / "validation-model.json").exists()
    yf.save_model(model, tmp_path / "model")  # nothing of ours lies in it


def test_tasks(run, tmp_path, capsys):
    pytest.importorskip("lm_eval", reason="the harness is not installed")
    data = made_up(tmp_path / "data", items=30)
    words = (run, "--no-validation", "--tasks-data", data, "--tasks", "paper", "--limit", 5)
    code, said, _ = say(capsys, *words)
    assert code == 0
    for name in PAPER_TASKS.values():
        assert name in said
    assert "hellaswag@10: scored on the validation split, examples: hellaswag_val.jsonl" in said
    assert "the scored item left out" in said
    assert "arc_easy@25: scored on the test split, examples: ARC-Easy-train.jsonl" in said
    assert "texts cut from the left" in said
    assert "31.53" not in said  # GPT-2's, from the paper: of all items
    found = json.loads((run / "evaluation" / "arc_easy@25-best-first-5.json").read_text())
    assert found["items"] == {"arc_easy": 5}
    assert found["limit"] == 5
    assert set(found["data"]) == {"ARC-Easy-test.jsonl", "ARC-Easy-train.jsonl"}
    scores = found["scores"]["arc_easy"]["acc_norm"]
    assert f"{100 * scores['value']:.2f}" in said
    assert f"{100 * scores['stderr']:.2f}" in said
    lines = (run / "evaluation" / "cache.jsonl").read_text()
    _, again, _ = say(capsys, *words, "--json")
    assert json.loads(again)["tasks"]["arc_easy@25"] == found
    assert (run / "evaluation" / "cache.jsonl").read_text() == lines


def test_the_paper_beside():
    figures = paper_downstream("openwebtext-small", "nesterov-lie-trotter")
    others = {"paper": figures, **task_references()}
    result = {"items": {"x": 7}, "split": "test", "examples_from": "none", "limit": None}
    scores = {"x": {"acc_norm": {"value": 0.3, "stderr": 0.01}}}
    found = {label: {**result, "scores": scores} for label in PAPER_TASKS}
    lines = tasks_text(found, others).splitlines()
    heads = "task metric value ± stderr items paper GPT-2 124M (released)"
    assert " ".join(lines[0].split()) == heads
    assert lines[1].split()[-2:] == ["31.8", "31.53"]
    assert lines[4].split()[-2:] == ["41.1", "39.48"]
    plain = tasks_text({"piqa": {**result, "scores": scores}}, others)
    assert "paper" not in plain


def test_bad_input(run, tmp_path):
    assert "MODEL" in fails()
    assert "there is no model" in fails(tmp_path / "nowhere")
    assert "--limit must be at least 1, not 0" in fails(run, "--limit", 0)
    assert "--batch-tokens must be at least 1, not -3" in fails(run, "--batch-tokens", -3)
    assert "nothing to do" in fails(run, "--no-validation")
    assert "'hellaswag@x' is no task" in fails(run, "--tasks", "hellaswag@x")
    assert "they do not belong together" in fails(run, "--data", tales_bpe())
    assert "--data: there is no folder" in fails(run, "--data", tmp_path / "nowhere")
    shutil.rmtree(run / "checkpoints" / "final")
    assert "no checkpoint 'final'" in fails(run, "--checkpoint", "final")
    shutil.rmtree(run / "checkpoints")
    assert "has no checkpoint yet" in fails(run)


def test_missing_local_files(run, tmp_path):
    pytest.importorskip("lm_eval", reason="the harness is not installed")
    words = (run, "--no-validation", "--tasks", "paper", "--tasks-data")
    assert "there is no folder" in fails(*words, tmp_path / "nowhere")
    data = made_up(tmp_path / "data")
    (data / "arc_easy" / "ARC-Easy-test.jsonl").unlink()
    assert "ARC-Easy-test.jsonl is missing" in fails(*words, data)
    assert not (run / "evaluation" / "hellaswag@10-best.json").exists()  # said before any work


def test_the_papers_figures_only_beside_its_own_models():
    """Its rule unvaried, its setting, its data, the best checkpoint, random initial weights."""
    data = {**DATA["openwebtext"], "tokenizer": "gpt2"}
    config = preset("openwebtext-small", NESTEROV)

    def figures(rule=NESTEROV, checkpoint="best", config=config, **saved):
        saved = {"config": config.to_dict(), "data": data, **saved}
        small = yf.ModelConfig(rule, n_layer=1, n_head=1, d_model=8, vocab_size=8, context=4)
        loaded = LoadedModel(Path(), yf.YuriiFormer(small), Path(), saved=saved)
        return evaluate._figures(SimpleNamespace(loaded=loaded, about={"checkpoint": checkpoint}))

    assert figures() == paper_downstream("openwebtext-small", NESTEROV)
    assert not figures(rule=f"{NESTEROV}+V=zero")
    assert not figures(checkpoint="final")
    assert not figures(config=config.with_(n_layer=11))
    assert not figures(data={**data, "source": "tales"})
    assert not figures(data={**data, "train_tokens": 1000})
    assert not figures(init={"path": "x"})
