"""The tables of docs/results.md and of the README, from the archives under results/.

    python results/make_pages.py            write them into the pages
    python results/make_pages.py --check    say whether the pages have them (the tests do)

A table stands in its page between two comments, ``<!-- NAME -->`` and ``<!-- end of NAME -->``.
Losses stand nowhere else in a page: `strays` finds those that do.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from yuriiformer.comparison.archive import is_archive, read_archive
from yuriiformer.comparison.collect import collect
from yuriiformer.comparison.paper import paper_figure
from yuriiformer.comparison.record import SuiteRecord
from yuriiformer.methods.catalog import paper

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
README = HERE.parent / "README.md"
TUNING = HERE.parent / "docs" / "finetuning.md"
STUDY = HERE / "tinystories-cpu"
RATES = ("muon_lr", "matrix_lr", "adamw_lr")
PRESET = {"muon_lr": 0.02, "adamw_lr": 0.006}


@cache
def archive(name: str) -> SuiteRecord:
    return read_archive(STUDY / name)


def losses(name: str) -> dict[str, dict[int, float]]:
    """Exact validation loss by arm and seed; a run that diverged has none."""
    found: dict[str, dict[int, float]] = {}
    for entry in archive(name).entries:
        arm = found.setdefault(entry.label, {})
        if entry.run is not None and entry.run.exact is not None:
            arm[entry.seed] = entry.run.exact
    return found


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@dataclass(frozen=True)
class Trial:
    """One arm of the rates: its family, and what was tried."""

    family: str
    settings: Mapping[str, Any]
    loss: float


def trials() -> list[Trial]:
    """Every finished arm of the rates, the preset's rates filled in."""
    known = {arm["label"]: arm for arm in archive("rates").definition["arms"]}
    found = []
    for label, by_seed in losses("rates").items():
        for loss in by_seed.values():
            settings = {**PRESET, **known[label]["settings"]}
            found.append(Trial(family_of(label), settings, loss))
    return found


def family_of(label: str) -> str:
    """The label without what was varied within the family."""
    varied = (*RATES, "short warmup")
    return ", ".join(part for part in label.split(", ") if not part.startswith(varied))


def families() -> list[str]:
    return list(dict.fromkeys(each.family for each in trials()))


def parameters(family: str) -> float:
    """All of a family's model, start tables and positions included."""
    runs = [each.run for each in archive("rates").entries if family_of(each.label) == family]
    return next(run.plan("all_parameters") or 0 for run in runs if run is not None)


def best(family: str) -> Trial:
    return min((each for each in trials() if each.family == family), key=lambda each: each.loss)


def edges(family: str) -> list[str]:
    """Rates whose best value is the lowest or highest that was tried, the other rates being as they
    are in the best trial."""
    chosen = best(family)
    found = []
    for rate in RATES:
        if rate not in chosen.settings or (rate == "muon_lr" and "matrix_lr" in chosen.settings):
            continue
        alike = [each for each in trials() if each.family == family
                 and _others(each, rate) == _others(chosen, rate)]  # fmt: skip
        values = sorted(each.settings[rate] for each in alike)
        if chosen.settings[rate] in (values[0], values[-1]):
            found.append(rate)
    return found


def _others(trial: Trial, rate: str) -> dict[str, Any]:
    return {name: value for name, value in trial.settings.items() if name not in (rate, "warmup")}


def rates_table() -> str:
    """A row for each trial, the best of its family in bold."""
    rows = []
    for family in families():
        for each in (trial for trial in trials() if trial.family == family):
            text = f"{each.loss:.4f}"
            chosen = f"**{text}**" if each == best(family) else text
            shown = each.settings.get("matrix_lr", each.settings["muon_lr"])
            warmup = each.settings.get("warmup")
            rows.append([family, f"{shown:g}", f"{each.settings['adamw_lr']:g}",
                         str(50 if warmup is None else warmup), chosen])  # fmt: skip
    return markdown(["family", "matrices", "AdamW", "warmup", "exact loss"], rows)


def best_table() -> str:
    """A row for each family: the lowest loss among its trials."""
    rows = []
    for family in families():
        tried = sum(each.family == family for each in trials())
        name, comma, rest = family.partition(",")
        rows.append([f"`{name}`{comma}{rest}", f"{parameters(family) / 1e6:.2f} M", str(tried),
                     f"{best(family).loss:.4f}"])  # fmt: skip
    return markdown(["rule", "parameters", "trials", "lowest loss"], rows)


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


def upcycling_table() -> str:
    """A row for each rule that a trained transformer was continued with: how far the loss jumps at
    step 0, where it ends, and the verdict on the hypothesis about it."""
    [comparison] = collect([STUDY / "upcycling"])
    said = {each.hypothesis.arm: each.verdict for each in comparison.verdicts}
    rows = []
    for each in comparison.outcomes:
        jumps = [run.curves.val_loss[0] - run.saved["init"]["loss_before"] for run in each.arm.runs]
        own, beside = each.exact, each.difference
        interval = ""
        if each.arm.slug != comparison.baseline.slug:
            interval = f"{beside.mean:+.4f} ({beside.low:+.4f} to {beside.high:+.4f})"
        row = [f"`{each.arm.rule.name}`", f"{np.mean(jumps):+.4f}", f"{own.mean:.4f}", interval]
        rows.append([text.replace("-0", "−0") for text in row] + [said.get(each.arm.label, "")])
    heads = ["continued as", "jump at step 0", "exact loss", "difference (95 %)", "hypothesis"]
    return markdown(heads, rows)


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
        rows.append([name, f"{correlation(groups):.2f}", f"{low:.2f} to {high:.2f}",
                     f"{higher:.0%}", f"{agree} of {pairs}"])  # fmt: skip
    return markdown(["reading", "correlation", "95 %", "higher than the other in",
                     "IMEX pairs in the paper's order"], rows)  # fmt: skip


TABLES: dict[str, Callable[[], str]] = {"rates": rates_table, "best of the rates": best_table}
PAGES: dict[Path, tuple[str, ...]] = {PAGE: ("rates",), README: ("best of the rates",)}
if is_archive(STUDY / "screening"):
    TABLES |= {"screening": screening_table, "readings": readings_table}
    PAGES[PAGE] = ("rates", "screening", "readings")
if is_archive(STUDY / "upcycling"):
    TABLES |= {"upcycling": upcycling_table}
    PAGES[TUNING] = ("upcycling",)


def filled(page: str, names: Sequence[str]) -> str:
    """The page with each of these tables as the archives have it."""
    for name in names:
        before, begin, rest = page.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end of {name} -->")
        if not begin or not end:
            raise SystemExit(f"a page has no place for {name!r}")
        page = f"{before}{begin}{TABLES[name]()}\n{end}{after}"
    return page


def strays(page: str) -> list[str]:
    """Numbers outside tables and examples that look like losses: three decimals or more."""
    prose = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
    for name in TABLES:
        prose = re.sub(rf"<!-- {name} -->.*?<!-- end of {name} -->", "", prose, flags=re.DOTALL)
    return re.findall(r"(?<![\w.])\d{1,2}\.\d{3,}", prose)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true")
    check = options.parse_args().check
    failed = False
    for path, names in PAGES.items():
        page = path.read_text(encoding="utf-8")
        wrong = strays(page)
        if wrong:
            print(f"{path.name}: numbers outside the tables: {', '.join(wrong)}", file=sys.stderr)
            failed = True
        elif check:
            same = filled(page, names) == page
            print(f"{path.name}: {'as' if same else 'NOT as'} the archives have it")
            failed = failed or not same
        else:
            path.write_text(filled(page, names), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
