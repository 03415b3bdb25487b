"""The exact loss on other texts at the end of a run: measured, kept, archived, compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.comparison.studies import STUDY, begin, run_all
from tests.training.runs import small, tales, whole_run
from yuriiformer.comparison.archived_run import pack_run, unpack_run
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.study import read_study
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Tales
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import ConfigError, DataError, RunError
from yuriiformer.evaluation.validation import exact_windows
from yuriiformer.report.results import result_table
from yuriiformer.report.tables import csv_text, json_data
from yuriiformer.runs.loading import open_model
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.runs.run import read_run
from yuriiformer.training.session import train


@pytest.fixture
def data(tmp_path) -> Path:
    """The tales, and beside them another text, all of it held out."""
    shutil.copytree(tales(), tmp_path / "tales")
    prepare(Tales(30, seed=5), tmp_path / "other", Settings("bytes", val_fraction=1))
    return tmp_path / "tales"


def test_it_is_what_evaluation_says_and_changes_no_other_number(data, tmp_path):
    train(small().with_(texts="other"), data, tmp_path / "run")
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    model = open_model(tmp_path / "run", checkpoint="final").model
    other = TokenStore.open(tmp_path / "other")
    assert len(other.train) == 0 < len(other.val)
    told = exact_windows(other, model.config.context).loss(model, batch=3)
    assert told.tokens == len(other.val) - 1
    assert records[-1].pop("text_losses") == {"other": pytest.approx(told.mean, abs=1e-6)}
    run = read_run(tmp_path / "run")
    assert run.texts == {"other": run.loss("exact:other")}
    assert run.exact is None
    assert run.saved["data"]["texts"]["other"] == other.identity
    before = read_metrics(whole_run() / "metrics.jsonl")
    for each in (*records, *before):
        each.pop("timing", None)
    assert records == before
    again = unpack_run(pack_run(run), Path("seed-0.json.gz"))
    assert (again.texts, again.saved["data"]["texts"]) == (run.texts, run.saved["data"]["texts"])
    assert b'"texts":{"' not in pack_run(read_run(whole_run()))


def test_a_tokenizer_is_used_again(tmp_path):
    """A text prepared with the tokeniser of another one gets that one's ids."""
    prepare(Tales(200, seed=0), tmp_path / "tales", Settings("bpe:300"))
    again = Settings(f"hf:{tmp_path / 'tales'}")
    prepare(Tales(200, seed=0), tmp_path / "again", again)
    for part in ("train.bin", "val.bin"):
        assert (tmp_path / "tales" / part).read_bytes() == (tmp_path / "again" / part).read_bytes()
    TokenStore.open(tmp_path / "tales").text_beside("again")


def test_what_cannot_be(data, tmp_path):
    for wrong in ("../other", "other, other", "", ".."):
        with pytest.raises(ConfigError, match="must name folders beside the data's"):
            small().with_(texts=wrong)
    with pytest.raises(ConfigError, match="texts needs validations"):
        small(eval_every=0).with_(texts="other")
    with pytest.raises(DataError, match=r"no prepared data in .*none'"):
        train(small().with_(texts="none"), data, tmp_path / "run")
    prepare(Tales(200, seed=0), tmp_path / "words", Settings("bpe:300"))
    with pytest.raises(DataError, match=r"other tokens than .* with --tokenizer bytes"):
        train(small().with_(texts="words"), data, tmp_path / "run")


ON_THE_OTHER = """
[[hypotheses]]
claim = "And on the other text"
arm = "momentum"
against = "gd"
metric = "exact:other"
"""


def test_a_hypothesis_can_be_about_another_text(tmp_path):
    """Momentum is lower on the validation split and higher on the other text."""
    text = STUDY.replace("steps = 20", 'steps = 20, texts = "other"') + ON_THE_OTHER
    suite = begin(tmp_path, text)
    ends = {"gd": 1.10, "momentum": 1.00}
    run_all(suite, {arm: {s: end + 0.001 * s for s in range(3)} for arm, end in ends.items()})
    for spec in suite.runs():
        if spec.label in ends:
            lines = spec.folder.metrics_file.read_text().splitlines()
            loss = (2.2 if spec.label == "momentum" else 2.0) + 0.01 * spec.seed**2
            lines[-1] = json.dumps({**json.loads(lines[-1]), "text_losses": {"other": loss}})
            spec.folder.metrics_file.write_text("\n".join(lines) + "\n")
    [found] = collect([suite.path])
    assert [each.verdict for each in found.verdicts] == ["supported", "contradicted"]
    assert found.verdicts[1].difference == pytest.approx(0.2)
    assert [each.hypothesis.metric for each in found.verdicts] == ["final", "exact:other"]
    cells = result_table(found).rows[1].cells
    assert cells["exact:other"].value == pytest.approx(2.2 + 0.01 * 5 / 3)
    assert json_data(found)["arms"][1]["texts"]["other"]["n"] == 3
    assert "exact:other" in csv_text(found).splitlines()[0]


def test_texts_of_one_name_must_be_one_text(data, tmp_path):
    train(small().with_(texts="other"), data, tmp_path / "runs" / "one")
    shutil.rmtree(tmp_path / "other")
    prepare(Tales(31, seed=6), tmp_path / "other", Settings("bytes", val_fraction=1))
    train(small("gd-euler").with_(texts="other"), data, tmp_path / "runs" / "two")
    with pytest.raises(RunError, match="evaluated on other texts called 'other'"):
        collect([tmp_path / "runs"])


def test_a_metric_must_be_measured(tmp_path):
    for metric, words in {
        "exact:other": "has no setting texts = 'other'",
        "exact": "has no setting exact = true",
        "lucky": "is not final, exact, best or exact:TEXT",
    }.items():
        path = tmp_path / "study.toml"
        path.write_text(STUDY + ON_THE_OTHER.replace("exact:other", metric))
        with pytest.raises(ConfigError, match=words):
            read_study(path)


def test_a_study_without_metrics_is_as_it_was(tmp_path):
    """Else suites that began before hypotheses had metrics could not be continued."""
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    [told] = read_study(path).definition()["hypotheses"]
    assert list(told) == ["claim", "arm", "against", "direction", "difference", "family"]
