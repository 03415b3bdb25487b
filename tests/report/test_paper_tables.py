"""Runs with the paper's own numbers give the paper's tables, cell by cell, bold included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.comparison.papers import SIX, papers_suite
from tests.comparison.synthetic import configuration
from yuriiformer.comparison.paper import MARK, paper_training
from yuriiformer.report.paper_layouts import Value, bold_lowest, bold_top_two, training_column
from yuriiformer.report.paper_report import artefact_latex, artefact_markdown, minus
from yuriiformer.report.paper_slots import paper_slots
from yuriiformer.report.paper_tables import paper_tables
from yuriiformer.training.presets import preset

PRINTED = Path(__file__).parents[1] / "fixtures" / "paper_tables.tex"
TINY, SMALL, MEDIUM = "tinystories-small", "openwebtext-small", "openwebtext-medium"


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory):
    folder = tmp_path_factory.mktemp("papers")
    return {name: papers_suite(folder / name, name) for name in (TINY, SMALL, MEDIUM)}


def made(*comparisons):
    return {each.name: each for each in paper_tables(paper_slots(comparisons))}


def printed(label, part):
    """Lines of a table of the paper: its head or its body."""
    text = PRINTED.read_text(encoding="utf-8").split(f"% {label}\n")[1]
    head, body, *_ = re.split(r"% end of \w+\n", text)
    return plain({"head": head, "body": body}[part].splitlines())


def plain(lines):
    """Without what only spaces and sets; IMEX labels without their mark."""
    found = []
    for line in lines:
        bare = re.sub(r"\\textnormal\{\\texttt\{(\w+)\}\}", r"\1", line)
        bare = re.sub(r"\\textbf\{([^}]*)\}|\{\\tt (\w+)\}", lambda m: m[1] or m[2], bare)
        found.append(re.sub(r"\s+", " ", bare.replace(MARK, "")).strip())
    return found


def own(artefact, part, which=0):
    """The same of ours: the first table is of the runs, the second has the paper's figures."""
    text = artefact_latex(artefact).split(r"\toprule")[1 + which]
    head, body = text.split(r"\bottomrule")[0].split(r"\midrule")
    return plain([line for line in {"head": head, "body": body}[part].splitlines() if line.strip()])


