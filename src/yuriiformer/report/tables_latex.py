"""The paper's tables in LaTeX (booktabs, xcolor), ours in black and the paper's figures in grey."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from yuriiformer.comparison.outcomes import Arm, Comparison, Outcome
from yuriiformer.comparison.paper import MARK, PaperFigure
from yuriiformer.report.results import lowest, paper_figure_of

TITLES = {"best": "Best", "final": "Final", "train": "Train"}
METRICS = ("best", "final", "train")  # in the paper's order
SIZES_METRICS = ("best", "final")
PANELS = {True: "Standard compute (1 Attn + 1 MLP)", False: "Non-standard compute"}
UNCLEAR = (
    f"{MARK}~The paper labels its IMEX rows MAM and AMA without saying which order of the oracles "
    "each is: a rule is one of the two figures, MAM/AMA."
)
WIDE = r"\footnotesize\let\minor\tiny\setlength{\tabcolsep}{1pt}"
NARROW = r"\small\let\minor\scriptsize\setlength{\tabcolsep}{3pt}"
PREAMBLE = r"""\documentclass[10pt]{article}
\usepackage[utf8]{inputenc}
\usepackage[a4paper,margin=1.7cm]{geometry}
\usepackage{booktabs}
\usepackage{xcolor}
\begin{document}
"""

_ASCII = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "^": r"\textasciicircum{}", "_": r"\_", "~": r"\textasciitilde{}", "%": r"\%",
    "<": r"$<$", ">": r"$>$", "|": r"$|$", '"': "''",
}  # fmt: skip
_UNICODE = {
    "–": "--", "—": "---", "−": "$-$", "→": r"$\rightarrow$", "←": r"$\leftarrow$",
    "½": r"$\frac{1}{2}$", "×": r"$\times$", "·": r"$\cdot$", "±": r"$\pm$", "†": r"$\dagger$",
    "…": r"\ldots{}", "≤": r"$\leq$", "≥": r"$\geq$", "∞": r"$\infty$", "√": r"$\surd$",
    "‘": "`", "’": "'", "“": "``", "”": "''", "ß": r"\ss{}", "ø": r"\o{}", "Ø": r"\O{}",
    "æ": r"\ae{}", "Æ": r"\AE{}", "ł": r"\l{}", "Ł": r"\L{}", "∇": r"$\nabla$", "⊕": r"$\oplus$",
}  # fmt: skip
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u",
    "\u0307": ".", "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0327": "c",
}  # fmt: skip
_SMALL = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
          "lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi",
          "omega"}  # fmt: skip
_CAPITALS = {"gamma", "delta", "theta", "lambda", "xi", "pi", "sigma", "upsilon", "phi", "psi",
             "omega"}  # fmt: skip
_LIKE_LATIN = {"alpha": "A", "beta": "B", "epsilon": "E", "zeta": "Z", "eta": "H", "iota": "I",
               "kappa": "K", "mu": "M", "nu": "N", "omicron": "O", "rho": "P", "tau": "T",
               "chi": "X"}  # fmt: skip


def escape(text: str) -> str:
    """Any text as LaTeX that pdflatex can set; letters of a script it has not become ``?``."""
    result: list[str] = []
    for character in re.sub(r"\s+", " ", text):
        if character in _UNICODE:
            result.append(_UNICODE[character])
            continue
        for part in unicodedata.normalize("NFKD", character):
            if unicodedata.combining(part):
                _accent(result, part)
            else:
                result.append(_letter(part))
    return "".join(result)


def _letter(character: str) -> str:
    if character in _ASCII:
        return _ASCII[character]
    if character.isascii():
        return character if character.isprintable() else " "
    return _UNICODE.get(character) or _greek(character) or "?"


def _greek(character: str) -> str:
    """A Greek letter; empty if it is none, or one that LaTeX has not."""
    words = unicodedata.name(character, "").lower().replace("lamda", "lambda").split()
    if words[:1] != ["greek"] or "letter" not in words:
        return ""
    name = words[-1]
    if "capital" in words:
        return f"$\\{name.capitalize()}$" if name in _CAPITALS else _LIKE_LATIN.get(name, "")
    if "final" in words:
        return r"$\varsigma$"
    return "o" if name == "omicron" else f"$\\{name}$" if name in _SMALL else ""


def _accent(result: list[str], mark: str) -> None:
    """Over the letter before it, where LaTeX has it; others are dropped."""
    if mark in _ACCENTS and result and len(result[-1]) == 1 and result[-1].isalpha():
        result[-1] = f"\\{_ACCENTS[mark]}{{{result[-1]}}}"


def latex(comparison: Comparison) -> str:
    """The paper's table of a setting: standard compute left, the rest right; if only one of them
    occurs, one panel."""
    sides = {kind: [each for each in comparison.outcomes if each.arm.standard == kind]
             for kind in PANELS}  # fmt: skip
    panels = {PANELS[kind]: outcomes for kind, outcomes in sides.items() if outcomes}
    bold = {metric: lowest(comparison.outcomes, metric) for metric in METRICS}
    columns = [
        _panel_lines(outcomes, lambda each: _cells(each, METRICS, bold),
                     lambda each: paper_figure_of(comparison.preset, each), METRICS)
        for outcomes in panels.values()
    ]  # fmt: skip
    head = [" & ".join(["Method", *TITLES.values()] * len(panels)) + r" \\"]
    if len(panels) > 1:
        names = [rf"\multicolumn{{4}}{{c}}{{\textbf{{{name}}}}}" for name in panels]
        head = [" & ".join(names) + r" \\", r"\cmidrule(lr){1-4} \cmidrule(lr){5-8}", *head]
    empty = " & & & "
    longest = max(map(len, columns), default=0)
    padded = [lines + [empty] * (longest - len(lines)) for lines in columns]
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
    lines: dict[str, list[str]] = {name: [_label(label)] for name, label in rows.items()}
    greys: dict[str, list[str]] = {name: [_grey("paper")] for name in rows}
    for comparison in comparisons:
        bold = {metric: lowest(comparison.outcomes, metric) for metric in SIZES_METRICS}
        found = {key(each.arm): each for each in comparison.outcomes}
        for name in rows:
            each = found.get(name)
            figure = None if each is None else paper_figure_of(comparison.preset, each)
            lines[name] += ["--"] * 2 if each is None else _cells(each, SIZES_METRICS, bold)
            if figure is not None:
                greys[name][0] = _paper_title(figure)
            greys[name] += [_paper_cell(figure, metric) for metric in SIZES_METRICS]
    body = []
    for name in rows:
        body.append(" & ".join(lines[name]) + r" \\")
        if any(greys[name][1:]):
            body.append(" & ".join(greys[name]) + r" \\")
    names = [rf"\multicolumn{{2}}{{c}}{{{escape(each.name)}}}" for each in comparisons]
    rules = [rf"\cmidrule(lr){{{2 + 2 * i}-{3 + 2 * i}}}" for i in range(len(comparisons))]
    titles = [TITLES[metric] for _ in comparisons for metric in SIZES_METRICS]
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
    """In braces: after a line's end a bracket or a star would be read as an option."""
    return "{" + r"LN$_v$".join(escape(part) for part in text.split("LN_v")) + "}"


