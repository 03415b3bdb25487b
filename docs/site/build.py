"""The documentation as a site: ``make docs`` writes it into ``site/``.

    python -m docs.site.build                 the whole site
    python -m docs.site.build --out FOLDER    elsewhere
    python -m docs.site.build --no-engine     without the engine of the rule editor (quicker)

The pages under docs/ are read as they are. The reference, the gallery and the tutorials are made
beside them in a staging folder, and Sphinx makes the site from that. Warnings are errors, every
link within the site must lead somewhere, and no page may load anything from another host.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.site.engine import ROOT, write_engine
from docs.site.gallery import catalogue_json, write_gallery
from docs.site.links import problems
from docs.site.reference import write_reference
from docs.site.tutorials import ORDER, write_tutorials

HERE = Path(__file__).parent
WORK = ROOT / "build"
CACHE = WORK / "pyodide"
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "results/README.md", "benchmarks/README.md")

# The table of contents. A page under docs/ that is not named here is a how-to. "TITLE <page>" is
# a title for the contents.
CONTENTS = {
    "Start": ["docs/start"],
    "Tutorials": [f"tutorials/{name}" for name in ORDER],
    "How-to": [
        "docs/adding_a_rule",
        "docs/adding_an_oracle",
        "docs/data",
        "docs/training",
        "docs/planning",
        "Training on several devices <docs/scaling>",
        "docs/comparing",
        "docs/reproducing",
        "docs/using",
        "docs/finetuning",
        "docs/inside",
        "docs/python",
    ],
    "Gallery": ["gallery/index", "editor"],
    "Reference": [
        "reference/api",
        "reference/commands",
        "docs/formats",
        "docs/rules",
        "docs/model",
        "docs/platforms",
    ],
    "Explanations": [
        "docs/iteration",
        "docs/controls",
        "docs/exact",
        "docs/lab",
        "docs/verification",
    ],
    "Results": ["docs/results", "results/README", "benchmarks/README"],
    "Project": ["CONTRIBUTING", "CHANGELOG"],
}


def stage(folder: Path) -> None:
    """Every page, written or made, at the path at which the others link to it."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "docs").mkdir(parents=True)
    pages = sorted((ROOT / "docs").glob("*.md"))
    for path in [*pages, *(ROOT / name for name in BESIDE)]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(encoding="utf-8")
        target.write_text(_home(text), encoding="utf-8")
        _copy_linked(path, text, folder)
    shutil.copytree(ROOT / "docs" / "images", folder / "docs" / "images", dirs_exist_ok=True)
    shutil.copytree(HERE / "static", folder / "_static")
    shutil.copy(HERE / "conf.py", folder)
    shutil.copy(HERE / "pages" / "editor.md", folder)
    index = (HERE / "pages" / "index.md").read_text(encoding="utf-8")
    (folder / "index.md").write_text(index + contents([p.stem for p in pages]), encoding="utf-8")
    write_reference(folder / "reference")
    write_gallery(folder / "gallery")
    write_tutorials(folder / "tutorials", folder / "_files" / "notebooks")
    catalogue = f"self.YURII_RULES = {catalogue_json()};\n"
    (folder / "_static" / "rules.js").write_text(catalogue, encoding="utf-8")


def contents(pages: list[str]) -> str:
    listed = {name.rpartition("<")[2].rstrip(">") for names in CONTENTS.values() for name in names}
    new = [f"docs/{page}" for page in pages if f"docs/{page}" not in listed]
    lines = []
    for caption, names in CONTENTS.items():
        more = new if caption == "How-to" else []
        lines += ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *names, *more, "```"]
    return "\n".join(lines) + "\n"


def _home(text: str) -> str:
    """The README is the first page of the repository; the site has its own."""
    return re.sub(r"\]\(((?:\.\./)*)README\.md(#[\w-]*)?\)", r"](\1index.md)", text)


def _copy_linked(page: Path, text: str, folder: Path) -> None:
    """Files that a page links to and that are no pages: readers can download them."""
    for link in re.findall(r"\]\(([^)\s#]+)\)", text):
        path = (page.parent / link).resolve()
        if path.is_file() and path.suffix != ".md" and path.is_relative_to(ROOT):
            target = folder / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def build(out: Path, *, engine: bool = True, work: Path = WORK) -> int:
    pages, trees = work / "site", work / "doctrees"
    stage(pages)
    static = pages / "_static"
    missing = write_engine(static, CACHE) if engine else "the rule editor is without its engine"
    if missing:
        print(f"docs: {missing}", file=sys.stderr)
    shutil.rmtree(out, ignore_errors=True)
    command = ["-b", "html", "-W", "--keep-going", "-q", "-E", "-d", str(trees)]
    code = build_main([*command, str(pages), str(out)])
    if code:
        return int(code)
    found = problems(out)
    for problem in found:
        print(f"docs: {problem}", file=sys.stderr)
    count = sum(1 for _ in out.rglob("*.html"))
    print(f"docs: {count} pages in {out}{'' if not found else ', with broken links'}")
    return int(bool(found))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--out", type=Path, default=ROOT / "site")
    options.add_argument("--work", type=Path, default=WORK, help="for the staged pages")
    options.add_argument("--no-engine", action="store_true")
    chosen = options.parse_args()
    work = chosen.work.resolve()
    return build(chosen.out.resolve(), engine=not chosen.no_engine, work=work)


if __name__ == "__main__":
    sys.exit(main())
