"""The gallery: a page per rule of the catalogue, made from its text, and an overview."""

from __future__ import annotations

import html
import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from docs.site.editor import cost, shown
from docs.site.engine import ROOT, SETTING, oracle_costs
from docs.site.path import path_svg
from yuriiformer.comparison.archive import is_archive, read_archive
from yuriiformer.comparison.paper import FOOTNOTE, MARK, paper_figure, paper_presets
from yuriiformer.lab.measured import integrator_text
from yuriiformer.lab.plain import PlainQuadratic, run_plain
from yuriiformer.lab.results import QuadraticLab, quadratic_results
from yuriiformer.methods.catalog import BASELINE, controls, further, paper, rules, upcycling
from yuriiformer.methods.drawing.listing import extra_small, human_count
from yuriiformer.methods.drawing.markup import mathml
from yuriiformer.methods.drawing.svg import svg_diagram
from yuriiformer.methods.rule import Rule

GROUPS = {
    "The paper's rules": paper,
    "Controls": controls,
    "To continue a trained model": upcycling,
    "Further methods": further,
}
PICTURE = PlainQuadratic(condition=10.0, shifted=True)  # of the paths
BLOCKS = 40
QUADRATICS = {"even": QuadraticLab(split="even"), "shifted": QuadraticLab(split="shifted")}


