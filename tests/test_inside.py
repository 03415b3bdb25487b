"""Traces kept beside an archive, the figures drawn from them, and the pages of all archives."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from results import inside, inside_figures, make_reports
from results.tables.inside import inside_table, traced
from tests.comparison.studies import begin
from tests.training.runs import tales
from yuriiformer.comparison.archive import read_suite, write_archive
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.config import TrainConfig
from yuriiformer.errors import InputError, RunError
from yuriiformer.training.session import train

STUDY = """
preset = "tales-tiny"
metric = "exact"
seeds = [0, 1]
[settings]
steps = 4
d_model = 32
context = 32
sequences = 8
micro_batch = 4
eval_every = 4
eval_sequences = 8
device = "cpu"
threads = 1
compile = "off"
precision = "float32"
tensorboard = false
[[arms]]
label = "plain"
rule = "gd-lie-trotter"
[[arms]]
label = "momentum"
rule = "nesterov-lie-trotter"
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A suite of two rules and two seeds, and its archive."""
    folder = tmp_path_factory.mktemp("inside")
    suite = begin(folder, STUDY)
    for spec in suite.runs():
        config = TrainConfig.from_dict(json.loads(spec.config_file.read_text()))
        train(config, tales(), spec.folder.path)
    (folder / "studies").mkdir()
    write_archive(read_suite(suite), folder / "studies" / "small")
    inside.main([str(suite.path), str(folder / "studies" / "small"), "--sequences", "2"])
    return folder


def test_the_numbers_are_those_of_a_trace(home):
    data = inside.read_inside(home / "studies" / "small")
    arms = inside.by_arm(data)
    seeds = {arm: [each["seed"] for each in own] for arm, own in arms.items()}
    assert seeds == {"plain": [0, 1], "momentum": [0, 1]}
    plain, momentum = arms.values()
    assert list(plain[0]["norms"]) == ["X"]
    assert list(momentum[0]["norms"]) == ["X", "V"]
    layers = len(momentum[0]["coefficients"]["mu"])
    assert plain[0]["coefficients"] == {}
    for each in data["runs"]:
        assert 0 < each["straightness"] <= 1
        assert 0 <= each["effective_depth"] <= layers
        assert each["turning"][:2] == [None, None]  # the first block has none before it
        assert all(0 <= turn <= 180 for turn in each["turning"][2:])
        assert len(each["norms"]["X"]) == layers + 1
    # The last row of the lens is the model's own loss, on other sequences than the archive's.
    assert data["runs"][0]["lens_loss"][-1] == pytest.approx(data["runs"][0]["loss"], abs=0.5)


def test_a_study_is_traced_while_it_grows(home):
    """Some seeds at a time, also when the earlier models are gone, gives the same file."""
    archive = home / "studies" / "small"
    path = inside.inside_file(archive)
    whole = path.read_bytes()
    path.unlink()
    inside.main([str(home / "suite"), str(archive), "--sequences", "2", "--seeds", "1"])
    assert {each["seed"] for each in inside.read_inside(archive)["runs"]} == {1}
    with pytest.raises(InputError, match="was measured on 2 sequences: --sequences 2, or remove"):
        inside.trace_suite(home / "suite", archive, [], [], 1)
    gone = [*(home / "suite" / "runs").glob("*/seed-1/checkpoints")]
    assert len(gone) == 2
    for folder in gone:
        folder.rename(folder.with_name("away"))
    try:
        inside.main([str(home / "suite"), str(archive), "--sequences", "2"])
    finally:
        for folder in gone:
            folder.with_name("away").rename(folder)
    assert path.read_bytes() == whole


def test_a_run_that_the_archive_lacks_is_left_for_later(home, tmp_path, capsys):
    """A study may go on between its archive and its traces."""
    record = read_suite(SuiteFolder(home / "suite"))
    write_archive(replace(record, entries=record.entries[:3]), tmp_path / "less")
    inside.main([str(home / "suite"), str(tmp_path / "less"), "--sequences", "1"])
    traced = [(each["arm"], each["seed"]) for each in inside.read_inside(tmp_path / "less")["runs"]]
    assert traced == [(each.label, each.seed) for each in record.entries[:3]]
    [last] = record.entries[3:]
    left = f"{last.label}, seed {last.seed} is not in {tmp_path / 'less'} yet: left for later"
    assert left in capsys.readouterr().out


def test_a_changed_file_and_other_runs_are_noticed(home, tmp_path):
    archive = home / "studies" / "small"
    path = inside.inside_file(archive)
    text = path.read_text()
    data = json.loads(text)
    data["runs"][0]["straightness"] /= 2
    try:
        path.write_text(json.dumps(data))
        with pytest.raises(RunError, match="checksum does not fit"):
            inside.read_inside(archive)
    finally:
        path.write_text(text)
    with pytest.raises(InputError, match="no such runs: none of these"):
        inside.trace_suite(home / "suite", archive, ["none of these"], [], 1)


def test_figures_have_the_means_over_seeds(home, monkeypatch):
    monkeypatch.setattr(inside_figures, "NAMED", ("plain", "momentum"))
    plain, momentum = arms = inside_figures.arms_of(home / "studies" / "small")
    assert (plain.table, momentum.table) == (False, True)
    seeds = {arm.label: [run["straightness"] for run in arm.runs] for arm in arms}
    means = {label: np.mean(own) for label, own in seeds.items()}
    [axes] = inside_figures.dots(arms, "straightness").axes
    told = [text.get_text() for text in axes.texts]
    assert sorted(told[:2], reverse=True) == told[:2]  # the highest first
    assert set(told[:2]) == {f"{mean:.2f}" for mean in means.values()}
    assert f"with momentum: {means['momentum']:.2f}" in told
    assert f"without momentum: {means['plain']:.2f}" in told
    drawn = {line.get_xdata()[0]: line for line in axes.lines if line.get_marker() == "o"}
    assert drawn[means["plain"]].get_markerfacecolor() == "white"
    assert drawn[means["momentum"]].get_markerfacecolor() == momentum.colour

    figure = inside_figures.lines(arms, "turning")
    for arm, line in zip(arms, figure.axes[0].lines, strict=True):
        rows = np.array([run["turning"][2:] for run in arm.runs], dtype=float)
        assert list(line.get_ydata()) == pytest.approx(list(rows.mean(axis=0)))
        assert line.get_color() == arm.colour
    figure = inside_figures.panels(arms, "norms", inside_figures.STREAMS, "")
    assert [len(axes.lines) for axes in figure.axes] == [2, 1]  # V is of momentum alone


def test_the_table_has_means_and_the_ends_of_the_spread(home):
    archive = home / "studies" / "small"
    archive.with_suffix(".toml").write_text(STUDY)
    first, second = inside.by_arm(inside.read_inside(archive))["momentum"]
    [row] = [line for line in inside_table(archive).splitlines() if line.startswith("| momentum")]
    values = first["straightness"], second["straightness"]
    assert row.split(" | ")[1:3] == [
        "2",
        f"{sum(values) / 2:.2f} ({min(values):.2f} to {max(values):.2f})",
    ]
    turns = [sum(run["turning"][2:]) / len(run["turning"][2:]) for run in (first, second)]
    assert f" | {sum(turns) / 2:.0f} ({min(turns):.0f} to {max(turns):.0f}) | " in row
    assert traced(archive) == 4
    assert inside_table(archive.with_name("none")) == "No run has been traced yet."


def test_pages_and_figures_of_every_archive(home, tmp_path):
    made = make_reports.make(make_reports.archives(home), tmp_path)
    assert made == [tmp_path / "studies" / "small" / "report.html"]
    index = (tmp_path / "index.html").read_text()
    figures = sorted(path.stem for path in (tmp_path / "studies" / "small-inside").iterdir())
    assert figures == sorted(
        ["straightness", "effective_depth", "turning", "lens_loss", "norms", "coefficients"]
    )
    for path in (made[0], *tmp_path.glob("studies/small-inside/*.png")):
        assert f'href="{path.relative_to(tmp_path).as_posix()}"' in index
        assert path.stat().st_size > 1000
