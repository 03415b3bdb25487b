"""Arms from names, texts and grids; what cannot be one is refused in words."""

from __future__ import annotations

import pytest

import yuriiformer as yf
from yuriiformer.comparison.arms import (
    ArmSpec,
    make_arms,
    parse_arm,
    parse_seeds,
    slug,
    split_settings,
)
from yuriiformer.errors import ConfigError, RuleError, YuriiError


def test_groups_and_names():
    paper = make_arms(["paper"], [], [])
    assert [arm.rule.name for arm in paper] == list(yf.rules)[:17]
    assert [arm.label for arm in paper] == [yf.rules[arm.slug].label for arm in paper]
    assert len(make_arms(["all"], [], [])) == len(yf.rules)
    standard = make_arms(["standard"], [], [])
    assert len(standard) == 11
    assert all(arm.rule.oracle_calls == {"attn": 1, "mlp": 1} for arm in standard)
    assert [arm.slug for arm in make_arms(["gd-euler", "verlet-ama"], [], [])] == [
        "gd-euler",
        "verlet-ama",
    ]


def test_an_arm_in_full():
    arm = parse_arm("deep one: rule=gd-lie-trotter n_layer=18 muon_lr=0.01 bias=true clip=0")
    assert (arm.label, arm.slug) == ("deep one", "deep-one")
    config = arm.config("tales-tiny", 3, {"steps": 7, "n_layer": 9, "threads": 1})
    assert config.model.n_layer == 18  # the arm's own goes before what is common
    assert config.model.bias is True
    assert config.recipe.muon_lr == 0.01
    assert config.recipe.clip == 0.0
    assert (config.recipe.steps, config.recipe.seed, config.machine.threads) == (7, 3, 1)
    assert config.model.rule.name == "gd-lie-trotter"


def test_streams_and_coefficients_vary_the_rule():
    arm = parse_arm("rest: rule=nesterov-lie-trotter V=zero mu=0.5 steps=9")
    assert arm.rule.streams["V"] == "zero"
    assert arm.rule.coefficients["mu"].initial == 0.5
    assert arm.settings == {"steps": 9}
    same = parse_arm("rest: rule=nesterov-lie-trotter+V=zero+mu=0.5")
    assert same.rule.streams == arm.rule.streams
    assert same.label == "rest"


def test_an_arm_without_a_label_is_called_by_what_it_is():
    arm = parse_arm("rule=gd-lie-trotter n_layer=3")
    assert arm.label == "gd-lie-trotter n_layer=3"
    assert arm.slug == "gd-lie-trotter-n_layer=3"


def test_a_grid_multiplies():
    arms = make_arms(
        ["gd-euler"], ["a: rule=gd-euler n_layer=4"], ["muon_lr=0.01,0.02", "clip=0,1"]
    )
    assert len(arms) == 2 * 2 * 2
    assert {tuple(arm.settings.items()) for arm in arms[:4]} == {
        (("muon_lr", lr), ("clip", clip)) for lr in (0.01, 0.02) for clip in (0.0, 1.0)
    }
    assert len({arm.slug for arm in arms}) == 8
    assert arms[5].settings["n_layer"] == 4


def test_none_is_a_value_where_a_field_may_have_none():
    arm = parse_arm("rule=gd-euler warmup=none n_kv_head=none")
    assert arm.settings == {"warmup": None, "n_kv_head": None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: n_layer=3", "names no rule"),
        ("a: rule=gd-euler n_layers=3", "did you mean 'n_layer'"),
        ("a: rule=gd-euler n_layer", "is not FIELD=VALUE"),
        ("a: rule=gd-euler n_layer=", "is not FIELD=VALUE"),
        ("a: rule=gd-euler n_layer=two", "not a whole number"),
        ("a: rule=gd-euler muon_lr=fast", "not a number"),
        ("a: rule=gd-euler bias=perhaps", "neither true nor false"),
        ("a: rule=gd-euler gelu=relu", "not one of exact, tanh"),
        ("a: rule=gd-euler steps=3 steps=4", "sets steps twice"),
        ("a: rule=gd-euler seed=3", "--seeds"),
        ("a: rule=gd-euler vocab_size=3", "the data"),
        ("a: rule=gd-eular", "did you mean 'gd-euler'"),
        ('a: rule=gd-euler "n_layer=3', "No closing quotation"),
        ("a: rule=gd-euler V=zero", "unknown field 'V'"),
    ],
)
def test_what_is_no_arm(text, words):
    with pytest.raises(YuriiError, match=words.replace("(", r"\(")) as caught:
        parse_arm(text)
    assert "\n" not in str(caught.value)


def test_two_of_one_name():
    with pytest.raises(ConfigError, match="two arms are called"):
        make_arms(["gd-euler", "gd-euler"], [], [])
    with pytest.raises(ConfigError, match="two arms are called"):
        make_arms([], ["A b: rule=gd-euler", "a-B: rule=polyak-euler"], [])
    with pytest.raises(ConfigError, match="nothing to compare"):
        make_arms([], [], [])


@pytest.mark.parametrize("grid", ["muon_lr", "muon_lr=", "=3", "muon_rl=1,2", "muon_lr=a,b"])
def test_what_is_no_grid(grid):
    with pytest.raises(ConfigError):
        make_arms(["gd-euler"], [], [grid])


def test_own_files(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('equations = """\nX = X + attn(X)\nX = X + mlp(X)\n"""\n')
    (arm,) = make_arms([str(path)], [], [])
    assert arm.slug == "mine"
    path.unlink()
    assert "attn(X)" in arm.config("tales-tiny", 0, {}).to_dict()["model"]["rule"]["equations"]
    with pytest.raises(RuleError, match="no rule file"):
        make_arms([str(path)], [], [])


def test_seeds():
    assert parse_seeds("0,1, 2") == [0, 1, 2]
    assert parse_seeds("3-5,9") == [3, 4, 5, 9]
    for text in ("", " , ", "a", "1,1", "3-1", "0-2,1", "-1"):
        with pytest.raises(ConfigError, match="seed"):
            parse_seeds(text)


def test_a_field_twice():
    merged = make_arms(["gd-euler"], [], ["clip=0", "muon_lr=1", "clip=2"])
    assert [dict(arm.settings) for arm in merged] == [
        {"clip": 0.0, "muon_lr": 1.0},
        {"clip": 2.0, "muon_lr": 1.0},
    ]
    with pytest.raises(ConfigError, match="names n_layer twice"):
        split_settings(["n_layer=1", "steps=3", "n-layer=2"])


def test_slugs_tell_labels_apart():
    assert slug("深い") != slug("浅い")
    one, two = slug("x" * 300 + "a"), slug("x" * 300 + "b")
    assert one != two
    assert max(len(one.encode()), len(slug("深" * 200).encode())) <= 120


def test_slugs_are_names_of_folders():
    for text in ("../../etc", "a/b", "..", "", "ä β", "x" * 30, ". hidden"):
        name = slug(text)
        assert name
        assert "/" not in name
        assert not name.startswith(".")
    assert ArmSpec("l", "s", yf.rules["gd-euler"]).entry()["rule"] == "gd-euler"
