"""The tables of docs/results.md and of the README, from the archives under results/.

    python -m results.make_pages            write them into the pages
    python -m results.make_pages --check    say whether the pages have them (the tests do)

A table stands in its page between two comments, ``<!-- NAME -->`` and ``<!-- end of NAME -->``.
How far a study has got stands there too; a confirmation that is complete also has a picture. Losses
stand nowhere else in a page: `strays` finds those that do. In the words of docs/results.md every
number is one that `results.tables.facts` computes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from results import picture
from results.tables import confirmation, ladder
from results.tables.archives import progress
from results.tables.arms import seeds_table, verdicts_table
from results.tables.facts import differences
from results.tables.inside import inside_table
from results.tables.rates import best_rates_table, rates_table
from results.tables.readings import readings_table
from results.tables.states import first_page, states, studies_table
from results.tables.upcycling import upcycling_table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
LIST = ROOT / "results" / "README.md"
TUNING = ROOT / "docs" / "finetuning.md"
PICTURE = ROOT / "docs" / "images" / "confirmation.svg"

TABLES: dict[str, Callable[[], str]] = {
    "best rates": best_rates_table,
    "rates": rates_table,
    "screening": partial(seeds_table, "screening"),
    "screening-adamw": partial(seeds_table, "screening-adamw"),
    "ideas": partial(seeds_table, "ideas"),
    "ideas verdicts": partial(verdicts_table, "ideas"),
    "readings": readings_table,
    "state": partial(states, "confirmation", "ladder"),
    "confirmation": partial(confirmation.results, "confirmation"),
    "confirmation verdicts": partial(confirmation.verdicts, "confirmation"),
    "ladder": partial(ladder.results, "ladder"),
    "ladder laws": partial(ladder.laws, "ladder"),
    "ladder rates": partial(ladder.rates_check, "ladder"),
    "ladder verdicts": partial(confirmation.verdicts, "ladder"),
    "inside": partial(inside_table, "confirmation"),
    "first page": first_page,
    "studies": studies_table,
    "upcycling": upcycling_table,
}
ELSEWHERE = {README: ("first page",), LIST: ("studies",), TUNING: ("upcycling",)}
HERE = tuple(name for name in TABLES if not any(name in names for names in ELSEWHERE.values()))
PAGES: dict[Path, tuple[str, ...]] = {PAGE: HERE, **ELSEWHERE}


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


def picture_is_right(name: str | Path = "confirmation", path: Path = PICTURE) -> bool:
    """Whether the picture is of the archive; before that is complete there is none."""
    if not progress(name).complete:
        return not path.exists()
    return path.is_file() and path.read_text(encoding="utf-8").endswith(picture.identity(name))


def outside(path: Path, page: str) -> list[str]:
    """What is wrong with a page outside its tables."""
    if path == PAGE:
        return differences(page, PAGES[path])
    return [f"{number} is in no table" for number in strays(page)]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true")
    check = options.parse_args().check
    failed = False
    if not check and progress("confirmation").complete:
        picture.write("confirmation", PICTURE)
    if not picture_is_right():
        print(f"{PICTURE.name} is not of the archive", file=sys.stderr)
        failed = True
    for path, names in PAGES.items():
        page = path.read_text(encoding="utf-8")
        wrong = outside(path, page)
        for each in wrong:
            print(f"{path.name}: in the words: {each}", file=sys.stderr)
        failed = failed or bool(wrong)
        if check:
            same = filled(page, names) == page
            print(f"{path.name}: {'as' if same else 'NOT as'} the archives have it")
            failed = failed or not same
        else:
            path.write_text(filled(page, names), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
