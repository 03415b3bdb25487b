"""Runs compared: arms beside a baseline, with what the seeds allow to be said.

The primary metric is Final, the validation loss after the last step: it is not selected (a study
may say Exact, the same over the whole validation split). Best is the lowest of many, so it flatters
every arm, and the ones that overfit most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from yuriiformer.comparison.hypotheses import StudyRecord, Verdict, judge
from yuriiformer.comparison.ladders import Scaling
from yuriiformer.comparison.paper import is_papers_arm, judge_claims, match_remark, setting_match
from yuriiformer.comparison.remarks import remarks_on
from yuriiformer.comparison.scaling import scaling
from yuriiformer.comparison.statistics import Difference, Summary, holm, paired, summary
from yuriiformer.comparison.study import Metric
from yuriiformer.config import TrainConfig, differences
from yuriiformer.errors import RunError, did_you_mean
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.methods.catalog import BASELINE
from yuriiformer.methods.rule import Rule
from yuriiformer.runs.run import Run, text_of

IDENTITY = ("train_sha256", "val_sha256", "train_tokens", "val_tokens", "tokenizer")  # of data


@dataclass(frozen=True)
class Speedup:
    """How much sooner an arm reaches the baseline's best loss, as a ratio of the baseline's own
    steps or seconds; over the seeds in which it does."""

    reached: int
    n: int
    ratio: float | None


@dataclass(frozen=True)
class Arm:
    """Runs that differ in their seed only, under one label."""

    label: str
    slug: str
    runs: list[Run]  # by seed
    differs: dict[str, tuple[Any, Any]] = field(default_factory=dict)  # baseline's value, own

    @property
    def rule(self) -> Rule:
        return self.runs[0].rule

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def standard(self) -> bool:
        """Whether a block calls each oracle once."""
        return all(count == 1 for count in self.rule.oracle_calls.values())

    @property
    def broken(self) -> bool:
        """Whether its means leave out seeds that failed or diverged: the others may be the lucky
        ones."""
        return any(run.status == "failed" or run.diverged for run in self.runs)

    def values(self, metric: str) -> dict[int, float]:
        """``final``, ``exact``, ``exact:TEXT``, ``best``, ``best_step``, ``train``,
        ``tokens_per_second`` by seed, or the accuracy in a task of the paper, in %. Best is of
        finished runs only, or it would compare runs of different lengths."""
        found = {}
        for run in self.runs:
            value = run.accuracy(metric) if metric in PAPER_TASKS else run.loss(metric)
            if value is not None and run.finished:
                found[run.seed] = float(value)
        return found

    def over_seeds(self, metric: str) -> Summary:
        return summary(list(self.values(metric).values()))


@dataclass(frozen=True)
class Outcome:
    """An arm over its seeds, and beside the baseline. ``difference`` is of the comparison's
    metric."""

    arm: Arm
    final: Summary
    exact: Summary
    best: Summary
    best_step: Summary
    train: Summary
    difference: Difference
    best_difference: Difference
    speedup_steps: Speedup
    speedup_time: Speedup
    texts: dict[str, Summary] = field(default_factory=dict)  # exact losses on other texts

    def of(self, metric: str) -> Summary:
        """A loss over the seeds, by its name."""
        name = text_of(metric)
        if name is not None:
            return self.texts.get(name, summary([]))
        found: Summary = getattr(self, metric)
        return found

    @property
    def tokens_per_second(self) -> float | None:
        mean = self.arm.over_seeds("tokens_per_second").mean
        return mean or self.arm.first.tokens_per_second

    @property
    def parameters(self) -> float | None:
        """Without tables of further streams (v0)."""
        return self.arm.first.plan("parameters")

    @property
    def start_tables(self) -> float:
        return self.arm.first.plan("start_tables") or 0

    @property
    def flops_a_token(self) -> float | None:
        return self.arm.first.flops_a_token


@dataclass(frozen=True)
class Comparison:
    """Outcomes in the order of the arms; ``preset`` is the paper's setting that the runs are
    configured as, if any. Its figures are shown only if ``papers`` says so."""

    name: str
    outcomes: list[Outcome]
    baseline: Arm
    preset: str | None
    remarks: list[str]
    metric: Metric = "final"
    study: StudyRecord | None = None
    verdicts: list[Verdict] = field(default_factory=list)

    @cached_property
    def claims(self) -> list[Verdict]:
        """On what the paper claims in words, where these runs are its own."""
        return judge_claims(self)

    @cached_property
    def scaling(self) -> Scaling | None:
        """How the loss falls with size, where a rule was run at several sizes."""
        return scaling(self)

    @property
    def arms(self) -> list[Arm]:
        return [outcome.arm for outcome in self.outcomes]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for arm in self.arms for run in arm.runs})

    @property
    def texts(self) -> list[str]:
        """The other texts that some run was evaluated on."""
        return list(dict.fromkeys(name for each in self.outcomes for name in each.texts))

    @property
    def papers(self) -> str | None:
        """The paper's setting, if its figures belong beside these runs: the data count too."""
        if self.preset is None:
            return None
        grade = setting_match(self.preset, self.baseline.first).grade
        return None if grade == "other" else self.preset

    def paper_setting(self, arm: Arm) -> str | None:
        """The same for one arm: it must be one of the paper's."""
        return self.papers if is_papers_arm(arm) else None

    def primary(self, each: Outcome) -> Summary:
        """What an arm is judged by."""
        return each.of(self.metric)

    def ranked(self) -> list[Outcome]:
        """Those with a loss, lowest first: by the difference to the baseline over common seeds,
        for means over other seeds are of other runs; those without one by their means, last."""
        known = [each for each in self.outcomes if self.primary(each).mean is not None]
        own = self.baseline.over_seeds(self.metric).mean or 0.0

        def place(each: Outcome) -> tuple[bool, float]:
            paired_mean = each.difference.mean
            if paired_mean is None:
                return (bool(own), self.primary(each).mean or 0.0)
            return (False, own + paired_mean)

        return sorted(known, key=place)