NAMES = {
    "table-2-tinystories": "tab:tinystories-losses",
    "table-3-openwebtext": "tab:openwebtext-losses",
    "table-4-downstream": "tab:openwebtext-downstream",
    "table-5-comprehensive": "tab:tinystories-comprehensive",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_papers_tables_cell_by_cell(comparisons, name):
    found = made(*comparisons.values())[name]
    for which in (0, 1):  # from runs, and from the figures that are kept
        body = own(found, "body", which)
        assert body == printed(NAMES[name], "body")
        assert sum(line.count(r"{\bf") for line in body) == {2: 3, 3: 4, 4: 17, 5: 7}[int(name[6])]
    steps = "30k" if "openwebtext" in NAMES[name] else "10k"
    head = [line.replace("@200", f"@{steps}") for line in own(found, "head")]
    assert head == printed(NAMES[name], "head")


def test_training_budgets():
    """Table 1 is the presets': the column of a run of each, and the paper's own."""
    sizes = {TINY: 123_587_328, SMALL: 123_587_328, MEDIUM: 353_551_360}
    lines = printed("tab:training-hparams", "body")
    for place, (setting, parameters) in enumerate(sizes.items(), 1):
        column = [re.split(r" & | \\\\", line)[place] for line in lines]
        assert training_column(preset(setting, "gd-euler"), parameters) == column
        assert paper_training(setting) == column
    small = training_column(configuration("gd-euler", steps=100), None)
    assert small == ["–", "100", "49.15M", "10", "0.02", "6e-4"]


def test_training_budgets_of_runs(comparisons):
    found = made(*comparisons.values())["table-1-training"]
    assert [head.text for head in found.ours.heads[0]] == ["", "TS 12L", "OWT 12L", "OWT 24L"]
    sizes = [item.text for item in found.ours.rows[0]]
    assert sizes == ["Model size", "123.6M", "123.6M", "353.5M"]  # synthetic runs count no norms
    assert [item.text for item in found.papers.rows[1]] == ["Train steps", "10k", "30k", "30k"]


def test_markdown_has_the_runs_the_papers_and_the_difference(comparisons):
    text = artefact_markdown(made(comparisons[TINY])["table-2-tinystories"])
    assert "| Nesterov+Lie–Trotter | **1.078** | **1.090** | **0.896** |" in text
    assert text.count("| GD+Euler | 1.107 | 1.113 | 0.962 |") == 2
    assert "| GD+Euler | 0.000 | 0.000 | 0.000 |" in text
    assert "arXiv:2601.23236" in text
    wide = artefact_markdown(made(comparisons[SMALL], comparisons[MEDIUM])["table-4-downstream"])
    assert "small 10/25-shot HS" in wide
    assert "medium 0-shot ARC" in wide
    assert "**41.2±1.0**" in wide
    assert "GPT-2 124M (released): HellaSwag 10-shot 31.53, ARC-Easy 0-shot 39.48" in wide
    owt = artefact_markdown(made(comparisons[SMALL], comparisons[MEDIUM])["table-3-openwebtext"])
    assert "GPT-2 124M (released) 3.12" in owt
    assert "nanoGPT after 600k steps (294.9B tokens) 2.85" in owt
    assert "GPT-2 350M (released) 2.84" in owt


def test_one_size_alone(comparisons):
    found = made(comparisons[MEDIUM])
    lines = own(found["table-3-openwebtext"], "body")
    assert lines[0] == r"GD+Euler & 2.770 & 2.775 \\"
    assert found["table-2-tinystories"].ours is None
    assert found["table-2-tinystories"].remarks == ["No runs of tinystories-small."]


def test_several_seeds_and_missing_arms(tmp_path):
    few = papers_suite(tmp_path, TINY, SIX[:2], seeds=(0, 1, 2), spread=0.004)
    found = made(few)["table-2-tinystories"]
    lines = own(found, "body")
    half = r"{\tiny$\pm$.010}"
    assert lines[0] == rf"GD+Euler & 1.111{half} & 1.117{half} & 0.966{half} \\"
    assert lines[1].startswith(rf"Polyak+Euler & {{\bf 1.103{half}}}")
    assert lines[2] == r"Nesterov+Euler & -- & -- & -- \\"
    gap = minus(found.ours, found.papers).rows
    assert [item.text for item in gap[0]] == ["GD+Euler", "+0.004", "+0.004", "+0.004"]
    assert [item.text for item in gap[2]] == ["Nesterov+Euler", "–", "–", "–"]


def test_accuracies_over_seeds(tmp_path):
    comparison = papers_suite(tmp_path, SMALL, SIX[:2], seeds=(0, 1), spread=0.001)
    found = made(comparison)["table-4-downstream"]
    cell = found.ours.rows[0][1].text
    assert re.fullmatch(r"29\.9±0\.6|30\.0±0\.6", cell)  # 29.9 and 30.0: half of 12.7 × 0.1
    assert any("several seeds" in remark for remark in found.remarks)


def test_bold():
    def column(*values):
        return [Value(str(value), value) for value in values]

    assert bold_lowest(column(1.1, 1.0, 1.0)) == [False, True, True]
    assert bold_lowest(column(1.1)) == [False]
    assert bold_lowest([Value("–"), *column(1.1, 1.2)]) == [False, True, False]
    assert bold_top_two(column(41.2, 41.1, 41.1, 40.0)) == [True, True, True, False]
    assert bold_top_two(column(31.2, 31.2, 30.5)) == [True, True, False]
    assert bold_top_two([*column(3.0), Value("–")]) == [False, False]
