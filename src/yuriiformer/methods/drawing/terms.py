"""An expression as a diagram sees it: functions around a sum of scaled terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from yuriiformer.methods.drawing.equations import Writer
from yuriiformer.methods.tree import Binary, Call, Expr, Name, Negate, Number, names


@dataclass(frozen=True)
class Term:
    """A summand: ``gain`` (LaTeX, may be empty or only a minus) times ``atom``."""

    gain: str
    atom: Expr


@dataclass(frozen=True)
class SumSplitter:
    """Splits sums into terms. ``is_tensor``: whether a name is a tensor, or a scalar factor."""

    writer: Writer
    is_tensor: Callable[[Name], bool]

    def is_scalar(self, node: Expr) -> bool:
        return not any(self.is_tensor(name) for name in names(node))

    def terms(self, node: Expr, gain: str = "", sign: int = 1) -> list[Term]:
        """A sum as its summands; scalar factors, also of whole sums, become gains."""
        if isinstance(node, Negate):
            return self.terms(node.operand, gain, -sign)
        if isinstance(node, Binary) and node.op in "+-":
            flip = sign if node.op == "+" else -sign
            return self.terms(node.left, gain, sign) + self.terms(node.right, gain, flip)
        if isinstance(node, Binary) and not self.is_scalar(node):
            if self.is_scalar(node.right):
                text = self.factor(node.right, inverse=node.op == "/")
                return self.terms(node.left, _times(gain, text), sign)
            if node.op == "*" and self.is_scalar(node.left):
                return self.terms(node.right, _times(gain, self.factor(node.left)), sign)
        return [Term(f"-{gain}" if sign < 0 else gain, node)]

    def factor(self, scalar: Expr, *, inverse: bool = False) -> str:
        text = self.writer.write(scalar)
        if inverse:
            return rf"\frac{{1}}{{{text}}}"
        whole = isinstance(scalar, Name | Number | Call) or (
            isinstance(scalar, Binary) and scalar.op in "*/"
        )
        return text if whole else self.writer.group(text)


def sum_of_gains(terms: list[Term]) -> str:
    """The one gain of several terms of the same value; nothing if it is 1."""
    gains = [{"": "1", "-": "-1"}.get(term.gain, term.gain) for term in terms]
    if gains == ["1"]:
        return ""
    rest = "".join(
        f" {gain[0]} {gain[1:]}" if gain[0] == "-" else f" + {gain}" for gain in gains[1:]
    )
    return gains[0] + rest


def peel(expr: Expr) -> tuple[list[str], Expr]:
    """Functions of one argument around an expression, innermost first, and what is inside."""
    wrappers: list[str] = []
    while isinstance(expr, Call) and len(expr.arguments) == 1:
        wrappers.insert(0, expr.function)
        expr = expr.arguments[0]
    return wrappers, expr


def function_label(function: str) -> str:
    known = {"norm": r"\mathrm{LN}_v", "unit": r"\mathrm{LN}", "square": r"(\cdot)^2"}
    return known.get(function, rf"\mathrm{{{function}}}")


def _times(gain: str, factor: str) -> str:
    if gain and (factor[0].isdigit() or factor.startswith((r"\frac", r"\tfrac"))):
        return rf"{gain} \cdot {factor}"
    return f"{gain} {factor}".strip()
