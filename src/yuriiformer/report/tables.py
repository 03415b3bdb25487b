"""Results as text: Markdown, terminal, CSV, JSON (LaTeX is in `tables_latex`)."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from yuriiformer.comparison.ladders import scaling_data
from yuriiformer.comparison.outcomes import Comparison, Outcome
from yuriiformer.comparison.paper import PaperFigure
from yuriiformer.display.columns import aligned, display_width, printable, shortened
from yuriiformer.display.page import for_json
from yuriiformer.report.cells import Cell, Column, ResultTable, paper_figure_of
from yuriiformer.runs.run import Run

BARE = (("best", "train"), ("final",), ("difference",))  # lose their intervals, in this order
GAP = 2  # between columns
LABEL = 28  # before intervals go, labels are cut to this
SUMMARIES = """final exact best best_step train difference best_difference speedup_steps
    speedup_time""".split()
RUN = "seed status step steps final exact best best_step train tokens_per_second".split()
COSTS = ("tokens_per_second", "parameters", "start_tables", "flops_a_token")
STAR = "* the lowest of its panel (blocks of 1 attention + 1 MLP call, or others)"


def markdown(table: ResultTable) -> str:
    """A table as GitHub reads it, the lowest losses of each panel in bold."""
    lines = [
        "| " + " | ".join(column.title for column in table.columns) + " |",
        "|" + "|".join("---:" if column.numeric else "---" for column in table.columns) + "|",
    ]
    for row in table.rows:
        texts = [_markdown_cell(row.cells[column.key], column) for column in table.columns]
        lines.append("| " + " | ".join(texts) + " |")
    for note in table.footnotes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: Cell, column: Column) -> str:
    text = printable(cell.text)
    if not column.numeric:
        text = re.sub(r"([\\`*_{}\[\]<>|#~$&!])", r"\\\1", text)
    return f"**{text}**" if cell.bold else text


def terminal_table(table: ResultTable, width: int | None = None) -> str:
    """For a terminal: the columns that fit its width, aligned. Where not even the most important
    ones do, intervals are left out, and at last labels are cut. Without a width, all columns."""
    texts = {column.key: _column_texts(table, column) for column in table.columns}
    if width is None:
        return "\n".join([*_lines(table.columns, texts), *table.footnotes]) + "\n"
    kept = [column.key for column in table.columns if column.drop == 0]
    for bare in ((), *BARE):
        texts |= {key: [_bare(text) for text in texts[key]] for key in bare}
        widths = {key: max(map(display_width, column)) for key, column in texts.items()}
        room = width - sum(widths[key] + GAP for key in kept) + GAP
        if room >= min(0, LABEL - widths["arm"]):
            break
    if room < 0:
        texts["arm"] = [shortened(text, max(8, widths["arm"] + room)) for text in texts["arm"]]
    for column in sorted(table.columns, key=lambda each: each.drop):
        if column.drop and widths[column.key] + GAP <= room:
            kept.append(column.key)
            room -= widths[column.key] + GAP
    shown = [column for column in table.columns if column.key in kept]
    starred = any(row.cells[key].bold for row in table.rows for key in kept)
    daggers = any(column.key.startswith("paper") for column in shown)
    notes = [STAR] * starred + list(table.footnotes) * daggers
    return "\n".join([*_lines(shown, texts), *notes]) + "\n"


def _lines(shown: Sequence[Column], texts: dict[str, list[str]]) -> list[str]:
    rows = list(zip(*(texts[column.key] for column in shown), strict=True))
    return aligned(rows, [not column.numeric for column in shown], ruled=True)


def _bare(text: str) -> str:
    """A number without its interval, with its star (or the space for one)."""
    number = re.split(r" ± | \[", text)[0]
    return number if number == text else number + text[-1] * (text[-1] in "* ")


def _column_texts(table: ResultTable, column: Column) -> list[str]:
    """Title and cells; bold ones bear a star, the others of their column a space for it."""
    cells = [row.cells[column.key] for row in table.rows]
    space = " " if any(cell.bold for cell in cells) else ""
    texts = [printable(cell.text) + ("*" if cell.bold else space) for cell in cells]
    return [column.title + space, *texts]


def csv_text(comparison: Comparison) -> str:
    """One line per run, raw numbers; empty where there is none."""
    rows = [_run_row(each, run) for each in comparison.outcomes for run in each.arm.runs]
    file = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row)) or ["arm"]
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{name: _cell(value) for name, value in row.items()} for row in rows])
    return file.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet would run text that begins like a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value


def _run_row(each: Outcome, run: Run) -> dict[str, Any]:
    return {
        "arm": each.arm.label,
        "slug": each.arm.slug,
        "rule": run.rule.name,
        **_run(run),
        "parameters": run.plan("parameters"),
        "start_tables": run.plan("start_tables") or 0,
        "flops_a_token": run.flops_a_token,
        "tokens_a_step": run.plan("tokens_a_step"),
        "failure": run.failure,
        "folder": str(run.folder),
    }


def _run(run: Run) -> dict[str, Any]:
    seconds = run.curves.seconds
    own = {name: getattr(run, name) for name in RUN}
    texts = {f"exact:{name}": loss for name, loss in run.texts.items()}
    return {**own, **texts, "seconds": float(seconds[-1]) if len(seconds) else None}


def json_data(comparison: Comparison) -> dict[str, Any]:
    """Everything, raw numbers, by arm and by seed; None where there is none."""
    data = {
        "name": comparison.name,
        "preset": comparison.preset,
        "baseline": comparison.baseline.slug,
        "seeds": comparison.seeds,
        "metric": comparison.metric,
        "remarks": comparison.remarks,
        "scaling": None if comparison.scaling is None else scaling_data(comparison.scaling),
        "arms": [_arm(comparison, each) for each in comparison.outcomes],
    }
    return dict(for_json(data))


def json_text(comparisons: Sequence[Comparison]) -> str:
    """The same of several, as a file."""
    studies = [each.study for each in comparisons if each.study is not None]
    data = {
        "comparisons": [json_data(each) for each in comparisons],
        "studies": [{"title": each.title, "question": each.question} for each in studies],
        "hypotheses": for_json([v.to_dict() for each in comparisons for v in each.verdicts]),
        "claims": for_json([v.to_dict() for each in comparisons for v in each.claims]),
    }
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _arm(comparison: Comparison, each: Outcome) -> dict[str, Any]:
    arm = each.arm
    figure = paper_figure_of(comparison, each)
    return {
        "label": arm.label,
        "slug": arm.slug,
        "rule": arm.rule.to_dict(),
        "standard_compute": arm.standard,
        "oracle_calls": arm.rule.oracle_calls,
        "differs": {
            name: {"baseline": base, "own": own} for name, (base, own) in arm.differs.items()
        },
        **{name: asdict(getattr(each, name)) for name in SUMMARIES},
        "texts": {name: asdict(found) for name, found in each.texts.items()},
        **{name: getattr(each, name) for name in COSTS},
        "paper": None if figure is None else _paper(figure),
        "runs": [
            {**_run(run), "failure": run.failure, "folder": str(run.folder)} for run in arm.runs
        ],
    }


def _paper(figure: PaperFigure) -> dict[str, Any]:
    """One value per metric, or values by the paper's label where the label is unclear."""
    found: dict[str, Any] = {"unclear_label": figure.unclear}
    for metric in ("best", "final", "train"):
        values = figure.values(metric)
        if figure.unclear:
            found[metric] = dict(zip(figure.labels, values, strict=True))
        else:
            found[metric] = values[0] if values else None
    return found
