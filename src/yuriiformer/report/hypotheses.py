"""A study's verdicts: as a table, as lines for a terminal, and in a sentence."""

from __future__ import annotations

from collections import Counter
from typing import get_args

from yuriiformer.comparison.hypotheses import Verdict, Word
from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.report.cells import signed
from yuriiformer.report.headline import p_text
from yuriiformer.report.table import NONE, Cell, Column, ResultTable, Row

TITLE = "Hypotheses"
LATE = "late"
HELP = """
claim | Claim | What was expected, written before the runs unless marked late.
verdict | Verdict | Supported, contradicted or undecided, at the 5 % level.
difference | Difference | First arm minus second, by seed: mean and 95 % interval, not corrected.
p | p (Holm) | Of the claim, corrected within its family; for 'equal', the larger one-sided p.
smallest | Of interest | The smallest difference of interest, in nats per token.
arms | Arms | Which arms are compared.
family | Family | The group of claims that p is corrected for.
why | Remark | Why it is not decided, or how it is contradicted.
"""
COLUMNS = tuple(
    Column(key, title, words, numeric=key in ("difference", "p", "smallest"))
    for key, title, words in (line.split(" | ") for line in HELP.strip().splitlines())
)


def hypothesis_table(comparison: Comparison) -> ResultTable | None:
    """One row for each hypothesis of the study, in its order."""
    if not comparison.verdicts:
        return None
    rows = tuple(Row("", _cells(each)) for each in comparison.verdicts)
    late = [LATE_NOTE] if any(each.late for each in comparison.verdicts) else []
    return ResultTable(COLUMNS, rows, tuple(late))


LATE_NOTE = (
    f"({LATE}): the hypothesis was written after the first run had finished, so it may have been "
    "chosen to fit."
)


def _cells(each: Verdict) -> dict[str, Cell]:
    asked = each.hypothesis
    claim = asked.claim + (f" ({LATE})" if each.late else "")
    words = {"lower": "<", "higher": ">", "equal": "="}[asked.direction]
    p = NONE if each.p is None else "<0.001" if each.p < 0.0005 else f"{each.p:.3f}"
    return {
        "claim": Cell(claim, claim, help=LATE_NOTE if each.late else ""),
        "verdict": Cell(each.verdict, each.verdict, bold=each.verdict != "undecided"),
        "difference": Cell(difference_text(each), each.difference, help=f"{each.n} common seeds."),
        "p": Cell(p, each.p),
        "smallest": Cell(f"{asked.difference:g}", asked.difference),
        "arms": Cell(f"{asked.arm} {words} {asked.against}", asked.arm),
        "family": Cell(asked.family, asked.family),
        "why": Cell(each.reason or NONE, each.reason or None),
    }


def difference_text(each: Verdict) -> str:
    """Mean and interval, as far as there are any."""
    if each.difference is None:
        return NONE
    low, high = each.interval
    text = signed(each.difference)
    return text if low is None or high is None else f"{text} [{signed(low)}, {signed(high)}]"


def hypothesis_lines(comparison: Comparison) -> list[str]:
    """For a terminal, a line each."""
    lines = []
    for each in comparison.verdicts:
        late = f" ({LATE})" if each.late else ""
        p = "" if each.p is None else f", {p_text(each.p)}"
        why = f" ({each.reason})" if each.reason else ""
        claim = f"{each.verdict:<12}  {each.hypothesis.claim}{late}"
        lines.append(f"{claim}: {difference_text(each)}{p}{why}")
    return lines


def hypothesis_sentence(comparison: Comparison) -> str:
    """How many of each verdict."""
    if not comparison.verdicts:
        return ""
    counts = Counter(each.verdict for each in comparison.verdicts)
    words = [f"{counts[word]} {word}" for word in get_args(Word) if counts[word]]
    late = sum(each.late for each in comparison.verdicts)
    tail = f"; {late} came late" if late else ""
    many = len(comparison.verdicts)
    return f"Of {many} hypothes{'es' if many > 1 else 'is'}: {', '.join(words)}{tail}."
