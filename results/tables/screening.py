"""The screening: every arm, and which reading of the paper's IMEX labels it fits better."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import spearmanr

from results.tables.archives import archive, losses, markdown
from yuriiformer.comparison.paper import paper_figure
from yuriiformer.methods.catalog import paper


def screening_table() -> str:
    """A row for each arm with a finished run, the lowest mean first; the difference to the baseline
    is over the seeds that both have."""
    record = archive("screening")
    base = losses("screening")[record.definition["study"]["definition"]["baseline"]]
    runs = {each.label: each.run for each in record.entries if each.run is not None}
    found = {label: own for label, own in losses("screening").items() if own}
    rows = []
    for label, own in sorted(found.items(), key=lambda item: np.mean(list(item[1].values()))):
        run, both = runs[label], sorted(own.keys() & base.keys())
        calls = " + ".join(map(str, run.rule.oracle_calls.values()))
        each = ", ".join(f"{own[seed]:.4f}" for seed in sorted(own))
        difference = np.mean([own[seed] - base[seed] for seed in both]) if both else None
        rows.append(
            [
                label,
                calls,
                f"{(run.plan('all_parameters') or 0) / 1e6:.2f} M",
                each,
                f"{np.mean(list(own.values())):.4f}",
                "" if difference is None else f"{difference:+.4f}".replace("-", "−"),
            ]
        )
    heads = ["arm", "calls", "parameters", "exact loss, per seed", "mean", "difference"]
    return markdown(heads, rows)


def has_the_papers_rules() -> bool:
    """Whether each of the paper's rules has a finished run."""
    found = losses("screening")
    return all(found.get(name) for name in paper)


READINGS = {"first letter = first oracle": ("AMA", "MAM"), "letters = calls": ("MAM", "AMA")}
DRAWS = 10_000


def reading_values() -> dict[str, list[tuple[list[float], list[float]]]]:
    """For each reading of the paper's IMEX labels: our losses and the paper's, in groups that stay
    together when rules are drawn (an IMEX pair is one group)."""
    ours = {name: np.mean(list(own.values())) for name, own in losses("screening").items() if own}
    found: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in READINGS}
    for name in paper:
        figure = paper_figure("tinystories-small", name)
        assert figure is not None
        if name not in ours or (figure.unclear and not name.endswith("attn-mlp")):
            continue
        for reading, labels in READINGS.items():
            if not figure.unclear:
                found[reading].append(([ours[name]], [figure.final[0]]))
                continue
            other = name.replace("attn-mlp", "mlp-attn")
            told = dict(zip(figure.labels, figure.final, strict=True))
            if other in ours:
                pair = [ours[name], ours[other]], [told[label] for label in labels]
                found[reading].append(pair)
    return found


def correlation(groups: Sequence[tuple[list[float], list[float]]]) -> float:
    ours, theirs = ([v for group in groups for v in group[side]] for side in (0, 1))
    return float(spearmanr(ours, theirs).statistic)


def readings_table() -> str:
    """Spearman's rank correlation of our losses with the paper's under both readings, with the
    middle 95 % of what it is for rules drawn with replacement."""
    values = reading_values()
    count = len(next(iter(values.values())))
    generator = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {name: [] for name in values}
    for _ in range(DRAWS if count > 2 else 0):
        chosen = generator.integers(count, size=count)
        for name, groups in values.items():
            drawn[name].append(correlation([groups[i] for i in chosen]))
    rows = []
    for name, groups in values.items():
        low, high = np.nanquantile(drawn[name], [0.025, 0.975])
        others = [np.array(own) for other, own in drawn.items() if other != name]
        higher = np.mean(np.array(drawn[name]) > others[0])
        agree = sum((g[0][0] - g[0][1]) * (g[1][0] - g[1][1]) > 0 for g in groups if len(g[0]) == 2)
        pairs = sum(len(g[0]) == 2 for g in groups)
        rows.append(
            [
                name,
                f"{correlation(groups):.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{higher:.0%}",
                f"{agree} of {pairs}",
            ]
        )
    return markdown(
        [
            "reading",
            "correlation",
            "95 %",
            "higher than the other in",
            "IMEX pairs in the paper's order",
        ],
        rows,
    )
