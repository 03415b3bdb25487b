"""Pages of studies that have not begun, are under way, or are done: what each may say."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from results import make_pages as pages
from results import picture
from results.tables import confirmation, ladder, states
from results.tables.archives import STUDY, progress
from results.tables.arms import comparison
from tests.comparison.studies import begin
from tests.comparison.synthetic import falling, plan, write_run
from yuriiformer.comparison.archive import read_suite, write_archive
from yuriiformer.config import TrainConfig
from yuriiformer.errors import RunError

SMALL = """
preset = "tales-tiny"
metric = "exact"
seeds = [7, 8, 9]
baseline = "gd"
[settings]
steps = 20
sequences = 8
context = 32
texts = "owt"
[[arms]]
label = "gd"
rule = "gd-lie-trotter"
[[arms]]
label = "table"
rule = "gd-table"
[[arms]]
label = "momentum"
rule = "nesterov-lie-trotter"
[families]
main = "Is momentum better?"
other = "Does the table matter elsewhere?"
[[hypotheses]]
claim = "Momentum ends lower"
arm = "momentum"
against = "gd"
difference = 0.005
family = "main"
[[hypotheses]]
claim = "On the other text, the table changes nothing"
arm = "table"
against = "gd"
direction = "equal"
difference = 0.02
family = "other"
metric = "exact:owt"
"""
BASE = {7: 2.5, 8: 2.6, 9: 2.4}
MORE = {"gd": (0.0, 0.0, 0.0), "table": (-0.02, -0.03, -0.04), "momentum": (-0.10, -0.11, -0.12)}
ELSEWHERE = {"gd": (0.0, 0.0, 0.0), "table": (0.001, 0.0, -0.001), "momentum": (0.1, 0.1, 0.13)}
JUDGED = re.compile("supported|contradicted|undecided")


def archived(folder, text, loss):
    """A study's archive, each run with the two losses that are given for it; one without is left
    out, and one with NaN has diverged."""
    suite = begin(folder, text)
    for spec in suite.runs():
        config = TrainConfig.from_dict(json.loads(spec.config_file.read_text()))
        ends = loss(spec.label, spec.seed, config)
        if ends is None:
            continue
        steps = config.recipe.steps
        write_run(spec.folder.path, config, val=falling(ends[0] - 0.0123456789, steps), exact=True)
        lines = (spec.folder.path / "metrics.jsonl").read_text().splitlines()
        last = json.loads(lines[-1])
        told = [value if np.isfinite(value) else "nan" for value in ends]
        last |= {"exact_loss": told[0], "text_losses": {"owt": told[1]}}
        last |= {} if np.isfinite(ends[0]) else {"val_loss": "nan"}
        (spec.folder.path / "metrics.jsonl").write_text(
            "\n".join([*lines[:-1], json.dumps(last), ""])
        )
        (spec.folder.checkpoints / "final").mkdir(parents=True)
        manifest = {"about": {"step": steps}}
        (spec.folder.checkpoints / "final" / "manifest.json").write_text(json.dumps(manifest))
    archive = folder / "small"
    write_archive(read_suite(suite), archive)
    (folder / "small.toml").write_text(text, encoding="utf-8")
    return archive


def small(arm, seed, config=None):
    return BASE[seed] + MORE[arm][seed - 7], 4.0 + ELSEWHERE[arm][seed - 7]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return archived(tmp_path_factory.mktemp("whole"), SMALL, small)


def test_before_the_first_run_nothing_is_shown(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    found = confirmation.results(tmp_path / "small")
    assert found.startswith("3 arms with the seeds 7 to 9; 20 steps,")
    assert found.endswith("It has not been run yet.")
    assert confirmation.verdicts(tmp_path / "small") == "Its 2 hypotheses wait for the last run."
    assert "leads, not findings" in states.first_page(tmp_path / "small")


def test_under_way_losses_are_shown_and_nothing_is_judged(tmp_path):
    """Also where both arms of a hypothesis are done."""
    there = lambda arm, seed, config: small(arm, seed) if seed == 7 or arm != "table" else None  # noqa: E731
    archive = archived(tmp_path, SMALL, there)
    found = confirmation.results(archive)
    assert "1 of 3 seeds so far (7 of 9 runs)" in found
    assert "| momentum | 6.54 M | 3 of 3 | 2.3900 (2.1283 to 2.6517) |" in found
    assert "| table | 6.54 M | 1 of 3 | 2.4800 | −0.0200 | 4.0010 | +0.0010 |" in found
    assert "| table | 2.4800 |  |  |" in found
    first = states.first_page(archive)
    assert "leads, not findings" in first
    assert "1 of 3 seeds so far" in first
    assert "momentum | 6.54 M" not in first
    for text in (found, first, confirmation.verdicts(archive)):
        assert not JUDGED.search(text)


def test_complete_it_has_every_number_and_verdict(whole):
    found = confirmation.results(whole)
    assert "All 9 runs have ended." in found
    rows = [line for line in found.splitlines() if line.startswith("| ")]
    # By hand, with t = 4.3027: half widths of t s / sqrt(3), s = 0.01 of momentum's difference.
    assert rows[:5] == [
        "| arm | parameters | exact loss (95 %) | difference (95 %) | on `owt` | "
        "difference on `owt` (95 %) |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| momentum | 6.54 M | 2.3900 (2.1283 to 2.6517) | −0.1100 (−0.1348 to −0.0852) | 4.1100 | "
        "+0.1100 (+0.0670 to +0.1530) |",
        "| table | 6.54 M | 2.4700 (2.2083 to 2.7317) | −0.0300 (−0.0548 to −0.0052) | 4.0000 | "
        "+0.0000 (−0.0025 to +0.0025) |",
        "| gd | 3.32 M | 2.5000 (2.2516 to 2.7484) |  | 4.0000 |  |",
    ]
    assert "| momentum | 2.4000 | 2.4900 | 2.2800 |" in rows
    judged = confirmation.verdicts(whole).splitlines()
    assert judged[0] == (
        "Of 2 hypotheses, written before the runs, 2 are supported, 0 are contradicted and "
        "0 are undecided."
    )
    assert judged[4:] == [
        "| **Is momentum better?** |  |  |  |  |",
        "| Momentum ends lower | 0.005 | −0.1100 (−0.1348 to −0.0852) | 0.003 | supported |",
        "| **Does the table matter elsewhere?** |  |  |  |  |",
        "| On the other text, the table changes nothing | 0.02 | +0.0000 (−0.0025 to +0.0025) | "
        "< 0.001 | supported |",
    ]
    first = states.first_page(whole)
    assert "| table | 6.54 M | 2.4700 | −0.0300 (−0.0548 to −0.0052) |" in first
    assert "leads" not in first


def test_a_run_that_diverged_has_ended_and_is_told(tmp_path):
    def loss(arm, seed, config):
        return (np.nan, np.nan) if (arm, seed) == ("momentum", 8) else small(arm, seed)

    archive = archived(tmp_path, SMALL, loss)
    assert progress(archive).complete
    assert "| momentum | 6.54 M | 2 of 3, 1 failed or diverged |" in confirmation.results(archive)
    judged = confirmation.verdicts(archive)
    assert "| undecided: seeds of momentum failed or diverged |" in judged
    assert "1 is supported, 0 are contradicted and 1 is undecided" in judged


def test_pages_can_hold_it_in_every_state(whole, monkeypatch):
    """Nothing in the words around the tables depends on how far the study is."""
    made = {
        "first page": lambda: states.first_page(whole),
        "confirmation": lambda: confirmation.results(whole),
        "confirmation verdicts": lambda: confirmation.verdicts(whole),
    }
    for name, make in made.items():
        monkeypatch.setitem(pages.TABLES, name, make)
    for path in (pages.PAGE, pages.README):
        names = [name for name in pages.PAGES[path] if name in made]
        page = pages.filled(path.read_text(encoding="utf-8"), names)
        assert "| momentum |" in page
        assert pages.outside(path, page) == []


def test_the_picture_has_the_numbers_of_the_table(whole, tmp_path):
    [axes] = picture.draw(comparison(whole)).axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["momentum", "table", "gd"]
    dots = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert np.allclose(dots, [(-0.11, 0), (-0.03, 1), (0, 2)])
    ends = [tuple(line.get_xdata()) for line in axes.lines if line.get_linewidth() == 1.6]
    assert np.allclose(ends, [(-0.1348, -0.0852), (-0.0548, -0.0052)], atol=5e-5)
    path = picture.write(whole, tmp_path / "confirmation.svg")
    assert pages.picture_is_right(whole, path)
    path.write_text(path.read_text().replace("of the archive ", "of the archive 0"))
    assert not pages.picture_is_right(whole, path)
    (tmp_path / "small.toml").write_text(SMALL)  # nothing has run of it
    assert not pages.picture_is_right(tmp_path / "small", path)


# Of each rule of the ladder: by how much it needs less compute than gradient descent.
WORTH = {"gd-lie-trotter": 1.0, "gd injected": 2.0, "nesterov-lie-trotter": 1.5, "one-drift": 0.8}
LADDER = re.sub(
    r"\b(steps|warmup) = (\d+)",
    lambda found: f"{found[1]} = {max(1, round(int(found[2]) / 40))}",
    (STUDY / "ladder.toml")
    .read_text(encoding="utf-8")
    .replace("sequences = 16", "sequences = 640"),
)


def on_the_ladder(label, seed, config):
    """Gradient descent's law, read at more compute or less; other rates end higher."""
    rule, *rest = label.split(", ")
    compute = plan(config)["flops"] * WORTH[rule] / 3e13
    noise = 1e-4 * np.random.default_rng([seed, config.recipe.steps]).standard_normal()
    worse = 0.01 if any(part.endswith("the rates") for part in rest) else 0.0
    loss = 1.6 + compute**-0.2 + noise + worse
    return loss, loss + 1


