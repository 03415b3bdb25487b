"""Writes the paper's tables, figures and claims from runs into a folder, with an index of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from yuriiformer.citation import SHORT
from yuriiformer.comparison.outcomes import Comparison, only_arms
from yuriiformer.display.figures import is_empty, save_figure
from yuriiformer.files import write_text
from yuriiformer.report.cells import NONE, signed
from yuriiformer.report.headline import claims_sentence, claims_table
from yuriiformer.report.paper_figures import paper_pictures
from yuriiformer.report.paper_layouts import Head, Item, PaperTable
from yuriiformer.report.paper_slots import Slots, paper_slots
from yuriiformer.report.paper_tables import Artefact, paper_tables
from yuriiformer.report.tables import markdown
from yuriiformer.report.tables_latex import escape, latex_document

INDEX, CLAIMS, TABLES = "index.md", "claims.md", "tables.tex"


@dataclass(frozen=True)
class Made:
    """A line of the index: what of the paper, its files, and what must be said of it."""

    title: str
    files: Sequence[str]
    said: Sequence[str]
    caption: str = ""


def write_paper(
    comparisons: Sequence[Comparison],
    folder: Path,
    formats: Sequence[str] = ("png", "svg", "pdf"),
    arms: Sequence[str] = (),
    sigma: float = 0.0,
) -> list[str]:
    """Everything of the paper that these runs can give; lines on what was made. ``arms`` are what
    figures draw instead of the paper's methods, ``sigma`` smooths Figure 5 (in steps)."""
    folder.mkdir(parents=True, exist_ok=True)
    slots = paper_slots(comparisons)
    drawn = paper_slots(only_arms(comparisons, arms))
    made = [
        *_tables(slots, folder),
        *_figures(drawn, folder, formats, chosen=bool(arms), sigma=sigma),
        *_claims(slots, folder),
    ]
    write_text(folder / INDEX, _index(slots, made))
    count = sum(bool(each.files) for each in made)
    lines = [f"of the paper: {count} of {len(made)} artefacts, listed in {folder / INDEX}"]
    return lines + [f"note: {text}" for text in slots.left]


def _tables(slots: Slots, folder: Path) -> list[Made]:
    made, all_of_them = [], []
    for each in paper_tables(slots):
        files = []
        if each.ours is not None:
            text = artefact_latex(each)
            all_of_them.append(text)
            for ending, content in ((".md", artefact_markdown(each)), (".tex", text)):
                write_text(folder / f"{each.name}{ending}", content)
                files.append(f"{each.name}{ending}")
        caption = "" if each.ours is None else each.ours.caption
        made.append(Made(each.title, files, each.remarks, caption))
    write_text(folder / TABLES, latex_document(all_of_them))
    return made


def _figures(
    slots: Slots, folder: Path, formats: Sequence[str], *, chosen: bool, sigma: float
) -> list[Made]:
    made = []
    for each in paper_pictures(slots, chosen=chosen, sigma=sigma):
        files = []
        if each.figure is not None and not is_empty(each.figure):
            for kind in formats:
                path = folder / f"{each.name}.{kind}"
                save_figure(each.figure, path, dpi=200, bbox_inches="tight")
                files.append(f"{each.name}.{kind}")
        made.append(Made(each.title, files, each.remarks, each.caption))
    return made


def _claims(slots: Slots, folder: Path) -> list[Made]:
    """All settings in one file."""
    parts, said = [], []
    for setting, comparison in slots.filled.items():
        table = claims_table(comparison)
        if table is not None:
            parts.append(f"## {setting}\n\n{claims_sentence(comparison)}\n\n{markdown(table)}")
            said.append(f"{setting}: {claims_sentence(comparison)}")
    if not parts:
        return [Made("Claims", [], ["No runs that the paper's claims can be judged on."])]
    write_text(folder / CLAIMS, "# The paper's claims\n\n" + "\n".join(parts) + f"\n{CITED}\n")
    return [Made("Claims", [CLAIMS], said)]


def _index(slots: Slots, made: Sequence[Made]) -> str:
    lines = ["# The paper's tables and figures, from these runs", ""]
    lines += ["| Artefact | Files | Remarks |", "|---|---|---|"]
    for each in made:
        files = ", ".join(f"[{name}]({name})" for name in each.files) or "not made"
        lines.append(f"| {each.title} | {files} | {' '.join(each.said)} |")
    for each in made:
        if each.files and each.caption:
            lines += ["", f"**{each.title}.** {each.caption}"]
            shown = [name for name in each.files if name.endswith((".png", ".svg"))]
            lines += ["", f"![{each.title}]({shown[0]})"] if shown else []
    lines += [text for each in slots.left for text in ("", each)]
    return "\n".join([*lines, "", CITED]) + "\n"


SEEDS = re.compile(r"±0(\.\d{3})")  # a loss's error over seeds: small, or tables are too wide
CITED = f"Rules and layout: {SHORT}."
PAPERS = "The paper's figures"
DIFFERENCE = "These runs minus the paper's figures"


