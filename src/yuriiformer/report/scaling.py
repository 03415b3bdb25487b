"""The loss against size: tables, and the data of the page's chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from yuriiformer.comparison.ladders import COUNTS, ENDS, Estimate, Fit, Scaling
from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.report.cells import NONE, Cell, Column, ResultTable, Row, number, signed, size
from yuriiformer.report.tables import markdown

SIZES, LAWS, GAINS = "Sizes", "Laws of the loss in compute", "Compute-equivalent gain"
LAW = "L = E + A C^-a, C in training FLOPs, with one E for all rules; 95 % intervals in brackets."
APART = (
    "L = E + A N^-α + B D^-β for each rule, N all parameters, D tokens; a is of the lowest loss "
    "that a compute C buys; 95 % intervals in brackets."
)
GAIN = (
    "The baseline's training FLOPs over the rule's at equal loss; above 1 the rule needs less. At "
    "the highest and the lowest loss that both ladders reach, so nothing here is extrapolated."
)
POINTS = 80  # of a law's curve


def scaling_tables(comparison: Comparison) -> dict[str, ResultTable]:
    """By their titles; none where nothing differs in size."""
    found = comparison.scaling
    if found is None:
        return {}
    tables = {SIZES: _sizes(found)}
    if found.fits:
        tables[LAWS] = _laws(found)
    if found.gains:
        tables[GAINS] = _gains(found)
    return tables


def scaling_markdown(comparison: Comparison) -> str:
    parts = [f"## {title}\n\n{markdown(t)}" for title, t in scaling_tables(comparison).items()]
    return "\n".join(parts)


def _table(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Mapping[str, Cell]],
    notes: Sequence[str],
    words: Mapping[str, str],
) -> ResultTable:
    heads = [
        Column(key, title, words.get(key, ""), numeric=key != "rule") for key, title in columns
    ]
    return ResultTable(tuple(heads), tuple(Row("", dict(row)) for row in rows), tuple(notes))


def _sizes(found: Scaling) -> ResultTable:
    rows = [
        {
            "rule": Cell(family.label, family.label, help=rung.arm),
            **{name: size(rung.parameters[name]) for name in COUNTS},
            "tokens": size(rung.tokens),
            "flops": number(rung.flops, "{:.2e}"),
            "loss": number(rung.mean, "{:.4f}"),
            "seeds": Cell(str(len(rung.losses)), len(rung.losses)),
        }
        for family in found.families
        for rung in family.rungs
    ]
    columns = [
        ("rule", "Rule"),
        *(
            (name, {"all": "Parameters"}.get(name, title.capitalize()))
            for name, title in COUNTS.items()
        ),
        ("tokens", "Tokens"),
        ("flops", "FLOPs"),
        ("loss", "Loss"),
        ("seeds", "Seeds"),
    ]
    return _table(columns, rows, [*found.refused, *found.said], {"loss": "Mean over the seeds."})


def _laws(found: Scaling) -> ResultTable:
    apart = bool(found.fits[0].sizes)
    columns = [("rule", "Rule"), ("E", "E"), ("a", "a")]
    if apart:
        columns += [
            (f"{name}_{count}", f"{letter}, {words}")
            for count, words in COUNTS.items()
            for name, letter in (("alpha", "α"), ("beta", "β"))
        ]
    columns += [(each.name, f"Paper's {each.name} size") for each in found.targets]
    rows = [_law(each, found) for each in found.fits]
    help_text = "What the law says of the paper's size. How far to trust it is said above."
    words = {each.name: help_text for each in found.targets}
    return _table(columns, rows, [APART if apart else LAW], words)


def _law(each: Fit, found: Scaling) -> dict[str, Cell]:
    label = each.family.label
    told = {name: _estimate(value, "{:.3f}") for name, value in each.numbers().items()}
    said = {target.name: _estimate(target.losses[label], "{:.2f}") for target in found.targets}
    return {"rule": Cell(label, label), **told, **said}


def _gains(found: Scaling) -> ResultTable:
    columns = [
        ("rule", "Rule"),
        ("small", "At the highest loss"),
        ("large", "At the lowest loss"),
        ("growth", "Growth"),
        ("exponent", "a minus the baseline's"),
    ]
    words = {
        "growth": "The second over the first: above 1 the gain grows with size.",
        "exponent": "Above zero the rule's loss falls faster with compute.",
    }
    rows = []
    for each in found.gains:
        cells = {n: _estimate(getattr(each, n), "{:.2f}") for n in ("small", "large", "growth")}
        at = f"At losses {each.losses[0]:.3f} and {each.losses[1]:.3f}."
        e = each.exponent
        text = f"{signed(e.value)} [{signed(e.low)}, {signed(e.high)}]"
        cells["exponent"] = Cell(text, e.value)
        rows.append({"rule": Cell(each.label, each.label, help=at), **cells})
    return _table(columns, rows, [GAIN], words)


def _estimate(found: Estimate, form: str) -> Cell:
    if not np.isfinite(found.value):
        return Cell(NONE)
    ends = [form.format(v) if np.isfinite(v) else "∞" for v in (found.low, found.high)]
    return Cell(f"{form.format(found.value)} [{ends[0]}, {ends[1]}]", found.value)


def law_curve(each: Fit, found: Scaling) -> dict[str, Any]:
    """A law from the smallest run to the largest of the paper's sizes, with its band."""
    flops = [rung.flops for rung in each.family.rungs]
    ends = [target.flops[each.family.label] for target in found.targets]
    across = np.geomspace(flops[0], max([flops[-1], *ends]), POINTS)
    rows = each.laws.loss(across)
    low, high = np.percentile(rows[1:], ENDS, axis=0)
    return {"flops": across, "loss": rows[0], "low": low, "high": high}


def scaling_payload(comparison: Comparison) -> dict[str, Any] | None:
    """What the page draws."""
    found = comparison.scaling
    if found is None:
        return None
    curves = {each.family.label: law_curve(each, found) for each in found.fits}
    base = found.families[0].label
    return {
        "metric": comparison.metric.capitalize(),
        "rules": [
            {
                "label": family.label,
                "style": style_of(family.baseline, place),
                "points": [
                    {
                        **rung.parameters,
                        "tokens": rung.tokens,
                        "flops": rung.flops,
                        "losses": list(rung.losses.values()),
                    }
                    for rung in family.rungs
                ],
                "law": curves.get(family.label),
            }
            for place, family in enumerate(found.families)
        ],
        "targets": [
            {"name": each.name, "flops": each.flops.get(base, next(iter(each.flops.values())))}
            for each in found.targets
        ],
        "notes": found.said,
    }


def style_of(baseline: bool, place: int) -> int:
    """The look of a rule's line: 0 is the baseline's."""
    return 0 if baseline else max(1, place)
