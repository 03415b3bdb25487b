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

from yuriiformer.comparison.archive import read_archive
from yuriiformer.comparison.record import SuiteRecord

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results.md"
README = HERE.parent / "README.md"
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


TABLES: dict[str, Callable[[], str]] = {"rates": rates_table, "best of the rates": best_table}
PAGES: dict[Path, tuple[str, ...]] = {PAGE: ("rates",), README: ("best of the rates",)}


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
    """Numbers outside the tables that look like losses: three decimals or more."""
    prose = page
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
