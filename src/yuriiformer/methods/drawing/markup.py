"""The LaTeX of a rule as MathML and as text of an SVG picture: no library, no fonts, no script.

Not a reader of LaTeX: it knows what `LatexWriter` and the layout of diagrams write.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from yuriiformer.methods.drawing.equations import FRACTIONS, GREEK, LATEX_GREEK, latex_lines
from yuriiformer.methods.rule import Rule

TOKENS = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|[A-Za-z]+|\S")
LETTERS = {LATEX_GREEK.get(name, name): letter for name, letter in GREEK.items()}
OPERATORS = {"cdot": "·", "ast": "∗", "-": "−"}
WORDS = ("max", "min", "exp", "log", "tanh")
SPACED = ("+", "−", "=", "·")
SMALL = {latex: text for text, latex in FRACTIONS.values()}


@dataclass(frozen=True)
class Node:
    """``kind`` says what the parts are: one text, or inner rows."""

    kind: Literal["letter", "word", "number", "operator", "row", "fenced", "fraction", "root"]
    text: str = ""
    parts: tuple[Node, ...] = ()
    below: Node | None = None
    above: Node | None = None


class _Reader:
    def __init__(self, latex: str) -> None:
        for written, text in SMALL.items():  # ½ is one sign
            latex = latex.replace(written, text).replace(written.replace("tfrac", "frac"), text)
        self.tokens = TOKENS.findall(latex)
        self.place = 0

    def next(self) -> str:
        self.place += 1
        return str(self.tokens[self.place - 1])

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def row(self, end: str = "") -> Node:
        parts = []
        while self.peek() != end:
            if self.peek() == r"\!":
                self.next()
            else:
                parts.append(self.scripted())
        return parts[0] if len(parts) == 1 else Node("row", parts=tuple(parts))

    def group(self) -> Node:
        if self.peek() != "{":
            return self.atom()
        self.next()
        found = self.row("}")
        self.next()
        return found

    def scripted(self) -> Node:
        base, scripts = self.atom(), dict[str, Node]()
        while self.peek() in ("_", "^") and self.peek():
            sign = self.next()
            scripts[sign] = self.group()
        if not scripts:
            return base
        return Node("row", parts=(base,), below=scripts.get("_"), above=scripts.get("^"))

    def atom(self) -> Node:
        token = self.next()
        if token == "{":
            self.place -= 1
            return self.group()
        if not token.startswith("\\"):
            return _plain(token)
        name = token[1:]
        if name in ("mathrm", "mathsf"):
            return Node("word", self.raw())
        if name == "left":
            opened = self.next()
            inside = self.row(r"\right")
            self.next()
            return Node("fenced", opened + self.next(), (inside,))
        if name in ("frac", "tfrac"):
            return Node("fraction", "", (self.group(), self.group()))
        if name == "sqrt":
            return Node("root", "", (self.group(),))
        if name in LETTERS:
            return Node("letter", LETTERS[name])
        return Node("operator", OPERATORS[name]) if name in OPERATORS else Node("word", name)

    def raw(self) -> str:
        """A word in braces."""
        self.next()
        words = []
        while (token := self.next()) != "}":
            words.append(token.removeprefix("\\"))
        return "".join(words)


def _plain(token: str) -> Node:
    if token[0].isdigit() or token in SMALL.values():
        return Node("number", token)
    if token.isalpha():
        return Node("letter", token)
    return Node("operator", OPERATORS.get(token, token))


def read(latex: str) -> Node:
    return _Reader(latex).row()


def mathml(rule: Rule) -> str:
    """The rule's equations as display maths, their equals signs in one column."""
    rows = []
    for left, right in latex_lines(rule):
        cells = (f'<mtd style="text-align:right">{_ml(read(left))}</mtd>',
                 f'<mtd style="text-align:left"><mo>=</mo>{_ml(read(right))}</mtd>')  # fmt: skip
        rows.append(f"<mtr>{''.join(cells)}</mtr>")
    return f'<math display="block"><mtable>{"".join(rows)}</mtable></math>'


def _ml(node: Node) -> str:
    if node.below is not None or node.above is not None:
        scripts = [each for each in (node.below, node.above) if each is not None]
        tag = "msubsup" if len(scripts) == 2 else "msub" if node.below is not None else "msup"
        return f"<{tag}>{_ml(node.parts[0])}{''.join(map(_ml, scripts))}</{tag}>"
    inside = "".join(map(_ml, node.parts))
    if node.kind == "fenced":
        still = "" if "<mfrac" in inside else ' stretchy="false"'
        opened, closed = (f"<mo{still}>{html.escape(each)}</mo>" for each in node.text)
        return f"<mrow>{opened}{inside}{closed}</mrow>"
    tags = {"letter": "mi", "word": "mtext", "number": "mn", "operator": "mo",
            "fraction": "mfrac", "root": "msqrt", "row": "mrow"}  # fmt: skip
    tag = tags[node.kind]
    return f"<{tag}>{html.escape(node.text)}{inside}</{tag}>"


@dataclass(frozen=True)
class Letters:
    """Letters of one height: level 0, -1 below, 1 above."""

    text: str
    level: int
    italic: bool


def svg_text(latex: str) -> str:
    """The content of an SVG text element."""
    spans, level = [], 0
    for run in _runs(read(latex), 0):
        shift = {0: 0.0, -1: 0.22, 1: -0.34}[run.level] - {0: 0.0, -1: 0.22, 1: -0.34}[level]
        size = ' font-size="0.72em"' if run.level else ""
        # em of a small span is its own: the shift is given in em of what it stands in.
        scale = 1 / 0.72 if run.level else 1.0
        dy = f' dy="{shift * scale:.3f}em"' if shift else ""
        style = ' font-style="italic"' if run.italic else ""
        spans.append(f"<tspan{dy}{size}{style}>{html.escape(run.text)}</tspan>")
        level = run.level
    return "".join(spans)


def _runs(node: Node, level: int) -> Iterator[Letters]:
    if node.kind == "fraction":
        top, bottom = node.parts
        yield from _runs(top, level)
        yield Letters("/", level, False)
        many = bottom.kind == "row" and bottom.below is None and bottom.above is None
        yield from _bracketed(bottom, level, "()" if many else "")
    elif node.kind == "root":
        yield Letters("√", level, False)
        yield from _bracketed(node.parts[0], level, "()")
    elif node.kind == "fenced":
        yield from _bracketed(node.parts[0], level, node.text)
    elif node.kind == "row":
        for part in node.parts:
            yield from _runs(part, level)
        if node.above is not None:
            yield from _runs(node.above, 1)
        if node.below is not None:
            yield from _runs(node.below, -1)
    else:
        spaced = node.kind == "operator" and node.text in SPACED and level == 0
        text = f"\u2009{node.text}\u2009" if spaced else node.text
        yield Letters(text, level, node.kind == "letter")


def _bracketed(node: Node, level: int, brackets: str) -> Iterator[Letters]:
    if brackets:
        yield Letters(brackets[0], level, False)
    yield from _runs(node, level)
    if brackets:
        yield Letters(brackets[1], level, False)