def compare_arms(
    arms: Sequence[Arm],
    *,
    name: str = "",
    baseline: str | None = None,
    preset: str | None = None,
    remarks: Sequence[str] = (),
    study: StudyRecord | None = None,
) -> Comparison:
    """Set arms beside a baseline: the one named, else gradient descent, else the first."""
    base = find_baseline(arms, baseline)
    fields = {"run": numbers_of(base.first.config)}
    told = [
        replace(arm, differs=differences(fields, {"run": numbers_of(arm.first.config)}))
        for arm in arms
    ]
    metric: Metric = "final" if study is None else study.metric
    own, others = set(base.values(metric)), [arm for arm in told if arm.slug != base.slug]
    tests = sum(len(own & set(arm.values(metric))) > 1 for arm in others)
    outcomes = [_outcome(arm, base, max(1, tests), metric) for arm in told]
    ps = [None if each.arm.slug == base.slug else each.difference.p for each in outcomes]
    outcomes = [
        replace(each, difference=replace(each.difference, p_holm=p))
        for each, p in zip(outcomes, holm(ps), strict=True)
    ]
    papers = match_remark(preset, base.first)
    said = [*remarks, *([papers] if papers else []), *remarks_on(outcomes, metric)]
    verdicts = [] if study is None else judge(study, told)
    return Comparison(name, outcomes, base, preset, said, metric, study, verdicts)


def same_data(comparisons: Sequence[Comparison]) -> bool:
    """Whether all are on the same data, so that they can stand side by side."""
    return len({data_of(each.baseline.first) for each in comparisons}) == 1


def data_of(run: Run) -> tuple[Any, ...]:
    """What is equal if two runs have the same data."""
    return tuple(run.data.get(key) for key in IDENTITY)


def only_arms(comparisons: Sequence[Comparison], names: Sequence[str]) -> list[Comparison]:
    """The comparisons with some of their arms: by label, by folder's name or by rule. All, if none
    is named; a comparison without any of them is left out."""
    if not names:
        return list(comparisons)
    known = {name for c in comparisons for a in c.arms for name in (a.label, a.slug, a.rule.name)}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(sorted(known))}"
            raise RunError(f"--arms: no arm {name!r}{hint}")
    found = []
    for each in comparisons:
        kept = [
            outcome
            for outcome in each.outcomes
            if {outcome.arm.label, outcome.arm.slug, outcome.arm.rule.name} & set(names)
        ]
        found += [replace(each, outcomes=kept)] if kept else []
    return found


def find_baseline(arms: Sequence[Arm], wanted: str | None) -> Arm:
    if wanted is not None:
        for arm in arms:
            if wanted in (arm.label, arm.slug, arm.rule.name):
                return arm
        known = [arm.slug for arm in arms]
        hint = did_you_mean(wanted, known) or f"; there are {', '.join(known)}"
        raise RunError(f"no run of {wanted!r} to compare with{hint}")
    plain = [arm for arm in arms if arm.rule.name == BASELINE]
    return plain[0] if plain else arms[0]


def _outcome(arm: Arm, base: Arm, tests: int, metric: Metric) -> Outcome:
    return Outcome(
        arm,
        **{name: arm.over_seeds(name) for name in ("final", "exact", "best", "best_step", "train")},
        difference=paired(arm.values(metric), base.values(metric), tests),
        best_difference=paired(arm.values("best"), base.values("best"), tests),
        speedup_steps=_speedup(arm, base, lambda run, step: float(step)),
        speedup_time=_speedup(arm, base, lambda run, step: run.curves.seconds_at(step)),
        texts={
            name: arm.over_seeds(f"exact:{name}")
            for name in dict.fromkeys(name for run in arm.runs for name in run.texts)
        },
    )


def _speedup(arm: Arm, base: Arm, cost: Callable[[Run, int], float | None]) -> Speedup:
    """Costs until the baseline's best loss of the same seed, baseline / arm."""
    theirs = {run.seed: run for run in base.runs if run.finished}
    ratios: list[float] = []
    n = 0
    for run in arm.runs:
        other = theirs.get(run.seed)
        if other is None or other.best is None or other.best_step is None or not run.finished:
            continue
        n += 1
        step = run.reached(other.best)
        before = cost(other, other.best_step)
        after = None if step is None else cost(run, step)
        if before is not None and after is not None:
            ratios.append(before / after if after else 1.0 if not before else math.inf)
    return Speedup(len(ratios), n, sum(ratios) / len(ratios) if ratios else None)


IGNORED = {"rule", "seed", "device", "threads", "micro_batch", "recompute", "deterministic"}


def numbers_of(config: TrainConfig) -> dict[str, Any]:
    """The fields of a run's configuration that make it another experiment; a rule and its
    coefficients, the seed and the machine do not."""
    parts = [part for name, part in config.to_dict().items() if name != "output"]
    return {key: value for part in parts for key, value in part.items() if key not in IGNORED}