@pytest.fixture(scope="module")
def rungs(tmp_path_factory):
    return archived(tmp_path_factory.mktemp("ladder"), LADDER, on_the_ladder)


def test_a_complete_ladder_has_its_laws_and_gains(rungs):
    sizes = ladder.results(rungs).splitlines()
    assert sizes[0] == "All 56 runs have ended."
    assert sizes[2].endswith("| gd-lie-trotter | gd injected | nesterov-lie-trotter | one-drift |")
    assert [line.split(" | ")[0] for line in sizes[4:]] == [
        *("| 6 layers, d 48", "| 6 layers, d 64", "| 4 layers, d 96"),
        *("| 6 layers, d 96", "| 6 layers, d 112"),
    ]
    rows = [line.strip("| ").split(" | ") for line in ladder.laws(rungs).splitlines()]
    # "0.200 (0.198 to 0.202)"
    tables = {row[0]: row for row in rows if row[0] in WORTH and len(row) == 5}
    assert set(tables) == set(WORTH)
    for row in tables.values():
        for cell, true in zip(row[1:3], (1.6, 0.2), strict=True):
            value, low, high = map(float, re.findall(r"\d\.\d+", cell))
            assert low <= true <= high
            assert value == pytest.approx(true, abs=0.02)
    gains = {row[0]: row for row in rows if row[0] in WORTH and len(row) == 6}
    for rule, worth in list(WORTH.items())[1:]:
        for cell in (gains[rule][2], gains[rule][4]):
            assert float(cell.split()[0]) == pytest.approx(worth, rel=0.03)
    assert any("It is a picture, not a forecast." in row[0] for row in rows)
    assert "Left out" not in ladder.laws(rungs)
    check = ladder.rates_check(rungs).splitlines()[2:]
    assert len(check) == len(WORTH)
    assert all(line.endswith("| as carried over, as carried over |") for line in check)