def write_gallery(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lab = {name: _by_rule(options) for name, options in QUADRATICS.items()}
    measured = archived()
    for rule in rules.values():
        text = page(rule, {name: found[rule.name] for name, found in lab.items()}, measured)
        (folder / f"{rule.name}.md").write_text(text, encoding="utf-8")
    (folder / "index.md").write_text(overview(), encoding="utf-8")


def _by_rule(options: QuadraticLab) -> dict[str, dict[str, Any]]:
    found = quadratic_results(list(rules.values()), options)["rules"]
    return dict(zip(rules, found, strict=True))


def overview() -> str:
    lines = [
        "# Gallery of rules",
        "",
        f"All {len(rules)} rules of the catalogue. Each page is made from the rule's text. The",
        "small pictures: the block, and the path of `X` on a quadratic whose two oracles have",
        "different minima (○; + is the minimum of the sum). Change any of them in the",
        "[rule editor](../editor.md).",
    ]
    for title, group in GROUPS.items():
        cards = "".join(card(rule) for rule in group.values())
        lines += ["", f"## {title}", "", _raw(f'<div class="cards">{cards}</div>')]
    names = "\n".join(rules)
    return "\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n{names}\n```\n"


def card(rule: Rule) -> str:
    found = run_plain(rule, PICTURE, BLOCKS)
    return (
        f'<a class="card" href="{rule.name}.html"><span class="card-pictures">'
        f"{svg_diagram(rule)}{path_svg(PICTURE, found)}</span>"
        f"<b>{html.escape(rule.label)}</b><code>{rule.name}</code></a>"
    )


def page(rule: Rule, lab: Mapping[str, Any], measured: Mapping[str, Any]) -> str:
    data = shown(rule)
    found = run_plain(rule, PICTURE, BLOCKS)
    pictures = (
        f'<div class="pictures"><figure>{data["svg"]}<figcaption>The block. Streams run down.'
        f"</figcaption></figure><figure>{path_svg(PICTURE, found)}<figcaption>The path of X on a "
        f"quadratic, {len(found.path) - 1} blocks without LN<sub>v</sub>, κ = 10. ○: the minima of "
        "the two parts; +: of their sum.</figcaption></figure></div>"
    )
    parts = [
        f"# {_text(rule.label)}",
        f"`{rule.name}`" + (f": {_text(rule.note)}" if rule.note else ""),
        _raw(f'<div class="equations">{mathml(rule)}</div>'),
        _raw(pictures),
        "## What it needs",
        needs(rule, data),
        "## In the lab",
        behaviour(rule, lab),
        "## Results",
        results(rule, measured),
        "## The rule as a file",
        "Save this as a `.toml` file and give its path wherever a rule is named:",
        f"```toml\n{data['toml']}```",
        _raw(f'<p><a href="../editor.html#{fragment(rule)}">Open it in the rule editor</a></p>'),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def fragment(rule: Rule) -> str:
    """The rule as the editor's page reads it from its address."""
    return "rule=" + quote(rule.name, safe="")


def needs(rule: Rule, data: Mapping[str, Any]) -> str:
    costs = cost(rule, oracle_costs())
    calls, extra = rule.oracle_calls, extra_small(rule)
    rows = [("stream", f"`{name}` {text}") for name, text in data["streams"].items()]
    rows += [("coefficient", f"`{name}`: {text}") for name, text in data["coefficients"].items()]
    rows += [("locals", ", ".join(f"`{name}`" for name in rule.locals))] if rule.locals else []
    rows += [
        ("oracle calls per block", f"attention {calls['attn']}, MLP {calls['mlp']}"),
        ("LN_v calls per block", str(rule.norm_calls)),
        (
            "work against gradient descent",
            f"{costs['flops']:.2f} × the FLOPs per token of `{BASELINE}` (`{SETTING}`, forward)",
        ),
        (
            "parameters beyond gradient descent",
            f"{human_count(extra.total)}: tables {human_count(extra.tables)}, "
            f"LN_v {human_count(extra.norms)}, coefficients {human_count(extra.coefficients)}",
        ),
    ]
    return _table(("", ""), rows)


def behaviour(rule: Rule, lab: Mapping[str, Any]) -> str:
    even, shifted = lab["even"], lab["shifted"]
    rates = [
        (f"κ = {QUADRATICS['even'].condition:g}, even split, rate per block by theory",
         _number(even["theory"]["block"])),
        ("the same, fitted to the run", _number(even["fitted"]["block"])),
        ("rate per oracle call by theory", _number(even["theory"]["call"])),
        ("step size", _number(even["step_size"])),
        ("limit, where the two parts have different minima: distance to the minimum of the sum",
         _number(shifted["bias"])),
    ]  # fmt: skip
    said = "; ".join(even["remarks"])
    lines = [_table(("", ""), rates)]
    lines += [f"On the even split: {_text(said)}."] if said else []
    if shifted["remarks"] and shifted["remarks"] != even["remarks"]:
        lines.append(f"With different minima: {_text('; '.join(shifted['remarks']))}.")
    integrator = _text(integrator_text(rule)).replace("(yurii lab order)", "(`yurii lab order`)")
    lines.append(f"{integrator[0].upper()}{integrator[1:]}.")
    lines.append("[The lab](../docs/lab.md) says what these mean and what carries over to a model.")
    return "\n\n".join(lines)


def results(rule: Rule, measured: Mapping[str, Any]) -> str:
    lines = []
    figures = [(name, paper_figure(name, rule.name)) for name in paper_presets()]
    rows = [
        (f"`{name}`", each.text("best") or "–", each.text("final") or "–")
        for name, each in figures
        if each is not None
    ]
    if rows:
        lines.append("The paper prints these validation losses:")
        lines.append(_table(("setting", "best", "final"), rows))
        if any(MARK in text for row in rows for text in row):
            lines.append(FOOTNOTE)
    own = measured.get(rule.name, [])
    if own:
        lines.append(
            "From the archives of this project (exact validation loss in nats per token, over the "
            "whole split; [how to read them](../docs/results.md)). Studies differ in their "
            "settings: compare within one. One or two seeds give leads, not findings."
        )
        cells = [[_text(cell) for cell in row] for row in own]
        lines.append(_table(("study", "arm", "seeds", "loss", "lowest – highest"), cells))
    if not lines:
        return "Neither the paper nor an archive of this project has a run of this rule."
    return "\n\n".join(lines)


@cache
def archived(root: Path = ROOT / "results") -> dict[str, list[tuple[str, ...]]]:
    """By rule: a row for each arm of each archive with finished runs, most seeds first.

    An archive may be incomplete: its rows say how many of the planned seeds it has.
    """
    found: dict[str, list[tuple[str, ...]]] = {}
    for folder in sorted(root.glob("*/*")):
        if not is_archive(folder):
            continue
        entries = read_archive(folder).entries
        planned = Counter(entry.label for entry in entries)
        arms: dict[tuple[str, str], list[float]] = {}
        for entry in entries:
            if entry.run is None or (loss := entry.run.exact) is None:
                continue
            rule = entry.run.rule
            if rules.get(rule.name) == rule:  # not another rule of the same name
                arms.setdefault((rule.name, entry.label), []).append(loss)
        for name in dict.fromkeys(name for name, _ in arms):
            own = {label: losses for (each, label), losses in arms.items() if each == name}
            study = f"{folder.parent.name}/{folder.name}"
            found.setdefault(name, []).extend(_rows(study, own, planned))
    return {name: sorted(rows, key=lambda row: -_seeds(row)) for name, rows in found.items()}


def _seeds(row: Sequence[str]) -> int:
    return int(row[2].split()[0])


def _rows(
    study: str, arms: Mapping[str, list[float]], planned: Mapping[str, int]
) -> list[tuple[str, ...]]:
    """Arms that are to have one seed only, such as trials of learning rates, are one row."""
    trials = {label: losses[0] for label, losses in arms.items() if planned[label] == 1}
    rows = []
    for label, each in arms.items():
        if label not in trials:
            seeds, all_ = len(each), planned[label]
            count = str(seeds) if seeds == all_ else f"{seeds} of {all_}"
            rows.append((study, label, count, f"{statistics.fmean(each):.4f}", _spread(each)))
    if trials:
        best = min(trials, key=lambda label: trials[label])
        label = f"{best} (the lowest of {len(trials)} arms)" if len(trials) > 1 else best
        rows.append((study, label, "1", f"{trials[best]:.4f}", _spread(list(trials.values()))))
    return rows


def _spread(losses: Sequence[float]) -> str:
    return f"{min(losses):.4f} – {max(losses):.4f}" if len(losses) > 1 else "–"


def catalogue_json() -> str:
    """For the editor: each rule's equations and declarations."""
    found = {}
    for rule in rules.values():
        text = shown(rule)["toml"]
        before, _, rest = text.partition('equations = """\n')
        equations, _, after = rest.partition('"""\n')
        found[rule.name] = {"equations": equations, "declarations": before + after}
    return json.dumps(found, ensure_ascii=False)


def _raw(markup: str) -> str:
    return f"```{{raw}} html\n{markup}\n```"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(text: str) -> str:
    """As Markdown: nothing in it is markup."""
    for sign in "\\*_[]<`|":
        text = text.replace(sign, f"\\{sign}")
    return text


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