def _panel_lines(
    outcomes: Sequence[Outcome],
    cells: Callable[[Outcome], list[str]],
    figure_of: Callable[[Outcome], PaperFigure | None],
    metrics: Sequence[str],
) -> list[str]:
    """A line for each arm, and under it the paper's where there is one."""
    lines = []
    for each in outcomes:
        lines.append(" & ".join([_label(each.arm.label), *cells(each)]))
        figure = figure_of(each)
        if figure is not None:
            paper = [_paper_cell(figure, metric) for metric in metrics]
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
        if value.low is not None:
            half = (value.high - value.low) / 2
            text += rf"{{\minor$\pm${_short(half)}}}"
        found.append(text)
    return found


def _short(half: float) -> str:
    """Without its leading zero."""
    return "$<$.001" if 0 < half < 0.0005 else f"{half:.3f}".removeprefix("0")


def _paper_title(figure: PaperFigure | None) -> str:
    if figure is None or not figure.unclear:
        return _grey("paper")
    return _grey(f"paper, {'/'.join(figure.labels)}{_UNICODE[MARK]}")


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
    """The whole of it, with a caption that says what stands in it."""
    outcomes = [(c, each) for c in comparisons for each in c.outcomes]
    figures = [paper_figure_of(comparison.preset, each) for comparison, each in outcomes]
    name = " and ".join(escape(each.name) for each in comparisons if each.name)
    most = max((each.final.n for _, each in outcomes), default=0)
    parts = [f"{name}: losses in nats per token; lower is better." if name else
             "Losses in nats per token; lower is better.", said]  # fmt: skip
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
        parts.append(UNCLEAR.replace(MARK, _UNICODE[MARK]))
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