def test_a_ladder_under_way_has_losses_and_no_law(tmp_path, rungs):
    def sooner(label, seed, config):
        first = seed == 20 and "one-drift" not in label
        return on_the_ladder(label, seed, config) if first else None

    archive = archived(tmp_path / "some", LADDER, sooner)
    found = ladder.results(archive)
    assert "0 of 2 seeds so far (21 of 56 runs)" in found
    assert re.search(r"\| 6 layers, d 112 \|.*\| \d\.\d{4} \| \d\.\d{4} \(−0\.\d{4}\) \|", found)
    assert ladder.laws(archive) == "No law is fitted before the last run."
    assert "| one-drift, d 64 |  |  |  |  |" in ladder.rates_check(archive)
    assert "as carried over |" in ladder.rates_check(archive)

    def smallest(label, seed, config):
        return on_the_ladder(label, seed, config) if "d 48" in label else None

    archive = archived(tmp_path / "no-baseline", LADDER, smallest)
    assert "0 of 2 seeds so far (8 of 56 runs)" in ladder.results(archive)
    assert ladder.rates_check(archive) == "No runs yet."
    with pytest.raises(RunError, match="no run of 'gd-lie-trotter,-d-96' to compare with"):
        comparison(archive)


def test_a_ladder_that_carries_no_law_says_so(tmp_path):
    def flat(label, seed, config):
        told = on_the_ladder(label, seed, config)
        return (2.5, 3.5) if label.startswith("one-drift") else told

    found = ladder.laws(archived(tmp_path, LADDER, flat))
    assert "- one-drift: no law is fitted. Its loss does not fall with compute." in found
    assert "| nesterov-lie-trotter | 1." in found
