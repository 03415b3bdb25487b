"""The paper's figures, number by number."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.comparison.synthetic import configuration
from yuriiformer.comparison.paper import (
    is_papers,
    loss_references,
    minimum_step,
    paper_downstream,
    paper_figure,
    paper_preset,
    paper_presets,
    task_references,
)
from yuriiformer.methods.catalog import paper
from yuriiformer.methods.references import get_rule
from yuriiformer.training.presets import PRESETS, preset

TABLES = Path(__file__).parents[1] / "fixtures" / "paper_tables.toml"


@pytest.fixture(scope="module")
def tables():
    """The paper's tables, typed off a second time, in the order in which they are printed."""
    return tomllib.loads(TABLES.read_text(encoding="utf-8"))


def of_label(label):
    """``IMEX+LN_v k=2 AMA`` as rules and the paper's letters."""
    kind, k, letters = label.split()
    stem = f"imex{k[2:]}-" + ("ln-" if "LN_v" in kind else "")
    return [f"{stem}attn-mlp", f"{stem}mlp-attn"], letters


def test_tinystories(tables):
    seen = set()
    for label, row in tables["tinystories"].items():
        names, letters = of_label(label) if label.startswith("IMEX") else ([label], None)
        for name in names:
            found = paper_figure("tinystories-small", name)
            assert found.unclear == (letters is not None)
            place = found.labels.index(letters) if letters else 0
            shown = [found.values(m)[place] for m in ("best", "final", "train")]
            assert shown == row, label
            seen.add(name)
    assert seen == set(paper)


def test_openwebtext(tables):
    for name, row in tables["openwebtext"].items():
        for setting, shown in (("openwebtext-small", row[:2]), ("openwebtext-medium", row[2:])):
            found = paper_figure(setting, name)
            assert [*found.best, *found.final] == shown
            assert found.train == ()
            assert found.text("train") == ""
    for name, row in tables["downstream"].items():
        for setting, shown in (("openwebtext-small", row[:4]), ("openwebtext-medium", row[4:])):
            assert list(paper_downstream(setting, name).values()) == shown


def test_some_typed_by_hand():
    found = paper_figure("tinystories-small", "nesterov-lie-trotter")
    assert (found.best, found.final, found.train) == ((1.078,), (1.090,), (0.896,))
    assert found.text("final") == "1.090"
    assert paper_figure("openwebtext-medium", "gd-euler").final == (2.775,)
    assert paper_downstream("openwebtext-small", "gd-euler")["hellaswag@10"] == 29.9
    assert task_references() == {
        "GPT-2 124M (released)": {"hellaswag@10": 31.53, "arc_easy@0": 39.48}
    }


def test_figures_of_unclear_label_are_both_shown_and_marked():
    for name in ("imex1-attn-mlp", "imex1-mlp-attn"):
        found = paper_figure("tinystories-small", name)
        assert found.text("best") == "1.083 / 1.086 †"
        assert found.labels == ("MAM", "AMA")


def test_what_the_paper_has_not():
    assert paper_figure("tinystories-small", "gd-table") is None
    assert paper_figure("openwebtext-small", "verlet-ama") is None
    assert paper_figure("tales-tiny", "gd-euler") is None
    assert paper_figure(None, "gd-euler") is None
    assert paper_figure("references", "gd-euler") is None
    assert paper_downstream("tinystories-small", "gd-euler") is None
    assert paper_downstream("references", "gd-euler") is None


def test_a_rule_that_only_borrows_the_name_gets_no_figure():
    own = paper["gd-euler"]
    assert is_papers(own)
    assert not is_papers(type(own)("gd-euler", "X = X + 2 * attn(X) + mlp(X)"))


@pytest.mark.parametrize("name", paper)
def test_a_rule_that_was_varied_gets_no_figure(name):
    """Whatever its name: fixed coefficients, other starts of them or of the streams."""
    own = paper[name]
    assert is_papers(own.vary(label="another label", note="another note"))
    assert not is_papers(own.vary(streams={"X": "normalized"}))
    for coefficient in own.coefficients:
        for change in ({"learned": False}, {"initial": 0.123}, {"shape": "channel"}):
            assert not is_papers(own.vary(coefficients={coefficient: change}))
    if own.uses_velocity:
        assert not is_papers(own.vary(streams={"V": "zero"}))
        assert not is_papers(get_rule(f"{name}+V=zero"))


def test_what_the_paper_sets_beside_its_own():
    assert minimum_step("tinystories-small") == 7600
    assert minimum_step("openwebtext-small") is None
    assert loss_references("openwebtext-small") == {
        "GPT-2 124M (released)": 3.12,
        "nanoGPT after 600k steps (294.9B tokens)": 2.85,
    }
    assert loss_references("openwebtext-medium") == {"GPT-2 350M (released)": 2.84}
    assert loss_references("tinystories-small") == {}


@pytest.mark.parametrize("name", PRESETS)
def test_which_setting_a_configuration_is(name):
    config = preset(name, "verlet-ama")
    config = replace(config, recipe=replace(config.recipe, seed=5))
    assert paper_preset(config) == (name if name in paper_presets() else None)


def test_what_is_no_setting_of_the_paper():
    config = preset("tinystories-small", "gd-euler")

    def found(part, **changes):
        changed = replace(config, **{part: replace(getattr(config, part), **changes)})
        return paper_preset(changed)

    assert found("machine", device="cpu", micro_batch=2, compile="off") == "tinystories-small"
    assert found("output", save_every=7) == "tinystories-small"
    assert found("recipe", warmup=1000) == "tinystories-small"  # what is meant by none given
    assert found("recipe", warmup=900) is None
    assert found("recipe", steps=9999) is None
    assert found("recipe", muon_lr=0.01) is None
    assert found("model", n_layer=11) is None
    assert found("model", vocab_size=2048, valid_vocab=2048) is None
    assert found("validation", eval_every=50) is None
    assert found("validation", eval_blocks="spread") == "tinystories-small"  # it does not say
    assert found("recipe", muon_nesterov=False) is None
    assert paper_preset(configuration("gd-euler")) is None
