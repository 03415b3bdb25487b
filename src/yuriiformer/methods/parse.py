"""From text to tree. Python's own parser reads the text; a white list admits arithmetic only.

Nothing is executed or compiled: the text becomes a syntax tree, and a node that is not on the
list below is an error with its line and column.
"""

from __future__ import annotations

import ast
import math
import os
import warnings
from dataclasses import dataclass

from yuriiformer.errors import RuleError, did_you_mean
from yuriiformer.methods.tree import Assign, Binary, Call, Expr, Name, Negate, Number, Place

ORACLES = ("attn", "mlp")
NORMS = ("norm", "unit")  # LN_v, and a LayerNorm without gain
ELEMENTWISE = {  # name -> number of arguments
    **dict.fromkeys(("sqrt", "square", "abs", "sign", "exp", "log", "tanh", "sigmoid", "relu"), 1),
    **dict.fromkeys(("maximum", "minimum"), 2),
}
ARITY = {**dict.fromkeys(ORACLES + NORMS, 1), **ELEMENTWISE}

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
}

# On a syntax error Python reads the line from the file of this name; this one cannot exist.
NO_FILE = f"{os.devnull}/equations"

MAX_CHARACTERS = 10_000  # the longest rule of the paper has 300
MAX_DEPTH = 60  # keeps every recursive pass far from Python's limit


def parse_equations(text: str, source: str | None = None) -> tuple[Assign, ...]:
    """The assignments of a rule's text, one after the other."""
    reader = _Reader.of(text, source)
    module = reader.python_tree("exec")
    assert isinstance(module, ast.Module)
    if not module.body:
        raise RuleError("the equations are empty: write at least 'X = ...'", source=source)
    return tuple(reader.statement(node) for node in module.body)


def parse_expression(text: str, source: str | None = None) -> Expr:
    """A single expression, as a coefficient's schedule over depth is one."""
    reader = _Reader.of(text, source)
    tree = reader.python_tree("eval")
    assert isinstance(tree, ast.Expression)
    return reader.expression(tree.body)


def split_lines(text: str) -> list[str]:
    """Lines as Python's parser counts them (str.splitlines splits at more characters)."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


@dataclass
class _Reader:
    """The lines without their indentation (the language has no blocks), and the source's name."""

    lines: list[str]
    indents: list[int]
    source: str | None

    @classmethod
    def of(cls, text: object, source: str | None) -> _Reader:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise RuleError(f"equations must be text, not {kind}", source=source)
        if len(text) > MAX_CHARACTERS:
            raise RuleError(
                f"{len(text)} characters are too long; a rule has at most {MAX_CHARACTERS}",
                source=source,
            )
        raw = split_lines(text)
        stripped = [line.lstrip() for line in raw]
        indents = [len(line) - len(bare) for line, bare in zip(raw, stripped, strict=True)]
        return cls(stripped, indents, source)

    def python_tree(self, mode: str) -> ast.AST:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's warnings on style do not apply here
                return ast.parse("\n".join(self.lines), filename=NO_FILE, mode=mode)
        except SyntaxError as error:
            line = min(max(error.lineno or 1, 1), len(self.lines))
            self.check_characters(line)
            place = Place(line, max(error.offset or 1, 1) + self.indents[line - 1])
            raise self.error(f"this is not an equation: {error.msg}", place) from None
        except (ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or "nested too deeply"
            raise RuleError(f"cannot be read: {reason}", source=self.source) from None

    def check_characters(self, last: int) -> None:
        """A sign that Python does not know, up to a line. Which error Python reports for one that
        stands behind a number differs from version to version; this does not."""
        for number, line in enumerate(self.lines[:last]):
            for column, sign in enumerate(line.partition("#")[0]):
                if not sign.isascii() and not f"a{sign}".isidentifier():
                    reason = f"invalid character {sign!r} (U+{ord(sign):04X})"
                    place = Place(number + 1, self.indents[number] + column + 1)
                    raise self.error(f"this is not an equation: {reason}", place)

    def error(self, reason: str, place: Place) -> RuleError:
        return RuleError(reason, line=place.line, column=place.column, source=self.source)

    def place(self, node: ast.stmt | ast.expr) -> Place:
        before = self.lines[node.lineno - 1].encode()[: node.col_offset]  # Python counts bytes
        column = len(before.decode(errors="ignore")) + self.indents[node.lineno - 1] + 1
        return Place(node.lineno, column)

    def statement(self, node: ast.stmt) -> Assign:
        place = self.place(node)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], self.expression(node.value)
        elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
            target = node.target
            left = Name(target.id, place=place) if isinstance(target, ast.Name) else Number(0.0)
            right = self.expression(node.value)
            value = Binary(OPERATORS[type(node.op)], left, right, place=place)
        else:
            kind = type(node).__name__
            raise self.error(f"every line is 'name = arithmetic'; {kind} is not", place)
        if not isinstance(target, ast.Name):
            raise self.error("only a plain name can stand left of '='", place)
        self.check_name(target.id, place)
        if target.id in ARITY:
            raise self.error(f"'{target.id}' is a function; give the result another name", place)
        return Assign(target.id, value, place=place)

    def check_name(self, name: str, place: Place) -> None:
        if not name.isascii() or name.startswith("_") or name.endswith("_"):
            reason = f"name {name!r}: use ASCII letters and digits, with '_' only between them"
            raise self.error(f"{reason}, as in mu or beta_half", place)

    def expression(self, node: ast.expr, depth: int = 0) -> Expr:
        place = self.place(node)
        if depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} deep: use a name in between", place)
        if isinstance(node, ast.Name):
            return self.name(node, place)
        if isinstance(node, ast.Constant):
            return self.number(node, place)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            operand = self.expression(node.operand, depth + 1)
            if isinstance(node.op, ast.UAdd):
                return operand
            return Negate(operand, place=place)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left = self.expression(node.left, depth + 1)
            right = self.expression(node.right, depth + 1)
            return Binary(OPERATORS[type(node.op)], left, right, place=place)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            raise self.error("powers are written square(...) and sqrt(...)", place)
        if isinstance(node, ast.Call):
            return self.call(node, place, depth)
        raise self.error(
            f"{type(node).__name__} is not arithmetic; allowed are names, numbers, + - * /, "
            f"parentheses and {', '.join(ARITY)}",
            place,
        )

    def name(self, node: ast.Name, place: Place) -> Name:
        self.check_name(node.id, place)
        if node.id in ARITY:
            raise self.error(f"'{node.id}' is a function: write {node.id}(...)", place)
        return Name(node.id, place=place)

    def number(self, node: ast.Constant, place: Place) -> Number:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self.error(f"{node.value!r:.40} is not a number", place)
        try:
            value = float(node.value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self.error("this number is too large", place)
        return Number(value, place=place)

    def call(self, node: ast.Call, place: Place, depth: int) -> Call:
        if not isinstance(node.func, ast.Name):
            raise self.error("only functions called by a plain name are arithmetic", place)
        function = node.func.id
        if function not in ARITY:
            hint = did_you_mean(function, ARITY) or f"; known are {', '.join(ARITY)}"
            raise self.error(f"unknown function '{function}'{hint}", place)
        given = len(node.args) + len(node.keywords)
        if node.keywords or given != ARITY[function]:
            wanted = ARITY[function]
            named = ", not one by name" if node.keywords else f", not {given}"
            some = "1 argument" if wanted == 1 else f"{wanted} arguments"
            raise self.error(f"{function} takes {some}{named}", place)
        arguments = tuple(self.expression(argument, depth + 1) for argument in node.args)
        return Call(function, arguments, place=place)
