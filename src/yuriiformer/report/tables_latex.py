"""The paper's tables in LaTeX (booktabs, xcolor), ours in black and the paper's figures in grey."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from yuriiformer.citation import SHORT
from yuriiformer.comparison.outcomes import Arm, Comparison, Outcome
from yuriiformer.comparison.paper import MARK, PaperFigure
from yuriiformer.report.cells import lowest, paper_figure_of

METRICS = ("best", "final", "train")  # in the paper's order
SIZES_METRICS = ("best", "final")
PANELS = {True: "Standard compute (1 Attn + 1 MLP)", False: "Non-standard compute"}
UNCLEAR = (
    f"{MARK}~The paper labels its IMEX rows MAM and AMA without saying which order of the oracles "
    "each is: a rule is one of the two figures, MAM/AMA."
)
WIDE = r"\footnotesize\let\minor\tiny\setlength{\tabcolsep}{1pt}"
NARROW = r"\small\let\minor\scriptsize\setlength{\tabcolsep}{3pt}"
CITED = f"Rules: {SHORT}."
PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[a4paper,margin=1.7cm]{geometry}
\usepackage{booktabs}
\usepackage{xcolor}
\begin{document}
"""

# What pdflatex sets as it stands: UTF-8 is its default, but its usual fonts have not every letter.
_PLAIN = {*map(chr, range(0xA0, 0x180)), *"–—‘’“”†…"} - {*"«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ"}
_ESCAPES = {
    **{character: f"\\{character}" for character in "{}$&#_%"},
    **{character: f"${character}$" for character in "<>|"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    '"': "''",
    "−": "$-$",
    "√": r"$\surd$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "∞": r"$\infty$",
    "∇": r"$\nabla$",
    "⊕": r"$\oplus$",
    "ς": r"$\varsigma$",
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)),  # LaTeX has them as Latin ones
}


def escape(text: str) -> str:
    """Any text as LaTeX that pdflatex can set; letters of a script it has not become ``?``."""
    return "".join(map(_escaped, re.sub(r"\s+", " ", text)))


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character in _PLAIN or character.isascii():
        return character if character.isprintable() else " "
    if "Α" <= character <= "Ω" or "α" <= character <= "ω":
        *_, case, _, name = unicodedata.name(character).replace("LAMDA", "LAMBDA").lower().split()
        return f"$\\{name.capitalize() if case == 'capital' else name}$"
    letters = unicodedata.normalize("NFKD", character)
    plain = [part for part in letters if not unicodedata.combining(part)]
    return "?" if plain == [character] else "".join(map(_escaped, plain))


def latex(comparison: Comparison) -> str:
    """The paper's table of a setting: standard compute left, the rest right; if only one of them
    occurs, one panel."""
    panels: dict[str, list[Outcome]] = {}
    for kind, title in PANELS.items():
        outcomes = [each for each in comparison.outcomes if each.arm.standard == kind]
        panels |= {title: outcomes} if outcomes else {}
    bold = {metric: lowest(comparison.outcomes, metric) for metric in METRICS}
    columns = [_panel_lines(comparison, outcomes, bold) for outcomes in panels.values()]
    head = [" & ".join(["Method", *map(str.capitalize, METRICS)] * len(panels)) + r" \\"]
    if len(panels) > 1:
        names = [rf"\multicolumn{{4}}{{c}}{{\textbf{{{name}}}}}" for name in panels]
        head = [" & ".join(names) + r" \\", r"\cmidrule(lr){1-4} \cmidrule(lr){5-8}", *head]
    longest = max(map(len, columns), default=0)
    padded = [lines + [" & & & "] * (longest - len(lines)) for lines in columns]
    body = [" & ".join(parts) + r" \\" for parts in zip(*padded, strict=True)]
    said = (
        "Best = lowest validation loss; Final = validation loss after the last step; Train = "
        "training loss of the last step."
    )
    form = "|".join(["lccc"] * len(panels)) or "lccc"
    return _table([comparison], form, head, body, said, wide=len(panels) > 1)


def latex_sizes(comparisons: Sequence[Comparison]) -> str:
    """The paper's table of sizes: Best and Final of each comparison side by side, per rule."""
    key = _row_key(comparisons)
    rows: dict[str, str] = {}
    for comparison in comparisons:
        for arm in comparison.arms:
            rows.setdefault(key(arm), arm.label)
    body = []
    for name, label in rows.items():
        line, title, papers = [_label(label)], "", []
        for comparison in comparisons:
            each = next((each for each in comparison.outcomes if key(each.arm) == name), None)
            figure = None if each is None else paper_figure_of(comparison, each)
            bold = {metric: lowest(comparison.outcomes, metric) for metric in SIZES_METRICS}
            line += ["--"] * 2 if each is None else _cells(each, SIZES_METRICS, bold)
            title = title if figure is None else _paper_title(figure)
            papers += [_paper_cell(figure, metric) for metric in SIZES_METRICS]
        body.append(" & ".join(line) + r" \\")
        if any(papers):
            body.append(" & ".join([title, *papers]) + r" \\")
    names = [rf"\multicolumn{{2}}{{c}}{{{escape(each.name)}}}" for each in comparisons]
    rules = [rf"\cmidrule(lr){{{2 + 2 * i}-{3 + 2 * i}}}" for i in range(len(comparisons))]
    titles = [metric.capitalize() for _ in comparisons for metric in SIZES_METRICS]
    head = [
        " & ".join(["", *names]) + r" \\",
        " ".join(rules),
        " & ".join(["Method", *titles]) + r" \\",
    ]
    said = "Best = lowest validation loss; Final = validation loss after the last step."
    wide = len(comparisons) > 2
    return _table(comparisons, "l" + "cc" * len(comparisons), head, body, said, wide=wide)


