"""A run's configuration: any field by its own name."""

from __future__ import annotations

import json

import pytest

import yuriiformer as yf
from yuriiformer.cli.parsing import First, base_config
from yuriiformer.errors import ConfigError


def test_fields_are_set_wherever_they_belong():
    base = yf.preset("tales-tiny", "gd-euler")
    changed = base.with_(steps=10, d_model=32, eval_every=5, threads=1, rule="polyak-euler")
    assert (changed.recipe.steps, changed.model.d_model) == (10, 32)
    assert (changed.validation.eval_every, changed.machine.threads) == (5, 1)
    assert changed.model.rule == yf.rules["polyak-euler"]
    assert changed.recipe.muon_lr == base.recipe.muon_lr
    assert base == yf.preset("tales-tiny", "gd-euler")
    assert base.with_() == base


def test_unknown_fields_and_bad_values_are_named():
    base = yf.preset("tales-tiny", "gd-euler")
    with pytest.raises(ConfigError, match=r"unknown field 'stepss'.*steps"):
        base.with_(stepss=10)
    with pytest.raises(ConfigError, match="steps"):
        base.with_(steps=-1)


FILES = {
    "part.toml": 'rule = "polyak-euler"\nsteps = 7\n[model]\nd_model = 32\n',
    "part.yaml": "rule: polyak-euler\nsteps: 7\nmodel:\n  d_model: 32\n",
    "part.json": '{"rule": "polyak-euler", "recipe": {"steps": 7}, "d_model": 32}',
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_may_have_some_fields(name, tmp_path):
    """Over a preset, which the file may name too; flags come last."""
    (tmp_path / name).write_text(FILES[name])
    found = base_config(First(config=tmp_path / name), "tales-tiny")
    fields = {"steps": 7, "d_model": 32, "rule": "polyak-euler"}
    assert found == yf.preset("tales-tiny", "gd-euler").with_(**fields)
    other = First(config=tmp_path / name, preset="cpu-tinystories")
    assert base_config(other, "tales-tiny") == yf.preset("cpu-tinystories", "gd-euler").with_(
        **fields
    )


def test_a_file_names_its_preset(tmp_path):
    (tmp_path / "part.toml").write_text('preset = "cpu-tinystories"\nn_layer = 3\n')
    found = base_config(First(config=tmp_path / "part.toml"), "tales-tiny")
    assert found == yf.preset("cpu-tinystories", "nesterov-lie-trotter").with_(n_layer=3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stepss = 3", "unknown field 'stepss'.*steps"),
        ("steps = -3", "steps"),
        ("steps = ", "is not TOML"),
        ('preset = "nosuch"', "unknown preset 'nosuch'"),
        ('rule = "nosuch"', "unknown rule 'nosuch'"),
        ("[recipe]\nd_modell = 3", "unknown field 'd_modell'"),
    ],
)
def test_mistakes_in_a_file_are_named_with_it(text, said, tmp_path):
    path = tmp_path / "part.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=rf"part.toml.*{said}"):
        base_config(First(config=path), "tales-tiny")


def test_a_whole_configuration_needs_no_preset(tmp_path):
    config = yf.preset("cpu-tinystories", "gd-euler")
    (tmp_path / "config.json").write_text(json.dumps({"config": config.to_dict()}))
    assert base_config(First(config=tmp_path / "config.json"), "tales-tiny") == config
    with pytest.raises(ConfigError, match="--preset beside it"):
        base_config(First(config=tmp_path / "config.json", preset="tales-tiny"), "tales-tiny")
