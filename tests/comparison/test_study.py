"""Studies: what a file may say, what is refused, and how one that has begun may grow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.comparison.studies import EQUAL, STUDY, begin, request, run_all, study_file
from yuriiformer.cli.main import main
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.study import read_study
from yuriiformer.errors import ConfigError


def test_a_study_says_what_is_compared(tmp_path):
    study = read_study(study_file(tmp_path))
    assert [arm.label for arm in study.arms] == ["gd", "momentum", "own"]
    assert study.arms[1].settings == {"muon_lr": 0.01}
    own = study.arms[2].rule
    assert own.oracle_calls == {"attn": 1, "mlp": 1}
    assert own.coefficients["beta"].initial == 0.5
    config = study.arms[1].config(study.preset, 2, study.settings)
    assert (config.recipe.steps, config.recipe.muon_lr, config.recipe.seed) == (20, 0.01, 2)
    assert study.hypotheses[0].against == "gd"


def test_grids_multiply_arms_and_groups_bring_their_own_labels(tmp_path):
    text = """
    grid = { muon_lr = [0.01, 0.02] }
    [[arms]]
    label = "gd"
    rule = "gd-lie-trotter"
    grid = { adamw_lr = [0.001, 0.002] }
    [[arms]]
    rules = ["controls", "verlet-ama"]
    settings = { n_layer = 3 }
    """
    study = read_study(study_file(tmp_path, text))
    labels = [arm.label for arm in study.arms]
    assert labels[:4] == [
        f"gd, muon_lr={m}, adamw_lr={a}" for m in (0.01, 0.02) for a in (0.001, 0.002)
    ]
    assert len(labels) == 4 + 2 * (6 + 1)
    assert labels[-1] == "PRK-Verlet (AMA), muon_lr=0.02"
    assert study.arms[-1].settings == {"n_layer": 3, "muon_lr": 0.02}


def test_a_rule_file_is_looked_for_beside_the_study(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('equations = "X = X + attn(X) + mlp(X)"')
    text = '[[arms]]\nlabel = "a"\nrule = "mine.toml"\n'
    text += '[[arms]]\nlabel = "b"\nrule = "mine.toml+X=normalized"\n'
    monkeypatch.chdir(Path("/"))
    study = read_study(study_file(tmp_path, text))
    assert [dict(arm.rule.streams) for arm in study.arms] == [{"X": "tables"}, {"X": "normalized"}]


def test_exact_is_computed_where_it_is_the_metric(tmp_path):
    study = read_study(study_file(tmp_path, 'metric = "exact"\n' + STUDY))
    assert study.settings["exact"] is True


BAD = {
    "unknown arm": ('against = "gd"', 'against = "dg"', "unknown arm 'dg'; there are gd"),
    "itself": ('against = "gd"', 'against = "momentum"', "with itself"),
    "two of one label": ('label = "own"', 'label = "gd"', "two arms are called 'gd'"),
    "direction": (
        '"lower"',
        '"less"',
        r"hypotheses\[0\].direction must be one of lower, higher, equal, not 'less'",
    ),
    "no rule": ('rule = "gd-lie-trotter"', "", "needs one of rule, rules and equations"),
    "misspelt rule": ('"gd-lie-trotter"', '"gd-lie-troter"', r"unknown rule.*did you mean"),
    "misspelt field": ("muon_lr = 0.01", "muon_rl = 0.01", r"unknown field 'muon_rl'.*'muon_lr'"),
    "no number": ("muon_lr = 0.01", 'muon_lr = "fast"', "is not a number"),
    "steps": ("steps = 20", "steps = 2.5", "is not a whole number"),
    "misspelt key": ("seeds =", "seed =", r"unknown key 'seed'.*'seeds'"),
    "misspelt key of an arm": ("why =", "because =", "an arm has an unknown key 'because'"),
    "seed": ("settings = { steps = 20 }", "settings = { seed = 1 }", "seed cannot be set here"),
    "seeds": ("[0, 1, 2]", "[0, 0]", "different whole numbers"),
    "baseline": ('baseline = "gd"', 'baseline = "sgd"', r"baseline 'sgd' is no arm.*'gd'"),
    "preset": ("tales-tiny", "tales-tinny", "unknown preset.*'tales-tiny'"),
    "equations": ("attn(X))", "atn(X))", r"arm 'own'.*line 1.*unknown function 'atn'"),
    "difference": ("difference = 0.005", "difference = -1", "number of nats from 0 on"),
    "no claim": (
        'claim = "Momentum ends lower than gradient descent"',
        "",
        r"hypotheses\[0\].claim is missing",
    ),
    "metric": (
        "seeds =",
        'metric = "lucky"\nseeds =',
        "metric must be one of final, exact, best, not 'lucky'",
    ),
    "TOML": ("[[arms]]", "[[arms]", "is not a study"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_that_names_the_file(tmp_path, name):
    old, new, said = BAD[name]
    assert old in STUDY
    with pytest.raises(ConfigError, match=said) as caught:
        read_study(study_file(tmp_path, STUDY.replace(old, new, 1)))
    assert str(caught.value).startswith(str(tmp_path / "study.toml"))
    assert "\n" not in str(caught.value)


def test_a_family_that_is_nearly_another_is_refused_unless_declared(tmp_path):
    text = STUDY + EQUAL.replace("other", "mian")
    with pytest.raises(ConfigError, match="misspelt"):
        read_study(study_file(tmp_path, text))
    declared = '[families]\nmain = "one"\nmian = "another"\n'
    assert len(read_study(study_file(tmp_path, text + declared)).hypotheses) == 2
    with pytest.raises(ConfigError, match=r"unknown family 'mian'.*'main'"):
        read_study(study_file(tmp_path, text + '[families]\nmain = "one"\n'))


def test_equal_needs_a_bound_and_a_claim_stands_once(tmp_path):
    with pytest.raises(ConfigError, match="'equal' needs difference > 0"):
        read_study(study_file(tmp_path, STUDY + EQUAL.replace("0.01", "0")))
    with pytest.raises(ConfigError, match="two hypotheses have the claim"):
        read_study(study_file(tmp_path, STUDY + EQUAL + EQUAL))


CHANGES = {
    "settings": ("steps = 20", "steps = 30"),
    "an arm's settings": ("muon_lr = 0.01", "muon_lr = 0.02"),
    "its equations": ("gamma * attn(X)", "gamma * attn(X + V)"),
    "a hypothesis": ("difference = 0.005", "difference = 0.001"),
    "its arm": ('arm = "momentum"', 'arm = "own"'),
    "a claim's words": ("ends lower", "is lower"),
    "fewer seeds": ("[0, 1, 2]", "[0, 1]"),
    "the question": ("Which of the two?", "Which?"),
    "the baseline": ('baseline = "gd"', 'baseline = "own"'),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_study_that_has_begun_does_not_change(tmp_path, name):
    suite = begin(tmp_path)
    before = {path: path.read_bytes() for path in suite.path.rglob("*") if path.is_file()}
    old, new = CHANGES[name]
    assert old in STUDY
    changed = read_study(study_file(tmp_path, STUDY.replace(old, new, 1)))
    with pytest.raises(ConfigError, match=r"is not the study that .* was begun with") as caught:
        suite.extend(request(changed), "yurii suite")
    assert "\n" not in str(caught.value)
    assert before == {path: path.read_bytes() for path in suite.path.rglob("*") if path.is_file()}


def test_a_changed_setting_is_named(tmp_path):
    suite = begin(tmp_path, STUDY.replace("steps = 20", "steps = 20, n_layer = 2, d_model = 64"))
    other = STUDY.replace("steps = 20", "steps = 20, n_layer = 2, d_model = 96")
    with pytest.raises(ConfigError, match="d_model in its settings changed from 64 to 96"):
        suite.extend(request(read_study(study_file(tmp_path, other))), "yurii suite")


def test_a_hypothesis_is_late_once_a_run_has_finished(tmp_path):
    """Before the first finished run it may still be written."""
    suite = begin(tmp_path)
    early = EQUAL.replace("The own rule", "Early: the own rule")
    suite.extend(request(read_study(study_file(tmp_path, STUDY + early))), "yurii suite")
    run_all(suite, {"gd": {0: 1.0, 1: 1.1, 2: 1.0}, "own": {0: 1.0, 1: 1.1, 2: 1.0}})
    text = STUDY + early + EQUAL + '[[arms]]\nlabel = "more"\nrule = "gd-euler"\n'
    text = text.replace("[0, 1, 2]", "[0, 1, 2, 3]")
    suite.extend(request(read_study(study_file(tmp_path, text))), "yurii suite")
    [comparison] = collect([suite.path])
    assert [verdict.late for verdict in comparison.verdicts] == [False, False, True]
    assert comparison.study.late("arms") == ["more"]
    assert comparison.study.late("seeds") == [3]
    said = " ".join(comparison.remarks)
    assert "Hypotheses added after 6 runs had finished: The own rule changes nothing" in said
    assert "Arms added after 6 runs" in said
    assert "Seeds added after 6 runs" in said
    texts = [entry["text"] for entry in comparison.study.history]
    assert texts == [STUDY, STUDY + early, text]  # what was written when is all there


def test_a_suite_with_a_study_is_not_extended_beside_it(tmp_path, capsys):
    suite = begin(tmp_path)
    plain = request(read_study(study_file(tmp_path)))
    with pytest.raises(ConfigError, match="carries out the study"):
        suite.extend(type(plain)(plain.preset, plain.arms, [7], plain.data), "yurii suite")
    words = ["suite", "--study", str(tmp_path / "study.toml"), "--out", str(tmp_path / "new")]
    for more in (["--rules", "gd-euler"], ["--seeds", "3"], ["--set", "steps=3"]):
        assert main([*words, *more]) == 2
        assert f"{more[0]} and --study both say" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_what_is_in_the_suite_is_the_study_itself(tmp_path):
    saved = json.loads(begin(tmp_path).file.read_text())["study"]
    assert saved["history"][0]["text"] == STUDY
    assert saved["definition"] == read_study(study_file(tmp_path)).definition()
    assert "attn(X)" in saved["definition"]["arms"][2]["rule"]["equations"]