def latex_document(tables: Sequence[str]) -> str:
    """A document of its own with the tables in it."""
    return PREAMBLE + "\n".join(tables) + "\\end{document}\n"


def _row_key(comparisons: Sequence[Comparison]) -> Callable[[Arm], str]:
    """Arms of several comparisons stand in one row by their rule; by their label, if some
    comparison has two arms of the rule."""
    counts = [Counter(arm.rule.name for arm in each.arms) for each in comparisons]
    several = {name for count in counts for name, number in count.items() if number > 1}
    return lambda arm: f"label {arm.label}" if arm.rule.name in several else arm.rule.name


def _label(text: str) -> str:
    """In braces: after a line end LaTeX would read a bracket or a star as an option."""
    return "{" + r"LN$_v$".join(escape(part) for part in text.split("LN_v")) + "}"


def _panel_lines(
    comparison: Comparison, outcomes: Sequence[Outcome], bold: dict[str, set[str]]
) -> list[str]:
    """A line for each arm, and under it the paper's where there is one."""
    lines = []
    for each in outcomes:
        lines.append(" & ".join([_label(each.arm.label), *_cells(each, METRICS, bold)]))
        figure = paper_figure_of(comparison, each)
        if figure is not None:
            paper = [_paper_cell(figure, metric) for metric in METRICS]
            lines.append(" & ".join([_paper_title(figure), *paper]))
    return lines


def _cells(each: Outcome, metrics: Sequence[str], bold: dict[str, set[str]]) -> list[str]:
    found = []
    for metric in metrics:
        value = getattr(each, metric)
        if value.mean is None:
            found.append("--")
            continue
        text = f"{value.mean:.3f}"
        text = rf"\textbf{{{text}}}" if each.arm.slug in bold[metric] else text
        if value.half is not None:
            tiny = 0 < value.half < 0.0005
            short = "$<$.001" if tiny else f"{value.half:.3f}".removeprefix("0")
            text += rf"{{\minor$\pm${short}}}"
        found.append(text)
    return found


def _paper_title(figure: PaperFigure) -> str:
    if not figure.unclear:
        return _grey("paper")
    return _grey(f"paper, {'/'.join(figure.labels)}{MARK}")


def _paper_cell(figure: PaperFigure | None, metric: str) -> str:
    values = () if figure is None else figure.values(metric)
    return _grey("/".join(f"{value:.3f}" for value in values)) if values else ""


def _grey(text: str) -> str:
    return rf"{{\minor\textcolor{{gray}}{{{text}}}}}"


def _table(
    comparisons: Sequence[Comparison],
    form: str,
    head: Sequence[str],
    body: Sequence[str],
    said: str,
    *,
    wide: bool,
) -> str:
    """The table environment with its caption."""
    outcomes = [(c, each) for c in comparisons for each in c.outcomes]
    figures = [paper_figure_of(comparison, each) for comparison, each in outcomes]
    name = " and ".join(escape(each.name) for each in comparisons if each.name)
    most = max((each.final.n for _, each in outcomes), default=0)
    losses = "losses in nats per token; lower is better."
    parts = [f"{name}: {losses}" if name else losses.capitalize(), said]
    if most > 1:
        parts.append(f"Means of up to {most} seeds $\\pm$ half their 95\\,\\% intervals.")
    parts.append("Bold: the lowest of each panel, ties at the printed precision too.")
    for _, each in outcomes:
        if each.arm.differs:
            fields = ", ".join(f"{field}={value}" for field, (_, value) in each.arm.differs.items())
            parts.append(f"{escape(each.arm.label)} differs in {escape(fields)}.")
    if any(figures):
        parts.append(r"\textcolor{gray}{Grey}: the paper's figures.")
    if any(figure.unclear for figure in figures if figure is not None):
        parts.append(UNCLEAR)
    parts.append(CITED)
    star = "*" if wide else ""
    begin = r"\begin{tabular*}{\textwidth}{@{\extracolsep{\fill}}" if wide else r"\begin{tabular}{"
    lines = [
        rf"\begin{{table{star}}}[ht]",
        r"  \caption{" + " ".join(parts) + r"}\smallskip",
        r"  \centering" + (WIDE if wide else NARROW),
        f"  {begin}{form}}}",
        *(f"    {line}" for line in [r"\toprule", *head, r"\midrule", *body, r"\bottomrule"]),
        rf"  \end{{tabular{star}}}",
        rf"\end{{table{star}}}",
    ]
    return "\n".join(lines) + "\n"
