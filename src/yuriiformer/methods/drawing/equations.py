"""A rule's equations with the paper's indices t and t+½, as Unicode or LaTeX.

A stream enters a block as X_t. Its last update there is X_{t+1}; earlier ones, and locals, are
X_{t+½}, with a star for each further one (as in the paper's Verlet block).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from yuriiformer.methods.parse import NORMS, ORACLES
from yuriiformer.methods.passes import Query
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Binary, Call, Expr, Name, Negate, Number


def _pairs(text: str) -> dict[str, str]:
    """A table written as one line: every other word is what the one before it becomes."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


GREEK = _pairs("""alpha α beta β gamma γ delta δ eps ε zeta ζ eta η theta θ kappa κ lam λ mu μ nu ν
    xi ξ rho ρ sigma σ tau τ phi φ chi χ psi ψ omega ω""")
FUNCTIONS = _pairs("""attn Attnₜ mlp MLPₜ norm LNᵥ unit LN sqrt √ maximum max minimum min
    sigmoid σ""")
LATEX_FUNCTIONS = _pairs(r"""attn \mathsf{Attn}_t mlp \mathsf{MLP}_t norm \mathrm{LN}_v
    unit \mathrm{LN} maximum \max minimum \min sigmoid \sigma exp \exp log \log tanh \tanh""")
LATEX_GREEK = {"eps": "varepsilon", "lam": "lambda"}
FRACTIONS = {  # numbers that are written as such
    0.25: ("¼", r"\tfrac{1}{4}"),
    0.5: ("½", r"\tfrac{1}{2}"),
    0.75: ("¾", r"\tfrac{3}{4}"),
}
SUBSCRIPT = str.maketrans("0123456789+-", "₀₁₂₃₄₅₆₇₈₉₊₋")

SUM, QUOTIENT, PRODUCT, ATOM = 1, 2, 3, 4  # precedence of an expression


@dataclass(frozen=True)
class Symbol:
    """A name with its index: base letter, number, word, time, stars."""

    base: str
    number: str = ""
    word: str = ""
    time: str = ""  # "", "t", "t+½" or "t+1"
    stars: int = 0

    def unicode(self) -> str:
        time = {"": "", "t": "ₜ", "t+½": "ₜ₊½", "t+1": "ₜ₊₁"}[self.time]
        letter = GREEK.get(self.base, self.base)
        word = f"_{self.word}" if self.word else ""
        return f"{letter}{'*' * self.stars}{self.number.translate(SUBSCRIPT)}{word}{time}"

    def latex(self) -> str:
        letter = self.base
        if letter in GREEK:
            letter = "\\" + LATEX_GREEK.get(letter, letter)
        elif len(letter) > 1:
            letter = rf"\mathrm{{{letter}}}"
        above = [r"\ast" * self.stars] if self.stars else []
        above += [rf"\mathrm{{{self.word}}}".replace("_", r"\_")] if self.word else []
        time = self.time.replace("½", r"\frac{1}{2}")
        below = [part for part in (self.number, time) if part]
        result = letter + (f"^{{{','.join(above)}}}" if above else "")
        return result + (f"_{{{','.join(below)}}}" if below else "")


def named_symbol(name: str, time: str, stars: int = 0) -> Symbol:
    """``beta2`` is β₂, ``G_prev`` is G with the word prev: letters, number, word."""
    match = re.fullmatch(r"([A-Za-z]+)(\d*)_?(\w*)", name)
    base, number, word = match.groups() if match else (name, "", "")
    return Symbol(base, number, word, time, stars)


def coefficient_symbol(name: str) -> Symbol:
    """``mu_half`` is μ at t+½, every other coefficient stands at t."""
    half = name.endswith("_half")
    return named_symbol(name.removesuffix("_half"), "t+½" if half else "t")


@dataclass
class Indices:
    """Which index each name has at the present line; `write` moves on to the next."""

    rule: Rule
    written: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.total = Counter(assign.target for assign in self.rule.assigns)

    def read(self, name: str) -> Symbol:
        if name in self.rule.coefficients:
            return coefficient_symbol(name)
        if "[" in name:  # an oracle's answer
            return Symbol({"attn": "Attn", "mlp": "MLP"}[name.partition("[")[0]])
        if name not in self.total:
            return named_symbol(name, "")  # a stream that never changes has no index
        return self._symbol(name, self.written[name])

    def preview(self, name: str) -> Symbol:
        """What the name will be after its next write."""
        return self._symbol(name, self.written[name] + 1)

    def write(self, name: str) -> Symbol:
        self.written[name] += 1
        return self._symbol(name, self.written[name])

    def _symbol(self, name: str, writes: int) -> Symbol:
        if writes == 0:
            return named_symbol(name, "t")
        if name in self.rule.streams and writes == self.total[name]:
            return named_symbol(name, "t+1")
        return named_symbol(name, "t+½", stars=writes - 1)


