"""Writes the paper's tables, figures and claims from runs into a folder, with an index of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from yuriiformer.comparison.outcomes import Comparison, only_arms
from yuriiformer.display.figures import is_empty, save_figure
from yuriiformer.files import write_text
from yuriiformer.report.headline import claims_sentence, claims_table
from yuriiformer.report.paper_figures import paper_pictures
from yuriiformer.report.paper_slots import Slots, paper_slots
from yuriiformer.report.paper_tables import paper_tables
from yuriiformer.report.paper_text import CITED, artefact_latex, artefact_markdown
from yuriiformer.report.tables import markdown
from yuriiformer.report.tables_latex import latex_document

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
