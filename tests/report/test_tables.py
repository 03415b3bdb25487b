"""Results as text: aligned, escaped, and read back."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace

import pytest

from tests.comparison.synthetic import arm, write_suite
from yuriiformer.comparison.outcomes import compare_arms
from yuriiformer.methods.catalog import paper
from yuriiformer.report.results import result_table
from yuriiformer.report.tables import (
    csv_text,
    display_width,
    json_data,
    json_text,
    markdown,
    terminal_table,
)
from yuriiformer.report.tables_latex import escape, latex, latex_sizes

GD, NESTEROV, VERLET = "gd-lie-trotter", "nesterov-lie-trotter", "verlet-ama"
HOSTILE = 'a_b % & # $x$ {} ~ ^ \\ – ½ → β Ω é ß 漢 😀 | < > " , [1] *\nnew\tline\x1b[31m'


@pytest.fixture
def hostile(tmp_path):
    labels = {GD: f"[x] {HOSTILE}", NESTEROV: f"* {HOSTILE}", VERLET: "=1+1"}
    arms = [arm(tmp_path, name, {0: 1.0, 1: 1.1}, label=label) for name, label in labels.items()]
    return compare_arms(arms, name=HOSTILE, preset="tinystories-small")


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All rules of the paper, two seeds each."""
    return write_suite(tmp_path_factory.mktemp("paper"), list(paper), seeds=2)


