"""Verdicts against cases computed by hand.

With differences -0.10, -0.11, -0.12: mean -0.11, s = 0.01, t = -0.11 √3 / 0.01 = -19.05, two
degrees of freedom. For those F(t) = 1/2 + t / (2 √(t² + 2)), so every p here has a formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from yuriiformer.comparison.hypotheses import StudyRecord, judge


def below(t: float) -> float:
    """P(T < t) with two degrees of freedom."""
    return 0.5 + t / (2 * math.sqrt(t * t + 2))


def two_sided(t: float) -> float:
    return 2 * below(-abs(t))


@dataclass
class Arm:
    label: str
    losses: dict[int, float]
    broken: bool = False

    def values(self, metric):
        assert metric == "final"
        return self.losses


@dataclass
class Case:
    hypotheses: list[dict]
    arms: list[Arm]
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    late: tuple[str, ...] = ()

    def verdicts(self):
        definition = {
            "title": "",
            "question": "",
            "metric": "final",
            "seeds": self.seeds,
            "hypotheses": self.hypotheses,
        }
        claims = [each["claim"] for each in self.hypotheses if each["claim"] not in self.late]
        history = [
            {"finished": 0, "hypotheses": claims},
            {"finished": 2, "hypotheses": list(self.late)},
        ]
        return judge(StudyRecord(definition, history), self.arms)


def claim(direction, difference, *, arm="new", family="main", words=None):
    return {
        "claim": words or f"{arm} {direction} {difference}",
        "arm": arm,
        "against": "base",
        "direction": direction,
        "difference": difference,
        "family": family,
    }


BASE = Arm("base", {0: 1.0, 1: 1.1, 2: 1.2})


def shifted(*by, label="new"):
    return Arm(label, {seed: BASE.losses[seed] + each for seed, each in enumerate(by)})


def only(case):
    [verdict] = case.verdicts()
    return verdict


LARGE = (-0.10, -0.11, -0.12)  # mean -0.11, t = -19.05, p = 0.0027
SMALL = (-0.001, -0.002, -0.003)  # mean -0.002, s = 0.001, t = -3.46, p = 0.074
NOISY = (-0.10, +0.02, -0.04)  # mean -0.04, s = 0.06, t = -1.15, p = 0.37


@pytest.mark.parametrize(
    ("by", "direction", "difference", "word", "said"),
    [
        (LARGE, "lower", 0.005, "supported", ""),
        (LARGE, "lower", 0.0, "supported", ""),
        (LARGE, "higher", 0.005, "contradicted", "it is lower"),
        (LARGE, "lower", 0.5, "contradicted", "it is not lower by 0.5"),
        (LARGE, "lower", 0.111, "undecided", "whether by 0.111 is open"),
        (LARGE, "equal", 0.005, "contradicted", "they differ by 0.005 or more"),
        (LARGE, "equal", 0.5, "supported", ""),
        (LARGE, "equal", 0.111, "undecided", "whether they differ by 0.111 is open"),
        (SMALL, "lower", 0.0005, "undecided", "chance can explain"),
        (SMALL, "lower", 0.02, "contradicted", "it is not lower by 0.02"),
        (SMALL, "equal", 0.02, "supported", ""),
        (NOISY, "lower", 0.005, "undecided", "chance can explain"),
        (NOISY, "higher", 0.005, "undecided", "chance can explain"),
        (NOISY, "equal", 0.005, "undecided", "is open"),
    ],
)
def test_one_hypothesis(by, direction, difference, word, said):
    verdict = only(Case([claim(direction, difference)], [shifted(*by), BASE]))
    assert verdict.verdict == word
    assert said in verdict.reason
    mean = sum(by) / 3
    s = math.sqrt(sum((d - mean) ** 2 for d in by) / 2)
    half = 4.302652729911275 * s / math.sqrt(3)  # t(0.975) with two degrees of freedom
    assert verdict.difference == pytest.approx(mean)
    assert verdict.interval == pytest.approx((mean - half, mean + half))
    if direction == "equal":
        error = s / math.sqrt(3)
        worse = max(below((mean - difference) / error), below((-mean - difference) / error))
        assert verdict.p == pytest.approx(worse)
    else:
        assert verdict.p == pytest.approx(two_sided(mean * math.sqrt(3) / s))


def test_holm_is_within_a_family():
    """p = 0.0263 alone is below 5 %; of two such, doubled, it is not."""
    by = (-0.020, -0.025, -0.035)  # mean -0.02667, s = 0.00764, t = -6.05, p = 0.0263
    one, two = shifted(*by, label="new"), shifted(*by, label="other")
    alone = [claim("lower", 0, family="a"), claim("lower", 0, arm="other", family="b")]
    together = [claim("lower", 0), claim("lower", 0, arm="other")]
    assert [v.verdict for v in Case(alone, [one, two, BASE]).verdicts()] == ["supported"] * 2
    found = Case(together, [one, two, BASE]).verdicts()
    assert [v.verdict for v in found] == ["undecided"] * 2
    apart = Case(alone, [one, two, BASE]).verdicts()
    assert apart[0].p == pytest.approx(0.02626, abs=1e-4)
    assert found[0].p == pytest.approx(2 * apart[0].p)


def test_a_late_one_is_marked_and_judged_all_the_same():
    case = Case(
        [claim("lower", 0.005, words="first"), claim("lower", 0.01, words="second")],
        [shifted(*LARGE), BASE],
        late=("second",),
    )
    assert [(v.late, v.verdict) for v in case.verdicts()] == [
        (False, "supported"),
        (True, "supported"),
    ]
    assert case.verdicts()[1].to_dict()["late"] is True


def test_one_seed_decides_nothing():
    verdict = only(Case([claim("lower", 0)], [Arm("new", {0: 0.5}), BASE], seeds=[0]))
    assert (verdict.verdict, verdict.p, verdict.interval) == ("undecided", None, (None, None))
    assert verdict.difference == pytest.approx(-0.5)
    assert "one seed" in verdict.reason


def test_runs_that_are_missing_decide_nothing():
    """Looking before all planned seeds are in would be a way to choose when to stop."""
    verdict = only(Case([claim("lower", 0)], [shifted(*LARGE), BASE], seeds=[0, 1, 2, 3]))
    assert (verdict.verdict, verdict.reason) == (
        "undecided",
        "3 of 4 seeds have finished in both arms",
    )
    gone = only(Case([claim("lower", 0)], [BASE]))
    assert (gone.verdict, gone.difference) == ("undecided", None)


def test_a_failed_run_decides_nothing():
    arm = shifted(*LARGE)
    arm.broken = True
    verdict = only(Case([claim("lower", 0)], [arm, BASE]))
    assert (verdict.verdict, verdict.reason) == ("undecided", "seeds of new failed or diverged")


def test_equal_arms_are_equal_and_differ_by_nothing():
    same = Case([claim("equal", 0.01), claim("lower", 0.01)], [shifted(0, 0, 0), BASE]).verdicts()
    assert [v.verdict for v in same] == ["supported", "contradicted"]
