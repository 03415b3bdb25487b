"""The pages say what the archives hold, and the archives are whole."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from results import make_pages as pages
from results.tables import rates, states
from results.tables.archives import archive, losses
from results.tables.facts import differences, gains, seed_noise
from yuriiformer.comparison.archive import is_archive, read_archive
from yuriiformer.comparison.study import grown, read_study
from yuriiformer.methods.catalog import controls, paper

ROOT = Path(__file__).parents[1]
ARCHIVES = sorted(path for path in (ROOT / "results").glob("*/*") if is_archive(path))


def test_the_pages_are_what_the_archives_say():
    for path, names in pages.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert pages.filled(page, names) == page, "run: python -m results.make_pages"
        assert pages.outside(path, page) == []
    assert pages.picture_is_right(), "run: python -m results.make_pages"


@pytest.mark.parametrize("name", ["PAGE", "README"])
def test_a_changed_number_is_noticed(name):
    path = getattr(pages, name)
    page = path.read_text(encoding="utf-8")
    [number, *_] = re.findall(r"(?<![\w.])\d\.\d{4}", page)
    changed = page.replace(number, "1.2345", 1)
    assert changed != page
    assert pages.filled(changed, pages.PAGES[path]) == page
    [said] = pages.outside(path, page + "\nIt ended at 2.345 nats.")
    assert "2.345" in said


def test_every_number_in_words_is_the_archives():
    """Each one changed is noticed, and so is one that is added or left out."""
    page, names = pages.PAGE.read_text(encoding="utf-8"), pages.PAGES[pages.PAGE]
    tables = re.compile(r"<!-- ([\w -]+) -->.*?<!-- end of \1 -->|`[^`]*`|\]\([^)]*\)", re.DOTALL)
    words = tables.sub(lambda found: " " * len(found[0]), page)
    places = [found.start() for found in re.finditer(r"(?<![\w.])\d", words)]
    assert len(places) > 40
    for place in places:
        other = str((int(page[place]) + 1) % 10)
        changed = f"{page[:place]}{other}{page[place + 1 :]}"
        assert differences(changed, names), page[place - 40 : place + 20]
    assert differences(page + "\nAnd 3 more.\n", names) == ["'3' is not the archives'"]
    assert differences(page.replace("0.12 above Nesterov", "above Nesterov"), names)


def test_every_table_has_a_page():
    assert {name for names in pages.PAGES.values() for name in names} == set(pages.TABLES)


MOMENTUM = ("polyak", "nesterov")
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


def test_every_arm_of_the_screenings_has_the_rates_of_a_family():
    """With a velocity those of Nesterov, which are Polyak's and IMEX's too."""
    names = ("muon_lr", "matrix_lr", "adamw_lr", "warmup")

    def searched(family):
        found = {"warmup": rates.WARMUP, **rates.best(family).settings}
        return {
            name: found[name]
            for name in names
            if name in found and (name, "matrices") != ("muon_lr", found.get("matrices"))
        }

    with_muon = [searched(family) for family in FAMILIES]
    assert searched("nesterov-lie-trotter") == searched("polyak-lie-trotter")
    assert searched("nesterov-lie-trotter") == searched("imex1-ln-mlp-attn")
    for name in ("screening", "ideas"):
        study = read_study(ROOT / "results" / "tinystories-cpu" / f"{name}.toml")
        for arm in study.arms:
            settings = {**study.settings, **arm.settings}
            own = {key: settings[key] for key in names if key in settings}
            assert own in with_muon, arm.label
            if arm.rule.uses_velocity:
                assert own == searched("nesterov-lie-trotter"), arm.label


def test_the_screening_has_the_papers_rules_the_controls_and_the_cross():
    """In the cross an arm with the MLP first is the other one with its oracles exchanged."""
    study = read_study(ROOT / "results" / "tinystories-cpu" / "screening.toml")
    arms = {arm.label: arm.rule for arm in study.arms}
    assert {*paper, *controls} <= set(arms)

    def exchanged(equations):
        names = {"attn": "mlp", "mlp": "attn"}
        return re.sub("attn|mlp", lambda found: names[found[0]], equations)

    cross = [("gd-lie-trotter", ""), ("gd-table", "")]
    cross += [(f"{name}-lie-trotter", table) for name in MOMENTUM for table in ("", ", no table")]
    for name, table in cross:
        first, second = arms[name + table], arms[f"{name}, MLP first{table}"]
        assert second.equations == exchanged(first.equations)
        assert second.streams == first.streams
        assert second.coefficients == first.coefficients
    own = [arm for arm in study.arms if arm.label.startswith("one-drift")]
    assert len(own) >= 8
    assert all(arm.why and arm.rule.oracle_calls == {"attn": 1, "mlp": 1} for arm in own)


def below(study: str, label: str, other: str) -> bool:
    """Whether an arm ended below another in every seed."""
    return min(gains(study, label, other)) > 0


def test_rates_what_stands_out():
    def warmups(family):
        """The losses with the short and the usual warmup at the best rates."""
        best = rates.best(family)
        alike = {
            trial.settings.get("warmup", rates.WARMUP): trial.loss
            for trial in rates.trials()
            if trial.family == family
            and all(trial.settings.get(n) == best.settings.get(n) for n in rates.RATES)
        }
        return alike[rates.SHORT], alike[rates.WARMUP]

    for family in FAMILIES:
        short, usual = warmups(family)
        assert (short < usual) == (not family.startswith("gd-lie-trotter")), family
    with_adamw = {family: rates.best(family) for family in WITH_ADAMW}
    assert all(
        each.loss > rates.best(family.removesuffix(", AdamW")).loss + 0.3
        for family, each in with_adamw.items()
    )
    first, *others = (each.settings["adamw_lr"] for each in with_adamw.values())
    assert first > max(others)


def test_leads_tuning_closes_a_third_of_the_distance():
    closed = 1 - rates.distance(rates.best) / rates.distance(rates.at_preset)
    assert closed == pytest.approx(1 / 3, abs=0.05)


def test_leads_a_second_embedding_can_explain_nesterovs_gain():
    for whole, injected in zip(
        gains("screening", "nesterov-lie-trotter"),
        gains("screening", "gd, second embedding injected"),
        strict=True,
    ):
        assert injected == pytest.approx(whole, abs=np.median(seed_noise()))


def test_leads_momentum_does_more_once_the_mlp_comes_first():
    study = read_study(ROOT / "results" / "tinystories-cpu" / "screening.toml")
    for name in ("polyak-lie-trotter", "nesterov-lie-trotter"):
        assert below("screening", "gd-lie-trotter", f"{name}, no table")
        for arm in study.arms:
            if not arm.rule.uses_velocity:
                assert below("screening", f"{name}, MLP first, no table", arm.label), arm.label
        momentum = next(arm for arm in study.arms if arm.label == f"{name}, MLP first, no table")
        assert momentum.rule.uses_velocity
        assert momentum.rule.streams["V"] == "zero"  # so no table: the parameters of plain blocks


def test_leads_the_lookahead_does_not_pay():
    for polyak in ("polyak-euler", "polyak-lie-trotter", "polyak-lie-trotter, MLP first"):
        assert below("screening", polyak, polyak.replace("polyak", "nesterov"))
    assert below("screening", "one-drift, no lookahead", "one-drift")


def test_leads_the_velocitys_norm_may_be_needed():
    assert below("screening", "gd-lie-trotter", "nesterov-lie-trotter, no LN_v")


def test_leads_it_is_not_muon():
    rule, plain = "nesterov-lie-trotter", "gd-lie-trotter"
    with_adamw, with_muon = gains("screening-adamw", rule), gains("screening", rule)
    assert all(a > b > 0 for a, b in zip(with_adamw, with_muon, strict=True))
    assert below("screening-adamw", plain, "gd-table")
    assert below("screening", "gd-table", plain)


def test_leads_our_best_rules_end_lower_than_the_papers():
    means = {label: np.mean(list(own.values())) for label, own in losses("screening").items()}
    runs = {entry.label: entry.run for entry in archive("screening").entries}
    most = runs["nesterov-lie-trotter"].plan("all_parameters")
    best = min(paper, key=means.__getitem__)
    two = ("one-drift, per channel", "one-drift, no lookahead")
    for label in two:
        assert all(below("screening", label, name) for name in paper)
        assert runs[label].rule.oracle_calls == {"attn": 1, "mlp": 1}, label
        assert runs[label].plan("all_parameters") < 1.003 * most, label
    others = [label for label in means if label.startswith("one-drift") and label not in two]
    assert all(means[label] > means[best] - np.median(seed_noise()) for label in others)


def test_leads_of_the_second_round():
    runs = {entry.label: entry.run for entry in archive("ideas").entries}
    size = {label: run.plan("all_parameters") for label, run in runs.items()}
    rule, channel, bare = (
        "one-drift, no lookahead",
        "one-drift, per channel, no lookahead",
        ", no table",
    )
    table, table_beside = (gains("ideas", label, label + bare) for label in (rule, channel))
    channels = gains("ideas", channel + bare, rule + bare)
    for one, two, three in zip(channels, table, table_beside, strict=True):
        assert one > two > three
    assert size[channel + bare] - size[rule + bare] < 0.01 * (size[rule] - size[rule + bare])
    nesterov = "nesterov-lie-trotter"
    other = gains("ideas", rule + ", attention first", nesterov)
    for left, whole in zip(other, gains("ideas", rule, nesterov), strict=True):
        assert left < whole / 2


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


def test_the_list_has_every_study():
    assert {path.stem for path in STUDIES} == set(states.STUDIES)


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
