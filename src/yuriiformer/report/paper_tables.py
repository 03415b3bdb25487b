"""The paper's five tables from runs, and with the paper's own numbers where these belong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.comparison.paper import (
    is_papers_arm,
    loss_references,
    paper_downstream,
    paper_figure,
    paper_training,
    task_references,
    unclear_label,
)
from yuriiformer.comparison.statistics import Summary, summary
from yuriiformer.evaluation.local_tasks import PAPER_TASKS
from yuriiformer.report.paper_layouts import (
    MISSING,
    PaperTable,
    Value,
    Values,
    accuracy_table,
    comprehensive_table,
    openwebtext_table,
    tinystories_table,
    training_column,
    training_table,
)
from yuriiformer.report.paper_slots import Slots

TINY, SMALL, MEDIUM = "tinystories-small", "openwebtext-small", "openwebtext-medium"
STDERR = {"hellaswag": 0.5, "arc_easy": 1.0}  # of the paper's accuracies, in %


@dataclass(frozen=True)
class Artefact:
    """A table of the paper from runs (None: no run has it), and with the paper's own numbers."""

    name: str
    title: str
    ours: PaperTable | None
    papers: PaperTable | None = None
    remarks: Sequence[str] = field(default_factory=tuple)


def paper_tables(slots: Slots) -> list[Artefact]:
    """All five, in the paper's order."""
    return [
        _training(slots),
        _of_tinystories(slots, "table-2-tinystories", "Table 2", tinystories_table),
        _openwebtext(slots),
        _downstream(slots),
        _of_tinystories(slots, "table-5-comprehensive", "Table 5", comprehensive_table),
    ]


def _training(slots: Slots) -> Artefact:
    ours, theirs = [], []
    for setting, each in slots.filled.items():
        title = "TS" if setting == TINY else "OWT"
        config = each.baseline.first.config
        column = training_column(config, each.baseline.first.plan("parameters"))
        ours.append((f"{title} {config.model.n_layer}L", column))
        if each.papers:
            theirs.append((ours[-1][0], paper_training(setting)))
    return Artefact(
        "table-1-training",
        "Table 1",
        training_table(ours) if ours else None,
        training_table(theirs) if theirs else None,
        slots.remarks(*(slots.filled or (TINY, SMALL, MEDIUM))),
    )


def _of_tinystories(
    slots: Slots, name: str, title: str, layout: Callable[[Values, str, str], PaperTable]
) -> Artefact:
    comparison = slots.filled.get(TINY)
    if comparison is None:
        return Artefact(name, title, None, remarks=slots.remarks(TINY))
    told = (slots.size(TINY), slots.steps(TINY))
    ours = layout(run_losses(comparison), *told)
    papers = layout(paper_losses(TINY), *told) if comparison.papers else None
    return Artefact(name, title, ours, papers, slots.remarks(TINY))


def _openwebtext(slots: Slots) -> Artefact:
    there = slots.openwebtext
    if not there:
        return Artefact(
            "table-3-openwebtext", "Table 3", None, remarks=slots.remarks(SMALL, MEDIUM)
        )
    told = ([slots.size(each) for each in there], slots.steps(*there))
    ours = openwebtext_table([run_losses(slots.filled[each]) for each in there], *told)
    papers, said = None, list(slots.remarks(*there))
    if all(slots.filled[each].papers for each in there):
        papers = openwebtext_table([paper_losses(each) for each in there], *told)
        known = {name: loss for each in there for name, loss in loss_references(each).items()}
        words = "; ".join(f"{name} {loss:.2f}" for name, loss in known.items())
        said.append(f"For reference the paper gives, on nanoGPT's data and split: {words}.")
    return Artefact("table-3-openwebtext", "Table 3", ours, papers, said)


def _downstream(slots: Slots) -> Artefact:
    name, title = "table-4-downstream", "Table 4"
    there = [s for s in slots.openwebtext if any(run.scores for run in slots.runs(s))]
    if not there:
        said = (
            ["No run was evaluated: yurii evaluate SUITE --tasks paper."]
            if slots.openwebtext
            else slots.remarks(SMALL, MEDIUM)
        )
        return Artefact(name, title, None, remarks=said)
    sizes = [slots.size(each) for each in there]
    ours = accuracy_table([run_accuracies(slots.filled[each]) for each in there], sizes)
    papers, said = None, list(slots.remarks(*there))
    scores = [score for each in there for run in slots.runs(each) for score in run.scores.values()]
    if not all(score.papers for score in scores if score.task in PAPER_TASKS):
        said.append("Scores of a part of the items, or of another checkpoint, are left out.")
    if any(len(arm.runs) > 1 for each in there for arm in slots.filled[each].arms):
        said.append("Where an arm has several seeds: their mean ± half its 95 % interval.")
    if all(slots.filled[each].papers for each in there):
        papers = accuracy_table([paper_accuracies(each) for each in there], sizes)
        for model, known in task_references().items():
            words = ", ".join(f"{PAPER_TASKS[task]} {value:.2f}" for task, value in known.items())
            said.append(f"For reference the paper gives {model}: {words}.")
    return Artefact(name, title, ours, papers, said)


def run_losses(comparison: Comparison) -> Values:
    """Means over seeds; an arm with seeds that failed or diverged is never bold."""
    found = {each.arm.rule.name: each for each in comparison.outcomes if is_papers_arm(each.arm)}

    def value(rule: str, metric: str) -> Value:
        each = found.get(rule)
        known: Summary | None = None if each is None else getattr(each, metric)
        if each is None or known is None or known.mean is None:
            return MISSING
        text = f"{known.mean:.3f}"
        return Value(text + _half(known, 3), None if each.arm.broken else float(text))

    return value


def _half(known: Summary, digits: int) -> str:
    """± half the interval over seeds, where there are several."""
    return "" if known.half is None else f"±{known.half:.{digits}f}"


def paper_losses(setting: str) -> Values:
    def value(rule: str, metric: str) -> Value:
        figure = paper_figure(setting, rule)
        known = () if figure is None else figure.values(metric)
        if figure is None or not known:
            return MISSING
        unclear = unclear_label(rule)
        number = known[0] if unclear is None else known[figure.labels.index(unclear[1])]
        return Value(f"{number:.3f}", number)

    return value


def run_accuracies(comparison: Comparison) -> Values:
    """± the harness's standard error of one run, or half the interval over seeds."""
    found = {arm.rule.name: arm for arm in comparison.arms if is_papers_arm(arm)}

    def value(rule: str, task: str) -> Value:
        arm = found.get(rule)
        runs = [] if arm is None else [run for run in arm.runs if run.accuracy(task) is not None]
        if not runs:
            return MISSING
        known = summary([run.accuracy(task) or 0.0 for run in runs])
        error, text = runs[0].scores[task].stderr, f"{known.mean:.1f}"
        half = _half(known, 1) or ("" if error is None else f"±{100 * error:.1f}")
        return Value(text + half, float(text))

    return value


def paper_accuracies(setting: str) -> Values:
    def value(rule: str, task: str) -> Value:
        known = (paper_downstream(setting, rule) or {}).get(task)
        error = STDERR[task.partition("@")[0]]
        return MISSING if known is None else Value(f"{known:.1f}±{error:.1f}", known)

    return value
