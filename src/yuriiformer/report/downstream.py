"""The table of downstream tasks, like the paper's: accuracies in %, the top two in bold."""

from __future__ import annotations

from collections.abc import Sequence

from yuriiformer.comparison.outcomes import Comparison, Outcome
from yuriiformer.comparison.paper import paper_downstream, task_references
from yuriiformer.comparison.statistics import summary
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.report.cells import NONE, Cell, Column, ResultTable, Row
from yuriiformer.report.tables_latex import CITED, escape
from yuriiformer.runs.run import TaskScore

Scores = dict[str, dict[str, list[TaskScore]]]  # by arm, by task, over seeds
TITLE = "Downstream tasks"


def downstream_table(comparison: Comparison) -> ResultTable | None:
    """A row for each arm that was evaluated, and rows for what others report; None without any."""
    scores = _scores(comparison)
    tasks = _tasks(scores)
    if not tasks:
        return None
    columns = [Column("arm", "Arm", "What is compared.", numeric=False)]
    every = {task: [s for mine in scores.values() for s in mine.get(task, [])] for task in tasks}
    for task in tasks:
        title = PAPER_TASKS.get(task, task)
        metrics = ", ".join(sorted({each.metric for each in every[task]}))
        columns.append(Column(task, title, f"{task}: {metrics} in %.", lower_is_better=False))
    bold = {task: _top_two(scores, task) for task in tasks}
    rows = [
        Row(each.arm.slug, _cells(comparison, each, scores[each.arm.slug], tasks, bold))
        for each in comparison.outcomes
        if scores[each.arm.slug]
    ]
    whole = [task for task in tasks if all(score.papers for score in every[task])]
    for name, known in task_references().items():
        shown = {task: Cell(f"{known[task]:.1f}", known[task]) for task in whole if task in known}
        if shown:
            cells = {task: shown.get(task, Cell(NONE)) for task in tasks}
            title = f"{name}, as the paper quotes it"
            rows.append(Row("", {"arm": Cell(title, title), **cells}))
    return ResultTable(tuple(columns), tuple(rows), tuple(_notes(scores)))


def _scores(comparison: Comparison) -> Scores:
    found: Scores = {}
    for arm in comparison.arms:
        mine = found.setdefault(arm.slug, {})
        for run in arm.runs:
            for task, score in run.scores.items():
                mine.setdefault(task, []).append(score)
    return found


def _tasks(scores: Scores) -> list[str]:
    """The paper's first, in its order."""
    found = dict.fromkeys(task for mine in scores.values() for task in mine)
    return [task for task in dict.fromkeys([*PAPER_TASKS, *found]) if task in found]


def _mean(scores: Sequence[TaskScore]) -> float:
    return 100 * sum(each.value for each in scores) / len(scores)


def _top_two(scores: Scores, task: str) -> set[str]:
    """Arms with one of the two highest printed values, ties too; of one arm alone none."""
    texts = {slug: f"{_mean(mine[task]):.1f}" for slug, mine in scores.items() if task in mine}
    if len(texts) < 2 or _mixed(scores, task):
        return set()
    # The paper's rule: a tie for the first place does not push others out of the second.
    second = sorted((float(text) for text in texts.values()), reverse=True)[1]
    return {slug for slug, text in texts.items() if float(text) >= second}


def _mixed(scores: Scores, task: str) -> bool:
    """Whether the results are over different items or checkpoints, and cannot be ranked."""
    return len({each.asked for mine in scores.values() for each in mine.get(task, [])}) > 1


def _cells(
    comparison: Comparison,
    each: Outcome,
    mine: dict[str, list[TaskScore]],
    tasks: Sequence[str],
    bold: dict[str, set[str]],
) -> dict[str, Cell]:
    label = each.arm.label
    cells = {"arm": Cell(label, label)}
    paper = paper_downstream(comparison.paper_setting(each.arm), each.arm.rule.name)
    for task in tasks:
        if task not in mine:
            cells[task] = Cell(NONE)
            continue
        error, said = _error(mine[task])
        text = f"{_mean(mine[task]):.1f}{error}"
        whole = all(score.papers for score in mine[task])
        known = (paper or {}).get(task) if whole else None
        text += "" if known is None else f" (paper {known:.1f})"
        cells[task] = Cell(text, _mean(mine[task]), each.arm.slug in bold[task], said)
    return cells


def _error(scores: Sequence[TaskScore]) -> tuple[str, str]:
    """Half the interval over seeds, or the harness's standard error of one run; and which it is."""
    if len(scores) > 1:
        found = summary([100 * each.value for each in scores])
        return (
            f" ± {found.half or 0.0:.1f}",
            f"Mean of {len(scores)} seeds ± half its 95 % interval.",
        )
    [one] = scores
    limit = "" if one.limit is None else f", {one.items} items only"
    said = f"One run ± the harness's standard error; {one.checkpoint} checkpoint{limit}."
    return "" if one.stderr is None else f" ± {100 * one.stderr:.1f}", said


def _notes(scores: Scores) -> list[str]:
    every = [each for mine in scores.values() for found in mine.values() for each in found]
    limited = any(each.limit is not None for each in every)
    mixed = any(_mixed(scores, task) for task in _tasks(scores))
    notes = ["Downstream accuracies in %; bold: the two highest, ties too."]
    notes += ["Some tasks were run on their first items only (--limit)."] * limited
    notes += ["Results over different items or checkpoints are not compared."] * mixed
    return notes


def downstream_latex(table: ResultTable) -> str:
    """The same with booktabs."""
    heads = " & ".join(escape(column.title) for column in table.columns)
    lines = [
        r"\begin{table}[ht]",
        r"\centering\small",
        rf"\caption{{{escape(' '.join([*table.footnotes, CITED]))}}}",
        rf"\begin{{tabular}}{{l{'c' * (len(table.columns) - 1)}}}",
        rf"\toprule {heads} \\ \midrule",
    ]
    for row in table.rows:
        texts = []
        for column in table.columns:
            cell = row.cells[column.key]
            text = "--" if cell.empty else escape(cell.text)
            texts.append(rf"\textbf{{{text}}}" if cell.bold else text)
        lines.append(" & ".join(texts) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])
