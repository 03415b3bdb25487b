"""Pages of the project: their links lead somewhere, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

import yuriiformer as yf
from results.make_pages import PICTURE

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")]
)
LARGEST = 300_000  # bytes of a picture


def prose(page: str) -> str:
    """The page without its code."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page: str) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    return found + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", prose(page.relative_to(ROOT).as_posix()), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_are_there(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        path, _, anchor = unquote(link).partition("#")
        target = ((ROOT / page).parent / path).resolve() if path else ROOT / page
        assert target.exists(), f"{page}: {link}"
        assert target.is_relative_to(ROOT), f"{page}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page}: {link}"


def test_the_check_sees_links_of_every_kind():
    found = set(links("README.md"))
    assert {"docs/rules.md", "#citing", "docs/images/block.svg"} <= found
    assert "docs/images/block-dark.svg" in found
    assert "variations-in-one-word" in anchors(ROOT / "docs/adding_a_rule.md")


def test_every_docs_page_can_be_reached_from_the_readme():
    reached = {link.partition("#")[0] for link in links("README.md")}
    assert {page for page in PAGES if page.startswith("docs/")} <= reached


def test_every_picture_is_shown_small_and_made_by_the_script():
    pictures = {path.name for path in (ROOT / "docs/images").iterdir()}
    shown = {Path(link).name for page in PAGES for link in links(page) if "images/" in link}
    assert pictures == shown
    for name in pictures:
        assert 1000 < (ROOT / "docs/images" / name).stat().st_size <= LARGEST, name
    script = (ROOT / "docs/make_pictures.py").read_text(encoding="utf-8")
    for name in pictures - {PICTURE.name}:  # that of the archives is compared with them
        stem = Path(name).stem.removeprefix("lab-")
        assert f'"{stem}"' in script, name


def test_the_tests_that_pages_name_are_there():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for path in re.findall(r"(?<![\w/])(?:tests|benchmarks|src)/[\w/]+\.\w+", text):
            assert (ROOT / path).exists(), f"{page}: {path}"
    assert len(re.findall(r"tests/\w+/test_\w+\.py", prose("docs/verification.md"))) > 20


def test_the_citation():
    data = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert data["cff-version"] == "1.2.0"
    assert data["version"] == yf.__version__
    paper = data["preferred-citation"]
    entry = (ROOT / "README.md").read_text(encoding="utf-8").split("```bibtex")[1]
    for author in paper["authors"]:
        assert f"{author['family-names']}, {author['given-names']}" in entry
    assert paper["title"].replace("{", "") in re.sub(r"[{}]", "", entry)
    assert paper["url"].rpartition("/")[2] in entry
