"""The pages say what the archives hold, and the archives are whole."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from results import make_pages as pages
from results.tables import rates
from results.tables.archives import archive, losses
from yuriiformer.comparison.archive import is_archive, read_archive
from yuriiformer.comparison.study import grown, read_study
from yuriiformer.methods.catalog import paper

ROOT = Path(__file__).parents[1]
ARCHIVES = sorted(path for path in (ROOT / "results").glob("*/*") if is_archive(path))


def test_the_pages_are_what_the_archives_say():
    for path, names in pages.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert pages.filled(page, names) == page, "run: python -m results.make_pages"
        assert pages.strays(page) == []


@pytest.mark.parametrize("name", ["PAGE", "README"])
def test_a_changed_number_is_noticed(name):
    path = getattr(pages, name)
    page = path.read_text(encoding="utf-8")
    [number, *_] = re.findall(r"(?<![\w.])\d\.\d{4}", page)
    changed = page.replace(number, "1.2345", 1)
    assert changed != page
    assert pages.filled(changed, pages.PAGES[path]) == page
    assert pages.strays(page + "\nIt ended at 2.345 nats.") == ["2.345"]


def test_every_table_has_a_page():
    assert {name for names in pages.PAGES.values() for name in names} == set(pages.TABLES)


FAMILIES = (
    "gd-lie-trotter",
    "gd-table",
    "nesterov-lie-trotter",
    "polyak-lie-trotter",
    "imex1-ln-mlp-attn",
    "gd-lie-trotter, 8 layers",
)
WITH_ADAMW = ("gd-lie-trotter, AdamW", "gd-table, AdamW", "nesterov-lie-trotter, AdamW")


@pytest.mark.parametrize("family", [*FAMILIES, *WITH_ADAMW])
def test_the_screenings_have_the_best_rates_and_none_at_an_edge(family):
    assert rates.edges(family) == []
    best = rates.best(family).settings
    name = "screening-adamw" if family in WITH_ADAMW else "screening"
    study = read_study(ROOT / "results" / "tinystories-cpu" / f"{name}.toml")
    label = family.removesuffix(", AdamW")
    [arm] = [arm for arm in study.definition()["arms"] if arm["label"] == label]
    matrices = "matrix_lr" if family in WITH_ADAMW else "muon_lr"
    usual = {"warmup": 50}  # the preset's tenth of the steps
    assert {**usual, **arm["settings"]} == {
        **usual,
        **{name: best[name] for name in (matrices, "adamw_lr", "warmup") if name in best},
        **({"n_layer": 8} if family.endswith("8 layers") else {}),
    }


def gains(study: str, baseline: str = "gd-lie-trotter") -> dict[str, float]:
    """By how much each arm's mean is below the baseline's."""
    means = {label: np.mean(list(own.values())) for label, own in losses(study).items() if own}
    return {label: float(means[baseline] - mean) for label, mean in means.items()}


def test_leads_tuning_closes_a_third_of_the_distance():
    def distance(chosen):
        return chosen("gd-lie-trotter").loss - chosen("nesterov-lie-trotter").loss

    def preset(family):
        [found] = [
            trial
            for trial in rates.trials()
            if trial.family == family
            and "warmup" not in trial.settings
            and rates.PRESET.items() <= trial.settings.items()
        ]
        return found

    assert distance(rates.best) / distance(preset) == pytest.approx(2 / 3, abs=0.05)


def test_leads_a_second_embedding_can_explain_nesterovs_gain():
    gain = gains("screening")
    whole = gain["nesterov-lie-trotter"]
    assert gain["gd-table"] / whole == pytest.approx(1 / 2, abs=0.05)
    assert gain["gd-lie-trotter, wider"] / whole == pytest.approx(3 / 4, abs=0.05)
    assert gain["gd, second embedding injected"] / whole == pytest.approx(1, abs=0.05)


def test_leads_momentum_does_more_once_the_mlp_comes_first():
    gain = gains("screening")
    study = read_study(ROOT / "results" / "tinystories-cpu" / "screening.toml")
    for name in ("polyak-lie-trotter", "nesterov-lie-trotter"):
        assert gain[f"{name}, no table"] < 0
        for arm in study.arms:
            if not arm.rule.uses_velocity:
                assert gain[f"{name}, MLP first, no table"] > gain[arm.label], arm.label
        momentum = next(arm for arm in study.arms if arm.label == f"{name}, MLP first, no table")
        assert momentum.rule.uses_velocity
        assert momentum.rule.streams["V"] == "zero"  # so no table: the parameters of plain blocks


def test_leads_the_lookahead_does_not_pay():
    gain = gains("screening")
    for polyak in ("polyak-euler", "polyak-lie-trotter", "polyak-lie-trotter, MLP first"):
        assert gain[polyak] > gain[polyak.replace("polyak", "nesterov")]
    assert gain["one-drift, no lookahead"] > gain["one-drift"]


def test_leads_the_velocity_must_be_normalised():
    assert gains("screening")["nesterov-lie-trotter, no LN_v"] < 0


def test_leads_it_is_not_muon():
    muon, adamw = gains("screening"), gains("screening-adamw")
    assert adamw["nesterov-lie-trotter"] > muon["nesterov-lie-trotter"] > 0
    here, there = losses("screening-adamw"), losses("screening")
    for seed in (0, 1):  # and in each
        with_adamw, with_muon = (
            own["gd-lie-trotter"][seed] - own["nesterov-lie-trotter"][seed] for own in (here, there)
        )
        assert with_adamw > with_muon
        assert here["gd-table"][seed] > here["gd-lie-trotter"][seed]
    assert adamw["gd-table"] < 0 < muon["gd-table"]


def test_leads_our_best_rules_end_lower_than_the_papers():
    gain = gains("screening")
    best = max(gain[name] for name in paper)
    runs = {entry.label: entry.run for entry in archive("screening").entries}
    most = runs["nesterov-lie-trotter"].plan("all_parameters")
    ours = [label for label in gain if label.startswith("one-drift") and gain[label] > best]
    assert len(ours) > 3
    for label in ours:
        assert runs[label].rule.oracle_calls == {"attn": 1, "mlp": 1}, label
        assert runs[label].plan("all_parameters") < 1.003 * most, label


def test_leads_of_the_second_round():
    gain = gains("ideas", "nesterov-lie-trotter")
    runs = {entry.label: entry.run for entry in archive("ideas").entries}
    size = {label: run.plan("all_parameters") for label, run in runs.items()}
    rule, channel, bare = (
        "one-drift, no lookahead",
        "one-drift, per channel, no lookahead",
        ", no table",
    )
    table = gain[rule] - gain[rule + bare]
    channels = gain[channel + bare] - gain[rule + bare]
    assert channels > table > 2 * (gain[channel] - gain[channel + bare])
    assert size[channel + bare] - size[rule + bare] < 0.01 * (size[rule] - size[rule + bare])
    plain = archive("screening").entries[0].run
    assert plain.rule.name == "gd-lie-trotter"
    assert size[channel + bare] / plain.plan("all_parameters") == pytest.approx(1.003, abs=5e-4)
    assert gain[rule + ", attention first"] < gain[rule] / 2


@pytest.mark.parametrize("path", ARCHIVES, ids=lambda path: path.name)
def test_archives_are_whole_small_and_of_one_place(path):
    record = read_archive(path)
    study = read_study(path.with_suffix(".toml")).definition()
    grown(record.definition["study"]["definition"], study)  # or the file is not of this archive
    for file in path.rglob("*.gz"):
        assert file.stat().st_size < 100_000
    for file in path.rglob("archive.json"):
        assert str(ROOT.parent) + "/" not in file.read_text(encoding="utf-8")
    finished = [entry.run for entry in record.entries if entry.run and entry.run.finished]
    assert finished
    assert all(run.exact is not None for run in finished if not run.diverged)


STUDIES = sorted((ROOT / "results" / "tinystories-cpu").glob("*.toml"))


@pytest.mark.parametrize("name", ["confirmation", "ladder"])
def test_what_confirms_has_seeds_that_nothing_was_chosen_on(name):
    seeds = {path.stem: set(read_study(path).seeds) for path in STUDIES}
    own = seeds.pop(name)
    assert not own & set().union(*seeds.values())


def test_the_confirmation_has_the_rates_of_the_studies_before():
    """And the same share of warmup, in a longer run; arms of both are the same rules. One control
    is new and has the rates of its family."""
    home = ROOT / "results" / "tinystories-cpu"
    before = [read_study(home / f"{name}.toml") for name in ("ideas", "screening")]
    known = {arm.label: (arm, study.settings) for study in before for arm in study.arms}
    new = "gd-lie-trotter, MLP first, per channel"
    known[new] = known["gd-lie-trotter, MLP first"]
    study = read_study(home / "confirmation.toml")
    for arm in study.arms:
        first, common = known[arm.label]
        longer = study.settings["steps"] / common["steps"]
        if arm.label != new:
            assert arm.rule.to_dict() | {"note": ""} == first.rule.to_dict() | {"note": ""}
        names = ("muon_lr", "adamw_lr", "warmup")
        expected = {**{name: common.get(name) for name in names}, **first.settings}
        expected["warmup"] *= longer
        assert arm.settings == expected, arm.label


def test_the_ladder_has_ten_tokens_per_parameter_of_its_blocks():
    study = read_study(ROOT / "results" / "tinystories-cpu" / "ladder.toml")
    plain = [arm for arm in study.arms if arm.rule.name == "gd-lie-trotter"]
    sizes = {}
    for arm in plain:
        config = arm.config(study.preset, 0, study.settings)
        blocks = 12 * config.model.n_layer * config.model.d_model**2
        sizes[config.model.n_layer, config.model.d_model] = config.recipe.steps
        tokens = config.recipe.steps * config.tokens_per_step
        assert tokens / blocks == pytest.approx(10, rel=0.01)
    assert len(sizes) == 5
    for arm in study.arms:  # every rule has the same tokens
        config = arm.config(study.preset, 0, study.settings)
        assert config.recipe.steps == sizes[config.model.n_layer, config.model.d_model]
