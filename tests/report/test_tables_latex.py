"""The LaTeX tables compile, whatever the labels."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import pytest

from tests.comparison.papers import papers_suite
from tests.comparison.synthetic import arm, write_suite
from tests.report.test_tables import HOSTILE
from yuriiformer.comparison.outcomes import compare_arms
from yuriiformer.comparison.paper import paper_presets
from yuriiformer.methods.catalog import paper
from yuriiformer.report.paper_report import artefact_latex
from yuriiformer.report.paper_slots import paper_slots
from yuriiformer.report.paper_tables import paper_tables
from yuriiformer.report.tables_latex import escape, latex, latex_document, latex_sizes

RULES = ["gd-euler", "gd-lie-trotter", "polyak-euler", "nesterov-lie-trotter"]


@pytest.fixture
def compile_latex(need_tool, tmp_path):
    tool = need_tool("pdflatex")
    for package in ("booktabs.sty", "xcolor.sty"):
        found = subprocess.run([need_tool("kpsewhich"), package], capture_output=True, check=False)
        if found.returncode and os.environ.get("CI"):
            pytest.fail(f"{package} is not installed, and in CI nothing is skipped")
        if found.returncode:
            pytest.skip(f"{package} is not installed (texlive-latex-recommended)")

    def run(text):
        (tmp_path / "doc.tex").write_text(text, encoding="utf-8")
        words = [tool, "-interaction=nonstopmode", "-halt-on-error", "doc.tex"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
        assert (tmp_path / "doc.pdf").stat().st_size > 1000
        return (tmp_path / "doc.log").read_text(errors="replace")

    return run


@pytest.mark.slow
def test_the_papers_tables_compile_and_fit(tmp_path, compile_latex):
    whole = write_suite(tmp_path / "t", list(paper), seeds=3)
    small = write_suite(tmp_path / "s", RULES, setting="openwebtext-small", name="small")
    medium = write_suite(tmp_path / "m", RULES, setting="openwebtext-medium", name="medium")
    tables = [latex(whole), latex(small), latex_sizes([small, medium])]
    log = compile_latex(latex_document(tables))
    assert "Overfull" not in log


@pytest.mark.slow
def test_hostile_labels_compile(tmp_path, compile_latex):
    arms = [
        arm(tmp_path, rule, {0: 1.0, 1: 1.1}, label=f"{start} {HOSTILE}")
        for rule, start in (("gd-euler", "[x]"), ("verlet-ama", "*"), ("gd-lie-trotter", "&"))
    ]
    comparison = compare_arms(arms, name=HOSTILE, preset="tinystories-small")
    compile_latex(latex_document([latex(comparison), latex_sizes([comparison, comparison])]))


@pytest.mark.slow
def test_every_character_compiles(compile_latex):
    """All of Unicode's first plane that can be printed."""
    points = [
        chr(i)
        for i in range(32, min(0x10000, sys.maxunicode))
        if unicodedata.category(chr(i)) not in ("Cn", "Cs", "Co", "Cc")
    ]
    lines = [escape("".join(points[i : i + 60])) + "\n" for i in range(0, len(points), 60)]
    kept = dict.fromkeys(line for line in lines if set(line) - set("? \n"))
    compile_latex(latex_document(["\n".join(kept)]))


@pytest.mark.slow
def test_the_papers_own_layouts_compile_and_fit(tmp_path, compile_latex):
    """Of runs with one seed, as the paper has them, and with several."""
    for seeds, spread in (((0,), 0.0), ((0, 1, 2), 0.004)):
        slots = paper_slots(
            [
                papers_suite(
                    tmp_path / f"{setting}-{len(seeds)}", setting, seeds=seeds, spread=spread
                )
                for setting in paper_presets()
            ]
        )
        tables = [artefact_latex(each) for each in paper_tables(slots)]
        log = compile_latex(latex_document(tables))
        assert "Overfull" not in log, seeds
