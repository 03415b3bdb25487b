"""The confirmation: a study whose seeds and second text nothing was chosen on.

Each function gives a part of a page. Before all runs have ended, the parts say how far the study
is, show the losses that there are, and judge nothing.
"""

from __future__ import annotations

from pathlib import Path

from results.tables.archives import archive, markdown, progress, study
from results.tables.arms import comparison, interval, verdicts_table
from yuriiformer.comparison.outcomes import Arm, Outcome
from yuriiformer.comparison.statistics import Summary, paired

WORDS = ("supported", "contradicted", "undecided")


def setting(name: str | Path) -> str:
    """How many arms, which seeds, how many steps."""
    planned = study(name)
    recipe, seeds = planned.settings, planned.seeds
    tokens = recipe["steps"] * recipe["sequences"] * recipe["context"]
    share = tokens / archive("screening").definition["data"]["train_tokens"]
    return (
        f"{len(planned.arms)} arms with the seeds {seeds[0]} to {seeds[-1]}; "
        f"{recipe['steps']:,} steps, in which a run sees {share:.2f} times the text."
    )


def arms_table(name: str | Path, *, short: bool = False) -> str:
    """A row for each arm, the lowest first: its mean with its 95 % interval over seeds, and the
    difference to the baseline, paired by seed, on the validation split and on each other text.
    ``short`` leaves out what the differences say too."""
    found, there = comparison(name), progress(name)
    whole = there.seeds == there.of_seeds and not any(arm.broken for arm in found.arms)
    heads = ["arm", "parameters"] + ([] if whole else ["seeds"])
    heads += ["exact loss" if short else "exact loss (95 %)", "difference (95 %)"]
    for text in found.texts:
        heads += ([] if short else [f"on `{text}`"]) + [f"difference on `{text}` (95 %)"]
    rows = []
    for each in found.ranked():
        own = each.of(found.metric)
        row = [each.arm.label, size(each.arm)] + ([] if whole else [_count(each, there.of_seeds)])
        row += [_alone(own) if short else _mean(own)]
        row += [beside(each.arm, found.baseline, found.metric)]
        for text in found.texts:
            metric = f"exact:{text}"
            row += [] if short else [_alone(each.of(metric))]
            row += [beside(each.arm, found.baseline, metric)]
        rows.append(row)
    return markdown(heads, rows)


def size(arm: Arm) -> str:
    return f"{(arm.first.plan('all_parameters') or 0) / 1e6:.2f} M"


def _count(each: Outcome, planned: int) -> str:
    """Of how many seeds there is a loss, and why of no more."""
    lost = sum(run.status == "failed" or run.diverged for run in each.arm.runs)
    return f"{each.exact.n} of {planned}" + (f", {lost} failed or diverged" if lost else "")


def _mean(own: Summary) -> str:
    if own.low is None or own.high is None:
        return _alone(own)
    return f"{own.mean:.4f} ({own.low:.4f} to {own.high:.4f})"


def _alone(own: Summary) -> str:
    return "" if own.mean is None else f"{own.mean:.4f}"


def beside(arm: Arm, baseline: Arm, metric: str) -> str:
    """The difference to the baseline, paired by seed; none of the baseline itself."""
    if arm.slug == baseline.slug:
        return ""
    found = paired(arm.values(metric), baseline.values(metric))
    return interval(found.mean, found.low, found.high)


def shown(folder: str) -> str:
    """The picture, on a page from which its folder is this."""
    words = "Each arm's loss minus gradient descent's, with its 95 % interval and every seed"
    return f"![{words}]({folder}/confirmation.svg)"


def each_seed_table(name: str | Path) -> str:
    """The loss of every run."""
    found = comparison(name)
    rows = []
    for each in found.ranked():
        own = each.arm.values(found.metric)
        losses = [f"{own[seed]:.4f}" if seed in own else "" for seed in study(name).seeds]
        rows.append([each.arm.label, *losses])
    return markdown(["arm", *(f"seed {seed}" for seed in study(name).seeds)], rows)


def results(name: str | Path) -> str:
    """How far it is, and the losses that there are."""
    said = f"{setting(name)} {progress(name)}"
    if not progress(name).begun:
        return said
    details = f"<details>\n<summary>Every seed</summary>\n\n{each_seed_table(name)}\n\n</details>"
    said += f"\n\n{shown('images')}" if progress(name).complete else ""
    return f"{said}\n\n{arms_table(name)}\n\n{details}"


def verdicts(name: str | Path) -> str:
    """What became of the hypotheses; before all runs have ended, that they wait."""
    if not progress(name).complete:
        return f"Its {len(study(name).hypotheses)} hypotheses wait for the last run."
    return f"{tally(name)}\n\n{verdicts_table(name)}"


def tally(name: str | Path) -> str:
    found = comparison(name).verdicts
    late = sum(each.late for each in found)
    written = f"{late} of them written after the first run" if late else "written before the runs"
    counts = {word: sum(each.verdict == word for each in found) for word in WORDS}
    said = [f"{count} {'is' if count == 1 else 'are'} {word}" for word, count in counts.items()]
    return f"Of {len(found)} hypotheses, {written}, {said[0]}, {said[1]} and {said[2]}."