def artefact_markdown(made: Artefact) -> str:
    """The table of the runs, then the paper's and the difference, where they belong."""
    assert made.ours is not None
    lines = [f"# {made.title}", "", made.ours.caption, "", *_table(made.ours)]
    for note in [*made.ours.notes, *made.remarks]:
        lines += ["", note]
    if made.papers is not None:
        lines += ["", f"## {PAPERS}", "", *_table(made.papers)]
        lines += ["", f"## {DIFFERENCE}", "", *_table(minus(made.ours, made.papers))]
    return "\n".join([*lines, "", CITED]) + "\n"


def minus(ours: PaperTable, papers: PaperTable) -> PaperTable:
    """Number minus number, text where it is the same in both."""
    rows = [
        [_minus(one, two) for one, two in zip(mine, theirs, strict=True)]
        for mine, theirs in zip(ours.rows, papers.rows, strict=True)
    ]
    return PaperTable("", ours.form, ours.heads, rows)


def _minus(one: Item, two: Item) -> Item:
    if one.text == two.text and not re.match(r"\d", one.text):
        return one
    try:
        numbers = [float(each.text.partition("±")[0]) for each in (one, two)]
    except ValueError:
        return Item(NONE if one.text != two.text else "same")
    gap = numbers[0] - numbers[1]
    return Item(signed(gap) if numbers[0] < 20 else f"{gap:+.1f}".replace("-", "−"))


def _table(table: PaperTable) -> list[str]:
    """Titles over several columns are written before those below them."""
    columns = [" ".join(filter(None, titles)) for titles in _columns(table.heads)]
    kinds = [kind for kind in table.form if kind in "lc"]
    lines = [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join("---" if kind == "l" else "---:" for kind in kinds) + "|",
    ]
    for row in table.rows:
        texts = [f"**{item.text}**" if item.bold else item.text for item in row]
        lines.append("| " + " | ".join(text.replace("_", r"\_") for text in texts) + " |")
    return lines


def _columns(heads: Sequence[Sequence[Head]]) -> list[tuple[str, ...]]:
    """For every column the titles above it, from the top; of a panel of methods only the lowest,
    or its title would stand before each of its columns."""
    spread = [[head.text for head in line for _ in range(head.span)] for line in heads]
    methods = spread[-1].count("Method") > 1
    return list(zip(*(spread[-1:] if methods else spread), strict=True))


def artefact_latex(made: Artefact) -> str:
    """The table of the runs, then the paper's where it belongs."""
    assert made.ours is not None
    tables = [_latex(made.ours, made.ours.caption, [*made.ours.notes, *made.remarks])]
    if made.papers is not None:
        caption = f"{PAPERS}. {made.papers.caption}"
        tables.append(_latex(made.papers, caption, made.papers.notes, "-paper"))
    return "\n".join(tables)


def _latex(table: PaperTable, caption: str, notes: Sequence[str], suffix: str = "") -> str:
    star = "*" if table.wide else ""
    width = r"\textwidth" if table.wide else r"\columnwidth"
    words = escape(" ".join([caption, *notes, CITED]))
    crowded = table.wide and any(SEEDS.search(item.text) for row in table.rows for item in row)
    size, gap = ("scriptsize", 1) if crowded else ("small", 2)
    body = [" & ".join(_item(item) for item in row) + r" \\" for row in table.rows]
    lines = [
        rf"\begin{{table{star}}}[ht]",
        rf"  \caption{{{words}}}",
        rf"  \label{{{table.label}{suffix}}}",
        rf"  \begin{{center}}\begin{{{size}}}\begin{{sc}}",
        rf"  \setlength{{\tabcolsep}}{{{gap}pt}}",
        rf"  \begin{{tabular*}}{{{width}}}{{@{{\extracolsep{{\fill}}}}{table.form}}}",
        *(f"    {line}" for line in [r"\toprule", *_heads(table), r"\midrule", *body]),
        r"    \bottomrule",
        r"  \end{tabular*}",
        rf"  \end{{sc}}\end{{{size}}}\end{{center}}",
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines) + "\n"


def _heads(table: PaperTable) -> list[str]:
    """Lines of titles, with a rule under each title of several columns."""
    lines = []
    for line in table.heads:
        texts, rules, place = [], [], 1
        for head in line:
            if head.span == 1:
                texts.append(_label(head.text))
            else:
                texts.append(rf"\multicolumn{{{head.span}}}{{c}}{{{_label(head.text)}}}")
                rules.append(rf"\cmidrule(lr){{{place}-{place + head.span - 1}}}")
            place += head.span
        lines.append(" & ".join(texts) + r" \\")
        lines += [" ".join(rules)] if rules else []
    return lines


def _item(item: Item) -> str:
    text = _label(item.text)
    return rf"{{\bf {text}}}" if item.bold else text


def _label(text: str) -> str:
    """Text as the paper sets it."""
    made = "--" if text == NONE else SEEDS.sub(r"{\\tiny±\1}", escape(text))
    for plain, set_so in (("±", r"$\pm$"), (r"LN\_v", r"LN$_v$"), ("k=", "$k$="), ("–", "--")):
        made = made.replace(plain, set_so)
    return made
