"""Where everything of a block diagram stands, worked out from the rule's steps.

Streams, oracles and locals each have a lane (a column); time runs down in rows. A step writes its
lane: terms arrive as horizontal arrows from the lanes they are read from and are added at a ⊕.
Nothing here draws; `diagram` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from yuriiformer.methods.parse import NORMS, ORACLES
from yuriiformer.methods.passes import Query, Step
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Assign, Binary, Call, Expr, Name, Negate, Number, names
from yuriiformer.render.equations import Indices, LatexWriter

BoxKind = Literal["attn", "mlp", "norm", "unit", "function"]


@dataclass(frozen=True)
class Wire:
    """A value flowing down its lane."""

    lane: str
    top: float
    bottom: float


@dataclass(frozen=True)
class Arrow:
    """A value read from one lane and brought to another, scaled by ``label``, through ``via``."""

    row: float
    source: str
    target: str
    label: str = ""
    via: str = ""
    turns: bool = False  # it becomes the target lane's wire instead of joining it


@dataclass(frozen=True)
class Box:
    lane: str
    row: float
    height: float
    label: str
    kind: BoxKind


@dataclass(frozen=True)
class Mark:
    """A sign on a lane: ⊕ of two values, a gain, the name of a stream at the block's ends, or a
    tag beside the value that a local holds."""

    lane: str
    row: float
    kind: Literal["plus", "gain", "name", "tag"]
    label: str = ""


@dataclass
class Diagram:
    """The finished layout."""

    title: str
    lanes: list[str]
    rows: float = 0.0
    wires: list[Wire] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    boxes: list[Box] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)


@dataclass(frozen=True)
class Term:
    """A summand: ``gain`` (LaTeX, may be empty) times ``atom``."""

    gain: str
    atom: Expr


def lay_out(rule: Rule) -> Diagram:
    """The diagram of one block."""
    builder = _Builder(rule)
    for step in rule.steps:
        builder.step(step)
    return builder.finish()


def _lanes(rule: Rule) -> list[str]:
    """X, points at which oracles are asked, oracles, other locals, other streams."""
    points = []
    for local in rule.locals:
        readers = [s for s in rule.steps if local in {n.id for n in names(s.value)}]
        if all(isinstance(s, Query) and s.argument == Name(local) for s in readers):
            points.append(local)
    others = [local for local in rule.locals if local not in points]
    return ["X", *points, *ORACLES, *others, *(s for s in rule.streams if s != "X")]


class _Builder:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.diagram = Diagram(rule.label, _lanes(rule))
        self.indices = Indices(rule)
        self.writer = LatexWriter(self.indices)
        self.row = 1.0
        self.top: dict[str, float] = {}  # lanes with a value on them: where its wire begins
        self.last: dict[str, float] = {}  # ... and where it was last read
        for stream in rule.streams:
            self.name_mark(stream, 0.0)
            self.top[stream], self.last[stream] = 0.35, 0.35

    def step(self, step: Step) -> None:
        if isinstance(step, Query):
            self.cut(step.oracle)
            self.value(step.oracle, step.argument)
            label = {"attn": "Attn", "mlp": "MLP"}[step.oracle]
            self.box(step.oracle, label, "attn" if step.oracle == "attn" else "mlp", 1.15)
        else:
            assert isinstance(step, Assign)
            self.value(step.target, step.value)
            symbol = self.indices.write(step.target)
            if step.target in self.rule.locals:
                beside = self.last[step.target] + 0.27
                self.diagram.marks.append(Mark(step.target, beside, "tag", symbol.latex()))

    def finish(self) -> Diagram:
        end = self.row + 0.1
        for stream in self.rule.streams:
            self.last[stream] = end
            self.name_mark(stream, end + 0.35)
        for lane in list(self.top):
            self.cut(lane)
        self.diagram.rows = end + 0.6
        return self.diagram

    def value(self, lane: str, expr: Expr) -> None:
        """Bring the value of an expression onto a lane, ending at the current row."""
        wrappers, inner = _peel(expr)
        own = Name(lane)
        terms = self.terms(inner)
        mine = [term for term in terms if term.atom == own and lane in self.top]
        others = [term for term in terms if term not in mine]
        sources = [self.source(term) for term in others]  # may draw boxes, so before the cut
        if not mine:
            self.cut(lane)
        elif gain := " + ".join(term.gain for term in mine if term.gain):
            self.diagram.marks.append(Mark(lane, self.row, "gain", gain))
            self.row += 0.55
        arrivals = list(zip(others, sources, strict=True))
        if not mine and len(arrivals) > 1:
            arrivals = self.first_two(lane, arrivals)
        for term, (source, via) in arrivals:
            turns = lane not in self.top
            self.arrow(Arrow(self.row, source, lane, term.gain, via, turns))
            if turns:
                self.top[lane] = self.row
            else:
                self.diagram.marks.append(Mark(lane, self.row, "plus"))
            self.last[lane] = self.row
            self.row += 0.85
        for function in wrappers:
            kind: BoxKind = function if function in NORMS else "function"  # type: ignore[assignment]
            self.box(lane, _function_label(function), kind, 0.5)

    def first_two(
        self, lane: str, arrivals: list[tuple[Term, tuple[str, str]]]
    ) -> list[tuple[Term, tuple[str, str]]]:
        """A fresh value starts at a ⊕ if two of its terms come from opposite sides."""
        here = self.column(lane)
        left = next((a for a in arrivals if self.column(a[1][0]) < here), None)
        right = next((a for a in arrivals if self.column(a[1][0]) > here), None)
        if left is None or right is None:
            return arrivals
        for term, (source, via) in (left, right):
            self.arrow(Arrow(self.row, source, lane, term.gain, via))
        self.diagram.marks.append(Mark(lane, self.row, "plus"))
        self.top[lane] = self.last[lane] = self.row
        self.row += 0.85
        return [a for a in arrivals if a is not left and a is not right]

    def source(self, term: Term) -> tuple[str, str]:
        """The lane a term is read from, and what it goes through on its way."""
        atom = term.atom
        if isinstance(atom, Name):
            return self.lane_of(atom.id), ""
        if (
            isinstance(atom, Call)
            and isinstance(atom.arguments[0], Name)
            and len(atom.arguments) == 1
        ):
            return self.lane_of(atom.arguments[0].id), _function_label(atom.function)
        return self.operation(atom), ""

    def operation(self, atom: Expr) -> str:
        """A formula that is no sum: a box in a lane of its own, with an arrow for each name."""
        inputs = list(dict.fromkeys(self.lane_of(n.id) for n in names(atom) if self.is_tensor(n)))
        lane = f"op{sum(name.startswith('op') for name in self.diagram.lanes)}"
        self.diagram.lanes.append(lane)
        height = 0.6 * max(1, len(inputs))
        self.diagram.boxes.append(Box(lane, self.row, height, self.writer.write(atom), "function"))
        for number, source in enumerate(inputs):
            self.arrow(Arrow(self.row + 0.3 + 0.6 * number, source, lane))
        self.row += height
        self.top[lane] = self.last[lane] = self.row
        self.row += 0.45
        return lane

    def terms(self, node: Expr, gain: str = "", sign: int = 1) -> list[Term]:
        """A sum as its summands; scalar factors, also of whole sums, become gains."""
        if isinstance(node, Negate):
            return self.terms(node.operand, gain, -sign)
        if isinstance(node, Binary) and node.op in "+-":
            flip = sign if node.op == "+" else -sign
            return self.terms(node.left, gain, sign) + self.terms(node.right, gain, flip)
        if isinstance(node, Binary) and node.op == "*":
            for scalar, rest in ((node.left, node.right), (node.right, node.left)):
                if not any(self.is_tensor(name) for name in names(scalar)):
                    factor = self.factor(scalar)
                    return self.terms(rest, f"{gain} {factor}".strip(), sign)
        if isinstance(node, Binary) and node.op == "/":
            if not any(self.is_tensor(name) for name in names(node.right)):
                factor = rf"\frac{{1}}{{{self.writer.write(node.right)}}}"
                return self.terms(node.left, f"{gain} {factor}".strip(), sign)
        return [Term(f"-{gain}" if sign < 0 else gain, node)]

    def factor(self, scalar: Expr) -> str:
        text = self.writer.write(scalar)
        whole = isinstance(scalar, Name | Number | Call) or (
            isinstance(scalar, Binary) and scalar.op in "*/"
        )
        return text if whole else self.writer.group(text)

    def is_tensor(self, name: Name) -> bool:
        return name.id not in self.rule.specs

    def lane_of(self, name: str) -> str:
        return name.partition("[")[0]  # an oracle's answer attn[0] stands in the oracle's lane

    def column(self, lane: str) -> int:
        return self.diagram.lanes.index(lane)

    def arrow(self, arrow: Arrow) -> None:
        self.diagram.arrows.append(arrow)
        self.last[arrow.source] = arrow.row

    def box(self, lane: str, label: str, kind: BoxKind, height: float) -> None:
        self.row -= 0.15
        self.diagram.boxes.append(Box(lane, self.row, height, label, kind))
        self.last[lane] = self.row
        self.cut(lane)
        self.row += height
        self.top[lane] = self.last[lane] = self.row
        self.row += 0.5

    def cut(self, lane: str) -> None:
        """End the wire on a lane where it was last read."""
        if lane in self.top and self.last[lane] > self.top[lane]:
            self.diagram.wires.append(Wire(lane, self.top[lane], self.last[lane]))
        self.top.pop(lane, None)

    def name_mark(self, stream: str, row: float) -> None:
        label = self.indices.read(stream).latex()
        self.diagram.marks.append(Mark(stream, row, "name", label))


def _function_label(function: str) -> str:
    known = {"norm": r"\mathrm{LN}_v", "unit": r"\mathrm{LN}", "square": "(\\cdot)^2"}
    return known.get(function, rf"\mathrm{{{function}}}")


def _peel(expr: Expr) -> tuple[list[str], Expr]:
    """Functions of one argument around an expression, innermost first, and what is inside."""
    wrappers: list[str] = []
    while isinstance(expr, Call) and len(expr.arguments) == 1:
        wrappers.insert(0, expr.function)
        expr = expr.arguments[0]
    return wrappers, expr
