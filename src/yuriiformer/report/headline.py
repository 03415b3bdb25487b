"""The result in words: a few sentences, and a study's verdicts as sentence, lines and table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from yuriiformer.comparison.hypotheses import Verdict, Word
from yuriiformer.comparison.outcomes import Comparison, Outcome
from yuriiformer.comparison.paper import Claim
from yuriiformer.comparison.statistics import SIGNIFICANT
from yuriiformer.comparison.study import Hypothesis
from yuriiformer.report.cells import NONE, Cell, Column, ResultTable, Row, interval_text, p_cell
from yuriiformer.runs.run import text_of


def headline(comparison: Comparison) -> list[str]:
    """One to four sentences; a claim needs enough seeds."""
    ranked = comparison.ranked()
    if not ranked:
        if any(run.finished for arm in comparison.arms for run in arm.runs):
            return ["No finished run has a validation loss at its end: nothing can be compared."]
        return ["No run has finished yet: curves are shown as far as they go."]
    base = comparison.baseline
    sound = [each for each in ranked if not each.arm.broken]
    broken = [each for each in ranked if each.arm.broken]
    if not sound:
        return ["Every arm has seeds that failed or diverged: nothing is claimed."]
    said = [_first(sound[0], comparison)]
    if broken:
        what = "nothing is claimed of their means over the others"
        said.append(f"{_names(broken)} failed or diverged with some seeds; {what}.")
    others = [each for each in sound if each.arm.slug != base.slug]
    if others and any(run.finished for run in base.runs):
        known = len(others) == 1 and sound[0] is others[0]  # then the first sentence is enough
        apart = "" if known and _clear(others[0]) else _told_apart(others, base.label)
        said += [text for text in (apart, _speed(others)) if text]
    unfinished = [run for arm in comparison.arms for run in arm.runs if not run.finished]
    if unfinished:
        total = sum(len(arm.runs) for arm in comparison.arms)
        said.append(f"{len(unfinished)} of {total} runs have not finished.")
    return said


def _first(best: Outcome, comparison: Comparison) -> str:
    """The arm that ends lowest, and its distance from the baseline; or where the only one ends."""
    known, difference = comparison.primary(best), best.difference
    if len(comparison.ranked()) == 1:  # "lowest" needs another to compare with
        seeds = f" (mean of {known.n} seeds)" if known.n > 1 else ""
        return f"{best.arm.label} ends at validation loss {known.mean:.3f} nats per token{seeds}."
    text = f"{best.arm.label} ends lowest: validation loss {known.mean:.3f} nats per token"
    if best.arm.slug == comparison.baseline.slug:
        return f"{text}; no other arm ends below it."
    if difference.mean is None:
        return f"{text}."
    where = "below" if difference.mean < 0 else "above"
    gap = f"{abs(difference.mean):.3f} {where}" if difference.mean else "the same as"
    text += f", {gap} {comparison.baseline.label}"
    if difference.p_holm is None:
        return f"{text} (one seed: no interval exists, and chance is not excluded)."
    interval = f"{difference.low:+.3f} to {difference.high:+.3f}".replace("-", "−")
    p = p_text(difference.p_holm)
    return f"{text} (95 % interval {interval}, {p} after Holm's correction, {difference.n} seeds)."


def p_text(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _told_apart(others: Sequence[Outcome], base: str) -> str:
    """Which arms differ from the baseline by more than chance explains."""
    tested = [each for each in others if each.difference.p_holm is not None]
    if not tested:
        return ""
    groups: dict[str, list[Outcome]] = {"below": [], "above": []}
    unclear: list[Outcome] = []
    for each in tested:
        where = "below" if (each.difference.mean or 0.0) < 0 else "above"
        (groups[where] if _clear(each) else unclear).append(each)
    parts = [
        f"{_names(group)} {'ends' if len(group) == 1 else 'end'} {where} {base}"
        for where, group in groups.items()
        if group
    ]
    text = "; ".join(parts) + " by more than chance explains (5 % level)." if parts else ""
    if unclear:
        least = max(each.difference.detectable or 0.0 for each in unclear)
        seeds = min(each.difference.n for each in unclear)
        text += (
            f"{' ' if text else ''}{_names(unclear)} cannot be told from {base}: with {seeds} "
            f"seeds a difference of {least:.3f} would have been found four times in five."
        )
    return text


def _clear(each: Outcome) -> bool:
    """Whether chance alone is a poor explanation."""
    p = each.difference.p_holm
    return p is not None and p < SIGNIFICANT and each.difference.mean != 0


def _names(group: Sequence[Outcome]) -> str:
    if len(group) > 4:
        return f"{len(group)} arms"
    labels = [each.arm.label for each in group]
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _speed(others: Sequence[Outcome]) -> str:
    """The arm that reaches the baseline's best loss first."""
    sure = [each for each in others if each.speedup_steps.reached == each.speedup_steps.n]
    known = [(each.speedup_steps.ratio, each) for each in sure if each.speedup_steps.ratio]
    if not known:
        return ""
    ratio, best = max(known, key=lambda pair: pair[0])
    if ratio <= 1:
        return ""
    return (
        f"{best.arm.label} reaches the baseline's best loss in {100 / ratio:.0f} % of the "
        "baseline's steps."
    )


