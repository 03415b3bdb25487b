"""Verdicts on a study's hypotheses, from the differences d of two arms, seed by seed.

With δ the smallest difference of interest and α = 0.05:

    lower     supported     d̄ < 0 by more than chance, and d̄ ≤ -δ
              contradicted  d̄ > 0 by more than chance, or d shown to be above -δ
    higher    the same with the signs turned
    equal     supported     d shown to lie within ±δ (two one-sided tests)
              contradicted  d̄ ≠ 0 by more than chance, and |d̄| ≥ δ

"By more than chance" is the two-sided paired t test, "shown" a one-sided one; each p is corrected
by Holm's method within the hypothesis's family. Whatever is neither is undecided: also with one
seed, with runs that are missing, and with runs that failed or diverged (the seeds left may be the
lucky ones). The p of a verdict is that of the claim: of the two-sided test, or of the larger of the
two one-sided ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from yuriiformer.comparison.statistics import SIGNIFICANT, holm, summary, t_test
from yuriiformer.comparison.study import Hypothesis, Metric

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Arm

Word = Literal["supported", "contradicted", "undecided"]


@dataclass(frozen=True)
class StudyRecord:
    """A study as its suite keeps it: its definition and its history."""

    definition: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]

    @property
    def title(self) -> str:
        return str(self.definition["title"])

    @property
    def question(self) -> str:
        return str(self.definition["question"])

    @property
    def metric(self) -> Metric:
        found: Metric = self.definition["metric"]
        return found

    @property
    def seeds(self) -> list[int]:
        return [int(seed) for seed in self.definition["seeds"]]

    @property
    def hypotheses(self) -> list[Hypothesis]:
        """Each with its metric."""
        known = Hypothesis.__dataclass_fields__
        told = [{"metric": self.metric, **each} for each in self.definition["hypotheses"]]
        return [Hypothesis(**{name: each[name] for name in known if name in each}) for each in told]

    def late(self, kind: str) -> list[Any]:
        """Hypotheses (claims), arms (labels) or seeds that came after the first finished run."""
        return [each for entry in self.history if entry["finished"] for each in entry[kind]]

    def remarks(self) -> list[str]:
        """A remark for everything that was added late."""
        said = []
        for entry in self.history:
            for kind in ("arms", "seeds", "hypotheses"):
                if entry["finished"] and entry[kind]:
                    when = f"added after {entry['finished']} runs had finished"
                    said.append(f"{kind.capitalize()} {when}: {'; '.join(map(str, entry[kind]))}.")
        return said


@dataclass(frozen=True)
class Verdict:
    """On one hypothesis. ``interval`` is the difference's at 95 %, not corrected; ``p`` is."""

    hypothesis: Hypothesis
    verdict: Word
    difference: float | None
    interval: tuple[float | None, float | None]
    p: float | None
    n: int
    late: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        own = asdict(self.hypothesis)
        own["smallest_difference"] = own.pop("difference")
        return {
            **own,
            "verdict": self.verdict,
            "difference": self.difference,
            "interval": list(self.interval),
            "p": self.p,
            "seeds": self.n,
            "late": self.late,
            "reason": self.reason,
        }


@dataclass
class _Test:
    """The test of a hypothesis: three p values, later corrected."""

    hypothesis: Hypothesis
    differences: list[float]
    missing: str
    p: dict[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = self.hypothesis.difference
        sign = -1.0 if self.hypothesis.direction == "higher" else 1.0
        along = [sign * each for each in self.differences]  # "higher" is "lower" turned round
        back = [-each for each in along]
        beyond = t_test(back, size, "less")  # small: d is above -δ
        within = t_test(along, size, "less")  # small: d is below δ
        self.p = {
            "zero": t_test(along),
            "beyond": beyond if size else None,
            "within": None if beyond is None or within is None else max(beyond, within),
        }


def judge(study: StudyRecord, arms: Sequence[Arm]) -> list[Verdict]:
    """A verdict on every hypothesis, in their order."""
    by_label = {arm.label: arm for arm in arms}
    tests = [_test(study, each, by_label) for each in study.hypotheses]
    late = set(study.late("hypotheses"))
    for family in {each.family for each in study.hypotheses}:
        _correct([test for test in tests if test.hypothesis.family == family])
    return [_verdict(test, test.hypothesis.claim in late) for test in tests]


def _test(study: StudyRecord, hypothesis: Hypothesis, arms: Mapping[str, Arm]) -> _Test:
    two = [arms.get(label) for label in (hypothesis.arm, hypothesis.against)]
    metric = hypothesis.metric or study.metric
    values = [{} if arm is None else arm.values(metric) for arm in two]
    common = sorted(set(values[0]) & set(values[1]))
    differences = [values[0][seed] - values[1][seed] for seed in common]
    return _Test(hypothesis, differences, _missing(study, two, common))


def _missing(study: StudyRecord, arms: Sequence[Arm | None], common: Sequence[int]) -> str:
    """Why nothing can be decided yet; empty if it can."""
    for arm in arms:
        if arm is not None and arm.broken:
            return f"seeds of {arm.label} failed or diverged"
    planned = len(study.seeds)
    if len(common) < planned:
        return f"{len(common)} of {planned} seeds have finished in both arms"
    return "one seed: no interval exists" if planned == 1 else ""


def _correct(family: Sequence[_Test]) -> None:
    """Holm's correction within a family. Each kind of p is corrected among its own kind; the
    p values of the claims are corrected together."""
    claims = [t.p["within" if t.hypothesis.direction == "equal" else "zero"] for t in family]
    columns: dict[str, list[float | None]] = {"claim": holm(claims)}
    for name in ("zero", "beyond"):
        columns[name] = holm([test.p[name] for test in family])
    for number, test in enumerate(family):
        test.p = {name: column[number] for name, column in columns.items()}


def _verdict(test: _Test, late: bool) -> Verdict:
    found = summary(test.differences)
    word: Word = "undecided"
    reason = test.missing
    if not reason and found.mean is not None:
        decide = _equal if test.hypothesis.direction == "equal" else _directed
        word, reason = decide(test, found.mean)
    interval = (found.low, found.high)
    p = test.p["claim"]
    return Verdict(test.hypothesis, word, found.mean, interval, p, found.n, late, reason)


def _below(p: float | None) -> bool:
    return p is not None and p < SIGNIFICANT


def _directed(test: _Test, mean: float) -> tuple[Word, str]:
    size, direction = test.hypothesis.difference, test.hypothesis.direction
    along = mean if direction == "lower" else -mean
    other = {"lower": "higher", "higher": "lower"}[direction]
    if _below(test.p["claim"]) and along > 0:
        return "contradicted", f"it is {other}"
    if size and _below(test.p["beyond"]):
        return "contradicted", f"it is not {direction} by {size:g}"
    if _below(test.p["claim"]) and along <= -size:
        return "supported", ""
    if _below(test.p["claim"]):
        return "undecided", f"it is {direction}, but whether by {size:g} is open"
    return "undecided", "chance can explain the difference"


def _equal(test: _Test, mean: float) -> tuple[Word, str]:
    size = test.hypothesis.difference
    if _below(test.p["claim"]):
        return "supported", ""
    if _below(test.p["zero"]) and abs(mean) >= size:
        return "contradicted", f"they differ by {size:g} or more"
    return "undecided", f"whether they differ by {size:g} is open"