class Writer:
    """An expression as Unicode text; `LatexWriter` overrides how the parts look."""

    def __init__(self, indices: Indices) -> None:
        self.indices = indices

    def write(self, node: Expr) -> str:
        return self._write(node)[0]

    def _write(self, node: Expr) -> tuple[str, int]:
        if isinstance(node, Number):
            return self.number(node.value), ATOM
        if isinstance(node, Name):
            return self.symbol(self.indices.read(node.id)), ATOM
        if isinstance(node, Negate):
            return "−" + self._within(node.operand, PRODUCT), SUM
        if isinstance(node, Call):
            return self.call(node.function, [self.write(a) for a in node.arguments]), ATOM
        assert isinstance(node, Binary)
        if node.op in "+-":
            sign = "+" if node.op == "+" else "−"
            right = self._within(node.right, QUOTIENT if node.op == "-" else SUM)
            if right.startswith(("−", "-")):
                right = self.group(right)
            return f"{self.write(node.left)} {sign} {right}", SUM
        if node.op == "/":
            return self.quotient(node.left, node.right)
        left, right = self._within(node.left, PRODUCT), self._within(node.right, PRODUCT)
        return left + self.times(right) + right, PRODUCT

    def _within(self, node: Expr, least: int) -> str:
        """The text of a part, in parentheses if its precedence is too low."""
        text, holds = self._write(node)
        return text if holds >= least else self.group(text)

    def times(self, right: str) -> str:
        """The sign before the right factor: usually just a space."""
        return "·" if right[0] in "(0123456789½¼¾" else " "

    def quotient(self, left: Expr, right: Expr) -> tuple[str, int]:
        return f"{self._within(left, PRODUCT)} / {self._within(right, ATOM)}", QUOTIENT

    def group(self, text: str) -> str:
        return f"({text})"

    def number(self, value: float) -> str:
        return FRACTIONS[value][0] if value in FRACTIONS else f"{value:.12g}"

    def symbol(self, symbol: Symbol) -> str:
        return symbol.unicode()

    def call(self, function: str, arguments: list[str]) -> str:
        inside = ", ".join(arguments)
        if function == "abs":
            return f"|{inside}|"
        if function == "square":
            return f"({inside})²"
        return f"{FUNCTIONS.get(function, function)}({inside})"


class LatexWriter(Writer):
    def times(self, right: str) -> str:
        return r" \cdot " if right[0] in "0123456789" else " "

    def group(self, text: str) -> str:
        return rf"\left({text}\right)"

    def number(self, value: float) -> str:
        if value in FRACTIONS:
            return FRACTIONS[value][1]
        mantissa, _, exponent = f"{value:.12g}".partition("e")
        return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else mantissa

    def symbol(self, symbol: Symbol) -> str:
        return symbol.latex()

    def quotient(self, left: Expr, right: Expr) -> tuple[str, int]:
        return rf"\frac{{{self.write(left)}}}{{{self.write(right)}}}", PRODUCT

    def _write(self, node: Expr) -> tuple[str, int]:
        text, holds = super()._write(node)
        return text.replace("−", "-"), holds

    def call(self, function: str, arguments: list[str]) -> str:
        inside = ", ".join(arguments)
        if function == "sqrt":
            return rf"\sqrt{{{inside}}}"
        if function == "abs":
            return rf"\left|{inside}\right|"
        if function == "square":
            return rf"\left({inside}\right)^2"
        name = LATEX_FUNCTIONS.get(function, rf"\mathrm{{{function}}}")
        return rf"{name}\!\left({inside}\right)"


def _lines(rule: Rule, writer_type: type[Writer]) -> Iterator[tuple[str, str]]:
    indices = Indices(rule)
    writer = writer_type(indices)
    for assign in rule.assigns:
        right = writer.write(assign.value)  # before the write: it reads the old value
        yield writer.symbol(indices.write(assign.target)), right


def unicode_equations(rule: Rule) -> list[str]:
    """One line per equation: ``Xₜ₊₁ = Xₜ + Vₜ₊₁``; the equals signs are aligned."""
    lines = list(_lines(rule, Writer))
    width = max(len(left) for left, _ in lines)
    return [f"{left:<{width}} = {right}" for left, right in lines]


def step_labels(rule: Rule) -> list[str]:
    """What each of the rule's steps makes: ``Attnₜ(Xₜ + μₜ Vₜ)``, ``Vₜ₊½``."""
    indices = Indices(rule)
    writer = Writer(indices)
    return [
        writer.call(step.oracle, [writer.write(step.argument)])
        if isinstance(step, Query)
        else indices.write(step.target).unicode()
        for step in rule.steps
    ]


def latex_lines(rule: Rule) -> Iterator[tuple[str, str]]:
    """The left and the right side of each equation."""
    return _lines(rule, LatexWriter)


def latex_equations(rule: Rule) -> str:
    """An ``aligned`` environment, to stand in display maths (amsmath)."""
    body = " \\\\\n".join(f"  {left} &= {right}" for left, right in latex_lines(rule))
    return "\\begin{aligned}\n" + body + "\n\\end{aligned}"


assert {*ORACLES, *NORMS} == {"attn", "mlp", "norm", "unit"}  # each is written in its own way
