"""The exact loss at the end of a run, and AdamW for everything, through whole runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.training.runs import StopAt, StopRun, small, tales, whole_run
from yuriiformer.config import TrainConfig
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import ConfigError
from yuriiformer.evaluation.validation import exact_windows
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.loading import open_model
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.runs.run import read_run
from yuriiformer.training.session import resolve_run, train


def exact(config):
    return replace(config, validation=replace(config.validation, exact=True))


def adamw(config, **recipe):
    return replace(config, recipe=replace(config.recipe, matrices="adamw", **recipe))


def test_it_is_what_evaluation_says_of_the_last_model(tmp_path):
    train(exact(small()), tales(), tmp_path / "run")
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [record["step"] for record in records if "exact_loss" in record] == [8]
    model = open_model(tmp_path / "run", checkpoint="final").model
    windows = exact_windows(TokenStore.open(tales()), model.config.context)
    told = windows.loss(model, batch=3).mean
    assert records[-1]["exact_loss"] == pytest.approx(told, abs=1e-6)
    assert read_run(tmp_path / "run").exact == records[-1]["exact_loss"]
    assert records[-1]["exact_loss"] != records[-1]["val_loss"]  # which is of 8 sequences


def test_it_changes_no_other_number(tmp_path):
    train(exact(small()), tales(), tmp_path / "with")
    one, two = (read_metrics(run / "metrics.jsonl") for run in (tmp_path / "with", whole_run()))
    one[-1].pop("exact_loss")
    for each in (*one, *two):
        each.pop("timing", None)
    assert one == two


def test_it_needs_validations():
    with pytest.raises(ConfigError, match="exact needs validations"):
        exact(small(eval_every=0))


def test_adamw_for_everything_trains_resumes_and_is_planned(tmp_path):
    config = adamw(small(steps=8), matrix_lr=0.01)
    train(config, tales(), tmp_path / "whole")
    with pytest.raises(StopRun):
        train(config, tales(), tmp_path / "parts", listener=lambda *_: StopAt(5))
    train(config, tales(), tmp_path / "parts", resume=True)
    whole, parts = (read_metrics(tmp_path / n / "metrics.jsonl") for n in ("whole", "parts"))
    for record in (*whole, *parts):
        record.pop("timing", None)
    assert whole == parts
    assert whole[-1]["lr"].keys() == {"matrices", "adamw"}
    assert whole[-1]["val_loss"] < whole[0]["val_loss"]
    muon, all_adamw = (resolve_run(each, tales()).costs.optimizer for each in (small(), config))
    assert all_adamw > muon


def test_a_run_from_before_a_field_was_there_goes_on(tmp_path):
    """Its configuration lacks the field, which then has its default."""
    train(small(steps=4), tales(), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    saved = json.loads(folder.config_file.read_text())
    for part, name in (("recipe", "matrices"), ("recipe", "matrix_lr"), ("validation", "exact")):
        del saved["config"][part][name]
    folder.config_file.write_text(json.dumps(saved))
    assert train(small(steps=4), tales(), tmp_path / "run", resume=True).outcome == "finished"
    assert read_run(tmp_path / "run").config.recipe.matrices == "muon"


def test_a_configuration_from_before_a_part_was_renamed_is_read():
    config = replace(small(), recipe=replace(small().recipe, on_nonfinite="skip"))
    old = config.to_dict()
    old["habits"] = {**old.pop("output"), "on_nonfinite": old["recipe"].pop("on_nonfinite")}
    assert TrainConfig.from_dict(old) == config
