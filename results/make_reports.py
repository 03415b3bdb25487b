"""The report pages of all archived studies: ``results/pages/STUDY/NAME/report.html``, and a list of
them, ``results/pages/index.html``. ``make results`` calls this."""

from __future__ import annotations

import contextlib
import html
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from results.inside import inside_file
from results.inside_figures import draw
from yuriiformer.cli.report import run
from yuriiformer.comparison.archive import is_archive, read_archive
from yuriiformer.errors import RunError
from yuriiformer.files import write_text

RESULTS = Path(__file__).parent
PAGES = RESULTS / "pages"
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Studies</title>
<style>:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 44rem; margin: 2rem auto;
  padding: 0 1rem }}
</style>
<h1>Studies</h1>
{entries}
"""


def archives(root: Path = RESULTS) -> list[Path]:
    return sorted(path for path in root.glob("*/*") if is_archive(path))


def make(found: Sequence[Path], pages: Path = PAGES) -> list[Path]:
    """A report of each archive that has a run, and the page that lists them."""
    made, entries = [], []
    for archive in found:
        study = read_archive(archive).study
        out = pages / archive.parent.name / archive.name
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                run([str(archive), "--out", str(out)])
        except RunError as error:
            print(f"{archive.name}: {error}")
            continue
        figures = [f"{archive.parent.name}/{archive.name}/report.html"]
        if inside_file(archive).is_file():
            drawn = draw(archive, pages / archive.parent.name / f"{archive.name}-inside")
            figures += [path.relative_to(pages).as_posix() for path in drawn]
        title, question = (archive.name, "") if study is None else (study.title, study.question)
        entries.append(_entry(title, question, figures))
        made.append(out / "report.html")
        print(made[-1])
    write_text(pages / "index.html", PAGE.format(entries="\n".join(entries)))
    return made


def _entry(title: str, question: str, paths: Sequence[str]) -> str:
    names = ["the report", *(Path(path).stem for path in paths[1:])]
    links = ", ".join(
        f'<a href="{html.escape(path)}">{name}</a>' for path, name in zip(paths, names, strict=True)
    )
    return f"<h2>{html.escape(title)}</h2>\n<p>{html.escape(question)}</p>\n<p>{links}</p>"


def main() -> int:
    PAGES.mkdir(exist_ok=True)
    make(archives())
    print(f"open {PAGES / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
