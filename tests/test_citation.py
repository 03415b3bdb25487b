"""One citation, wherever it stands."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.comparison.papers import SIX, papers_suite
from tests.model.tiny import tiny
from yuriiformer.citation import ARXIV, BIBTEX, PAPER, SHORT, URL, YEAR
from yuriiformer.huggingface.card import model_card
from yuriiformer.report.downstream import downstream_latex, downstream_table
from yuriiformer.report.tables_latex import latex, latex_sizes

ROOT = Path(__file__).parents[1]


def test_the_first_page():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"```bibtex\n{BIBTEX}```" in text
    assert URL in text


def test_the_citation_file():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))[
        "preferred-citation"
    ]
    assert cited["title"] == PAPER
    assert cited["year"] == YEAR
    assert cited["url"] == URL
    names = [each["family-names"] for each in cited["authors"]]
    assert f"{names[0]}, {names[1]} and {names[2]} ({YEAR}), arXiv:{ARXIV}" == SHORT
    for each in cited["authors"]:
        assert f"{each['family-names']}, {each['given-names']}" in BIBTEX


def test_model_cards():
    for kind in ("yuriiformer", "gpt2"):
        card = model_card(tiny(), None, kind)
        assert f"```bibtex\n{BIBTEX}```" in card
        assert f"[{PAPER}]({URL})" in card


def test_captions(tmp_path):
    comparison = papers_suite(tmp_path, "openwebtext-small", SIX[:2])
    tables = [
        latex(comparison),
        latex_sizes([comparison, comparison]),
        downstream_latex(downstream_table(comparison)),
    ]
    assert all(SHORT in table.split("\\caption{")[1].split("\\begin")[0] for table in tables)