HYPOTHESES = "Hypotheses"  # the title of their table
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
DROP = {"smallest": 1, "arms": 2, "family": 3}  # the claim says most of it
COLUMNS = tuple(
    Column(
        key,
        title,
        words,
        numeric=key in ("difference", "p", "smallest"),
        drop=DROP.get(key, 0),
    )
    for key, title, words in (line.split(" | ") for line in HELP.strip().splitlines())
)


def hypothesis_table(comparison: Comparison) -> ResultTable | None:
    """One row for each hypothesis of the study, in its order."""
    late = [LATE_NOTE] if any(each.late for each in comparison.verdicts) else []
    return _verdict_table(COLUMNS, comparison.verdicts, late)


def claims_table(comparison: Comparison) -> ResultTable | None:
    """The same of the paper's claims; ``where`` in place of what only a study says."""
    names = ("claim", "verdict", "difference", "p", "where", "family", "why")
    known = {column.key: column for column in (*COLUMNS, WHERE)}
    return _verdict_table([known[name] for name in names], comparison.claims, [CLAIMS_NOTE])


def _verdict_table(
    columns: Sequence[Column], verdicts: Sequence[Verdict], notes: Sequence[str]
) -> ResultTable | None:
    if not verdicts:
        return None
    keys = [column.key for column in columns]
    cells = [_cells(each) for each in verdicts]
    rows = tuple(Row("", {key: each[key] for key in keys}) for each in cells)
    return ResultTable(tuple(columns), rows, tuple(notes))


CLAIMS = "The paper's claims"  # the title of their table
WHERE = Column("where", "Where", "Where in the paper, and in which words.", numeric=False, drop=2)
CLAIMS_NOTE = (
    "The paper's claims in words, judged as a study's hypotheses: Best, or a task's accuracy in "
    "percentage points, paired by seed."
)


LATE_NOTE = (
    f"({LATE}): the hypothesis was written after the first run had finished, so it may have been "
    "chosen to fit."
)


def _cells(each: Verdict) -> dict[str, Cell]:
    asked = each.hypothesis
    claim = asked.claim + (f" ({LATE})" if each.late else "")
    words = {"lower": "<", "higher": ">", "equal": "="}[asked.direction]
    difference = interval_text(each.difference, *each.interval)
    return {
        "claim": Cell(claim, claim, help=LATE_NOTE if each.late else ""),
        "verdict": Cell(each.verdict, each.verdict, bold=each.verdict != "undecided"),
        "difference": Cell(difference, each.difference, help=f"{each.n} common seeds."),
        "p": p_cell(each.p),
        "smallest": Cell(f"{asked.difference:g}", asked.difference),
        "arms": Cell(f"{asked.arm} {words} {asked.against}{_where_else(asked)}", asked.arm),
        "family": Cell(asked.family, asked.family),
        "why": Cell(each.reason or NONE, each.reason or None),
        "where": _place(asked),
    }


def _where_else(asked: Hypothesis) -> str:
    """The text that a hypothesis is about, where it is another than the validation split."""
    text = text_of(asked.metric or "")
    return "" if text is None else f", on {text}"


def _place(asked: Hypothesis) -> Cell:
    """Where the paper says a claim."""
    if not isinstance(asked, Claim):
        return Cell(NONE)
    return Cell(asked.where, asked.where, help=f"“{asked.says}”")


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """For a terminal, a line each."""
    lines = []
    for each in verdicts:
        late = f" ({LATE})" if each.late else ""
        p = "" if each.p is None else f", {p_text(each.p)}"
        why = f" ({each.reason})" if each.reason else ""
        claim = f"{each.verdict:<12}  {each.hypothesis.claim}{late}"
        lines.append(f"{claim}: {interval_text(each.difference, *each.interval)}{p}{why}")
    return lines


def hypothesis_sentence(comparison: Comparison) -> str:
    """How many of each verdict."""
    many = len(comparison.verdicts)
    late = sum(each.late for each in comparison.verdicts)
    tail = f"; {late} came late" if late else ""
    what = f"{many} hypothes{'es' if many > 1 else 'is'}"
    return f"Of {what}: {_counted(comparison.verdicts)}{tail}." if many else ""


def claims_sentence(comparison: Comparison) -> str:
    """The same of the paper's claims."""
    many = len(comparison.claims)
    return f"Of {many} claims of the paper: {_counted(comparison.claims)}." if many else ""


def _counted(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(each.verdict for each in verdicts)
    return ", ".join(f"{counts[word]} {word}" for word in get_args(Word) if counts[word])
