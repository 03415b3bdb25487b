"""The paper's claims in words, judged on runs as a study's hypotheses are.

They stand in ``paper_claims.toml``, one table. A claim is judged only on runs that the paper's
figures belong beside; an arm that was not run leaves it undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from yuriiformer.comparison.hypotheses import StudyRecord, Verdict, judge
from yuriiformer.comparison.study import Hypothesis
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.files import packaged_table
from yuriiformer.methods.catalog import paper

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Arm, Comparison

BEST = "best"


@dataclass(frozen=True)
class Claim(Hypothesis):
    """A hypothesis whose arms are rules. ``says`` are the paper's words, ``where`` their place;
    ``metric`` is Best, or a task (then the difference is in percentage points)."""

    setting: str = ""
    says: str = ""
    where: str = ""
    metric: str = BEST
    note: str = ""


@cache
def paper_claims() -> tuple[Claim, ...]:
    """All of them, in the order of the table."""
    entries = packaged_table("comparison/paper_claims.toml")["claims"]
    return tuple(claim for entry in entries for claim in _claims(entry))


def _claims(entry: dict[str, Any]) -> list[Claim]:
    """One for each setting and each rule that the entry sets its arm against."""
    same = {key: value for key, value in entry.items() if key not in ("settings", "against")}
    return [
        Claim(claim=_words(entry, against), against=against, setting=setting, **same)
        for setting in entry["settings"]
        for against in entry["against"]
    ]


def _words(entry: dict[str, Any], against: str) -> str:
    """``Polyak+Euler is lower than GD+Euler``, and of a task in what."""
    arm, other = (paper[name].label for name in (entry["arm"], against))
    task = PAPER_TASKS.get(entry.get("metric", BEST))
    return f"{arm} is {entry['direction']} than {other}" + (f" in {task}" if task else "")


def judge_claims(comparison: Comparison) -> list[Verdict]:
    """A verdict on every claim of the runs' setting; none where the paper's figures do not
    belong."""
    asked = [claim for claim in paper_claims() if claim.setting == comparison.papers]
    arms = {arm.rule.name: arm for arm in comparison.arms if comparison.paper_setting(arm)}
    found: dict[Claim, Verdict] = {}
    for metric in dict.fromkeys(claim.metric for claim in asked):
        some = [claim for claim in asked if claim.metric == metric]
        if metric == BEST or any(arm.values(metric) for arm in arms.values()):
            found |= zip(some, _judge(comparison, some, metric, arms), strict=True)
    return list(found.values())


def _judge(
    comparison: Comparison, claims: Sequence[Claim], metric: str, arms: dict[str, Arm]
) -> list[Verdict]:
    """Those of one metric, by the rules of a study."""
    definition = {
        "title": "The paper's claims",
        "question": "",
        "metric": metric,
        "seeds": comparison.seeds,
        "hypotheses": [asdict(claim) for claim in claims],
    }
    known = [replace(arm, label=name) for name, arm in arms.items()]
    verdicts = judge(StudyRecord(definition, []), known)
    return [
        replace(verdict, hypothesis=claim, reason=_reason(claim, verdict, arms))
        for claim, verdict in zip(claims, verdicts, strict=True)
    ]


def _reason(claim: Claim, verdict: Verdict, arms: dict[str, Arm]) -> str:
    missing = [paper[name].label for name in (claim.arm, claim.against) if name not in arms]
    said = f"{' and '.join(missing)} not run" if missing else verdict.reason
    return "; ".join(filter(None, [said, claim.note]))
