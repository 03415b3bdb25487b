"""Rules by name, by file, and with one-word variations."""

from __future__ import annotations

import pytest

import yuriiformer as yf
from yuriiformer.errors import RuleError

RULE = "nesterov-lie-trotter"


def test_a_stream_starts_otherwise():
    for start in ("zero", "tied", "normalized", "tables"):
        rule = yf.get_rule(f"{RULE}+V={start}")
        assert dict(rule.streams) == {"X": "tables", "V": start}
        assert rule.equations == yf.rules[RULE].equations
        assert rule.name == f"{RULE}+V={start}"
    both = yf.get_rule("gd-lie-trotter+X=normalized")
    assert dict(both.streams) == {"X": "normalized"}


def test_coefficients_otherwise():
    rule = yf.get_rule(f"{RULE}+mu=0.25+fixed=mu,beta+channel=gamma+head=beta")
    assert rule.coefficients["mu"] == yf.Coefficient("unit", 0.25, "scalar", False)
    assert rule.coefficients["beta"] == yf.Coefficient("unit", 0.9, "head", False)
    assert rule.coefficients["gamma"] == yf.Coefficient("positive", 1.0, "channel", True)
    assert rule.coefficients["mu_half"] == yf.rules[RULE].coefficients["mu_half"]
    assert not any(spec.learned for spec in yf.get_rule(f"{RULE}+fixed").coefficients.values())
    schedule = yf.get_rule(f"{RULE}+mu=(t+1)/(t+4)").coefficients["mu"]
    assert [schedule.value(t, 3) for t in range(3)] == [0.25, 0.4, 0.5]


def test_the_order_of_words_does_not_matter():
    one = yf.get_rule(f"{RULE}+gamma=0+fixed=gamma")
    two = yf.get_rule(f"{RULE}+fixed=gamma+gamma=0")
    assert one.coefficients == two.coefficients
    assert one.coefficients["gamma"] == yf.Coefficient("positive", 0.0, learned=False)
    assert yf.get_rule(f"{RULE}+gamma=1e+1").coefficients["gamma"].initial == 10.0
    assert yf.rules[RULE].vary(coefficients={"mu": 0.5}).coefficients["mu"].initial == 0.5


def test_a_file_anywhere_a_name_is_taken(tmp_path):
    folder = tmp_path / "c++"  # a plus in the path is not a variation
    folder.mkdir()
    path = folder / "mine.toml"
    equations = "X = X + nu * attn(X)\nX = X + mlp(X)"
    path.write_text(f'equations = """{equations}"""\n[coefficients]\nnu = 0.5\n')
    rule = yf.get_rule(str(path))
    assert rule.name == "mine"
    assert yf.get_rule(path) == rule
    assert rule.coefficients["nu"] == yf.Coefficient("real", 0.5)
    varied = yf.get_rule(f"{path}+nu=2+X=normalized")
    assert varied.coefficients["nu"].initial == 2.0
    assert varied.streams["X"] == "normalized"
    assert yf.get_rule(rule) is rule


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (f"{RULE}+W=zero", "no stream or coefficient 'W'"),
        (f"{RULE}+V=zer", "cannot start as 'zer'"),
        (f"{RULE}+fixd", "is not a variation"),
        (f"{RULE}+V=", "is not a variation"),
        (f"{RULE}+mu=2", "between 0 and 1"),
        (f"{RULE}+fixed=nu", "no coefficient 'nu'"),
        (f"{RULE}+", "is not a variation"),
        (f"{RULE}+gamma=0", "unless fixed"),
        ("+V=zero", "unknown rule ''"),
    ],
)
def test_variations_that_make_no_sense(reference, reason):
    with pytest.raises(RuleError) as caught:
        yf.get_rule(reference)
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", yf.rules)
def test_plain_data_and_back(name):
    import json

    rule = yf.rules[name]
    data = json.loads(json.dumps(rule.to_dict()))
    again = yf.Rule.from_dict(data)
    assert again == rule
    assert hash(again) == hash(rule)
    assert again.steps == rule.steps


def test_the_classical_sequence():
    """k/(k+3) at the k-th velocity update, two updates per block, fixed; step sizes learned."""
    rule = yf.rules["nesterov-classical"]
    k = [rule.coefficients[name].value(t, 12) for t in range(3) for name in ("mu", "mu_half")]
    assert k == pytest.approx([i / (i + 3) for i in range(6)])
    assert rule.coefficients["beta"] == rule.coefficients["mu"]
    assert rule.coefficients["beta_half"] == rule.coefficients["mu_half"]
    assert {name for name, spec in rule.coefficients.items() if spec.learned} == {
        "gamma",
        "gamma_half",
    }


@pytest.mark.parametrize("name", yf.rules)
def test_copies_and_pickles(name):
    import copy
    import pickle

    rule = yf.rules[name]
    assert copy.deepcopy(rule) == rule == pickle.loads(pickle.dumps(rule))


def test_rules_are_values():
    euler = yf.rules["gd-euler"]
    again = yf.Rule("gd-euler", "X  =  X+attn(X)+ mlp(X)", label="GD+Euler", note=euler.note)
    assert euler == again
    assert euler != yf.Rule(
        "gd-euler", "X = X + mlp(X) + attn(X)", label="GD+Euler", note=euler.note
    )
    with pytest.raises(AttributeError):
        yf.rules["gd-euler"].name = "other"