def rows_of(text):
    """A Markdown table's cells; escaped bars do not part them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [line.replace(r"\|", "¦").strip("|").split("|") for line in lines]


def test_markdown(tmp_path):
    comparison = write_suite(tmp_path, [GD, NESTEROV, "imex1-attn-mlp"])
    table = result_table(comparison)
    head, rule, *rows = rows_of(markdown(table))
    assert [cell.strip() for cell in head] == [column.title for column in table.columns]
    assert set(rule) == {"---", "---:"}
    assert len(rows) == 3
    text = table.rows[2].cells["final"].text
    assert rows[2][1].strip() == f"**{text}**"
    assert markdown(table).rstrip().endswith(table.footnotes[0])


def test_markdown_of_hostile_labels(hostile):
    rows = rows_of(markdown(result_table(hostile)))
    assert len(rows) == 5
    assert len({len(row) for row in rows}) == 1
    text = markdown(result_table(hostile))
    assert "\x1b" not in text
    assert r"a\_b" in text
    assert r"\[x\]" in text


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200, 400])
def test_a_terminals_table_fits_and_is_aligned(everything, width):
    table = result_table(everything)
    lines = terminal_table(table, width).splitlines()[: len(paper) + 2]
    assert all(display_width(line) <= width for line in lines)
    titles = {column.key: column.title for column in table.columns}
    assert all(titles[key] in lines[0] for key in ("arm", "final", "difference", "best", "train"))
    # Every number of a column ends in the same place.
    end = lines[0].index("Final") + len("Final")
    for line, row in zip(lines[2:], table.rows, strict=True):
        mean = row.cells["final"].text.split(" ± ")[0]
        assert mean in line[:end]
        assert line[end - 1] != " "
    if width == 400:
        assert all(column.title in lines[0] for column in table.columns)


def test_what_arms_are_judged_by_stays_in_a_narrow_terminal(tmp_path):
    """The difference stands beside the losses that it is a difference of."""
    comparison = write_suite(tmp_path, [GD, NESTEROV], exact=True)
    for metric, shown in (("final", "Final"), ("exact", "Exact")):
        head = terminal_table(result_table(replace(comparison, metric=metric)), 60).splitlines()[0]
        assert {"Final", "Exact"} & set(head.split()) == {shown}


def test_stars_mark_the_bold(tmp_path):
    table = result_table(write_suite(tmp_path, [GD, NESTEROV, VERLET]))
    lines = terminal_table(table, 120).splitlines()
    assert [line.count("*") for line in lines[2:5]] == [0, 3, 3]
    assert lines[5].startswith("* the lowest")


def test_a_terminals_table_of_hostile_labels(hostile):
    text = terminal_table(result_table(hostile), 120)
    assert "\x1b" not in text
    assert len(text.splitlines()) >= 5


def test_csv_reads_back(hostile):
    rows = list(csv.DictReader(io.StringIO(csv_text(hostile))))
    runs = [(each.arm, run) for each in hostile.outcomes for run in each.arm.runs]
    assert len(rows) == len(runs) == 6
    for row, (one, run) in zip(rows, runs, strict=True):
        assert row["arm"].removeprefix("'") == one.label  # a quote, or a sheet would compute it
        assert (row["rule"], int(row["seed"])) == (run.rule.name, run.seed)
        assert float(row["final"]) == run.final  # every digit
        assert float(row["best"]) == run.best
        assert float(row["train"]) == run.train
        assert int(row["best_step"]) == run.best_step
        assert (int(row["step"]), int(row["steps"])) == (run.step, run.steps)
        assert row["status"] == "finished"
        assert float(row["seconds"]) == run.curves.seconds[-1]


def test_csv_of_an_unfinished_run_has_holes(tmp_path):
    comparison = compare_arms([arm(tmp_path, GD, {0: 1.0}, until={0: 0})])
    (row,) = csv.DictReader(io.StringIO(csv_text(comparison)))
    assert (row["status"], row["final"], row["train"], row["seconds"]) == ("unfinished", "", "", "")


def test_json_is_strict_and_whole(hostile):
    text = json_text([hostile])

    def refuse(name):
        raise AssertionError(name)

    (data,) = json.loads(text, parse_constant=refuse)["comparisons"]
    assert data == json_data(hostile)
    assert data["name"] == HOSTILE
    assert [each["slug"] for each in data["arms"]] == [GD, NESTEROV, VERLET]
    for found, each in zip(data["arms"], hostile.outcomes, strict=True):
        assert found["final"]["mean"] == each.final.mean
        assert found["difference"]["p_holm"] == each.difference.p_holm
        assert [run["final"] for run in found["runs"]] == [run.final for run in each.arm.runs]
    assert data["arms"][0]["paper"] == {
        "unclear_label": False,
        "best": 1.106,
        "final": 1.114,
        "train": 0.985,
    }


def test_json_of_unclear_labels_and_of_numbers_that_are_none(tmp_path):
    one = arm(tmp_path, "imex1-attn-mlp", {0: 1.0})
    run = one.first
    plan = {**run.saved["plan"], "flops": math.inf}
    curves = replace(run.curves, median_speed=math.nan)
    odd = replace(one, runs=[replace(run, saved={**run.saved, "plan": plan}, curves=curves)])
    data = json_data(compare_arms([odd], preset="tinystories-small"))
    assert data["arms"][0]["tokens_per_second"] is data["arms"][0]["flops_a_token"] is None
    assert data["arms"][0]["paper"]["final"] == {"MAM": 1.095, "AMA": 1.097}
    json.dumps(data, allow_nan=False)


def test_latex_has_the_papers_two_panels(everything):
    text = latex(everything)
    assert r"lccc|lccc" in text
    assert r"\textbf{Standard compute (1 Attn + 1 MLP)}" in text
    first = next(line for line in text.splitlines() if "GD+Euler" in line)
    assert "{IMEX k=2 (Attn$\\rightarrow$MLP)}" in first  # left and right begin together
    bold = [cell for cell in text.split("&") if r"\textbf{0." in cell or r"\textbf{1." in cell]
    assert len(bold) == 6  # three metrics in each of two panels
    assert r"1.095/1.097" in text
    assert r"†~The paper labels" in text


def test_latex_of_one_panel(tmp_path):
    text = latex(write_suite(tmp_path, [GD, NESTEROV], seeds=1, setting="tales-tiny"))
    assert r"\begin{tabular}{lccc}" in text
    assert "Standard compute" not in text
    assert "gray" not in text
    assert r"\pm" not in text


def test_latex_sizes_has_a_row_a_rule(tmp_path):
    small = write_suite(tmp_path / "s", [GD, NESTEROV], seeds=1, setting="openwebtext-small")
    medium = write_suite(tmp_path / "m", [VERLET, GD], seeds=1, setting="openwebtext-medium")
    text = latex_sizes([small, medium])
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith("{")]
    ours = [row for row in rows if "gray" not in row]
    assert [row.split(" & ")[0] for row in ours] == [
        "{GD+Lie–Trotter}",
        "{Nesterov+Lie–Trotter}",
        "{PRK-Verlet (AMA)}",
    ]
    assert ours[1].removesuffix(r" \\").split(" & ")[3:] == ["--", "--"]
    assert ours[2].split(" & ")[1:3] == ["--", "--"]
    assert all(row.count("&") == 4 for row in rows)
    assert "2.990" in text
    assert "2.764" in text


def test_two_arms_of_one_rule_keep_rows_of_their_own(tmp_path):
    arms = [arm(tmp_path, GD, {0: v}, label=f"gd {v}", slug=f"gd{v}") for v in (1.0, 2.0)]
    text = latex_sizes([compare_arms(arms, name="one")])
    assert "{gd 1.0}" in text
    assert "{gd 2.0}" in text


def test_escaping():
    assert escape("a_b & 50% #1 $x {y}") == r"a\_b \& 50\% \#1 \$x \{y\}"
    assert escape("~^\\") == r"\textasciitilde{}\textasciicircum{}\textbackslash{}"
    assert escape("→ β Ω Λ μ Χ ο ς") == (
        r"$\rightarrow$ $\beta$ $\Omega$ $\Lambda$ $\mu$ X o $\varsigma$"
    )
    assert escape("Erdős, Gödel – ½") == "Erdős, Gödel – ½"  # pdflatex reads UTF-8
    assert escape("Wałęsa, ﬁne, ά") == r"Wałesa, fine, $\alpha$"
    assert escape("漢 ϝ") == "? ?"
    assert escape("a\nb") == "a b"
