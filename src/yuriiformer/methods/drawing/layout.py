"""The positions of everything in a block diagram, derived from the rule's steps.

Streams, oracles and locals each have a lane (a column); time runs down in rows. A step writes its
lane: terms arrive as horizontal arrows from the lanes they are read from and are added at a ⊕.
`diagram` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from yuriiformer.methods.drawing.equations import Indices, LatexWriter
from yuriiformer.methods.drawing.terms import SumSplitter, Term, function_label, peel, sum_of_gains
from yuriiformer.methods.parse import NORMS, ORACLES
from yuriiformer.methods.passes import Query, Step
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.tree import Expr, Name, names

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


def lay_out(rule: Rule) -> Diagram:
    """The diagram of one block."""
    builder = _Builder(rule)
    for number, step in enumerate(rule.steps):
        builder.step(step, rule.steps[number:])
    return builder.finish()


def oracle_of(lane: str) -> str | None:
    """The oracle a lane belongs to; one with two answers pending has a second lane ``attn#1``."""
    oracle = lane.partition("#")[0]
    return oracle if oracle in ORACLES else None


def _reads(step: Step) -> set[str]:
    return {name.id for name in names(step.value)}


def _lanes(rule: Rule, scalars: set[str]) -> list[str]:
    """X, points at which oracles are asked, oracles, other locals, other streams."""
    drawn = [local for local in rule.locals if local not in scalars]
    points = []
    for local in drawn:
        readers = [step for step in rule.steps if local in _reads(step)]
        if all(isinstance(step, Query) and step.argument == Name(local) for step in readers):
            points.append(local)
    others = [local for local in drawn if local not in points]
    return ["X", *points, *ORACLES, *others, *(s for s in rule.streams if s != "X")]


def _scalar_locals(rule: Rule) -> set[str]:
    """Locals that hold arithmetic on coefficients alone: they scale, but do not flow."""
    scalars = set(rule.coefficients)
    for assign in rule.assigns:
        if all(name.id in scalars for name in names(assign.value)):
            scalars.add(assign.target)
    flowing = {
        assign.target
        for assign in rule.assigns
        if any(name.id not in scalars for name in names(assign.value))
    }
    return scalars - set(rule.coefficients) - flowing


class _Builder:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.scalars = _scalar_locals(rule)
        self.diagram = Diagram(rule.label, _lanes(rule, self.scalars))
        self.indices = Indices(rule)
        self.writer = LatexWriter(self.indices)
        self.splitter = SumSplitter(self.writer, self.is_tensor)
        self.row = 1.0
        self.answers: dict[str, str] = {}  # an oracle's answer -> the lane it stands in
        self.top: dict[str, float] = {}  # lanes with a value on them: where its wire begins
        self.last: dict[str, float] = {}  # ... and where it was last read
        for stream in rule.streams:
            self.name_mark(stream, 0.0)
            self.top[stream], self.last[stream] = 0.35, 0.35

    def step(self, step: Step, from_here: tuple[Step, ...]) -> None:
        """Draw one step; ``from_here`` are the remaining steps, this one included."""
        if isinstance(step, Query):
            lane = self.free_lane(step.oracle, from_here)
            self.cut(lane)
            self.value(lane, step.argument)
            self.answers[step.target] = lane
            label = {"attn": "Attn", "mlp": "MLP"}[step.oracle]
            self.box(lane, label, "attn" if step.oracle == "attn" else "mlp", 1.15)
            return
        symbol = self.indices.preview(step.target)
        if step.target not in self.scalars:
            self.value(step.target, step.value)
            if step.target in self.rule.locals:
                beside = self.last[step.target] + 0.27
                self.diagram.marks.append(Mark(step.target, beside, "tag", symbol.latex()))
        self.indices.write(step.target)

    def free_lane(self, oracle: str, from_here: tuple[Step, ...]) -> str:
        """The oracle's lane, or another beside it while an answer there is still to be read."""
        pending = set().union(*(_reads(step) for step in from_here))
        taken = {lane for answer, lane in self.answers.items() if answer in pending}
        number, lane = 0, oracle
        while lane in taken:
            number += 1
            lane = f"{oracle}#{number}"
        if lane not in self.diagram.lanes:
            self.diagram.lanes.insert(self.column(oracle) + number, lane)
        return lane

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
        wrappers, inner = peel(expr)
        terms = self.splitter.terms(inner)
        mine = [term for term in terms if term.atom == Name(lane) and lane in self.top]
        others = [term for term in terms if term not in mine]
        sources = [self.source(term, lane) for term in others]  # may draw boxes: before the cut
        if not mine:
            self.cut(lane)
        elif gain := sum_of_gains(mine):
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
            self.box(lane, function_label(function), kind, 0.5)

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

    def source(self, term: Term, target: str) -> tuple[str, str]:
        """The lane a term is read from, and what it goes through on its way."""
        wrappers, inner = peel(term.atom)
        if isinstance(inner, Name) and self.is_tensor(inner) and len(wrappers) <= 1:
            lane = self.lane_of(inner.id)
            if lane != target:
                return lane, function_label(wrappers[0]) if wrappers else ""
        return self.operation(term.atom), ""

    def operation(self, atom: Expr) -> str:
        """A formula that is not a sum: a box in its own lane, with an arrow for each name."""
        inputs = list(dict.fromkeys(self.lane_of(n.id) for n in names(atom) if self.is_tensor(n)))
        lane = f"op#{sum(name.startswith('op#') for name in self.diagram.lanes)}"
        self.diagram.lanes.append(lane)
        height = 0.6 * max(1, len(inputs))
        self.diagram.boxes.append(Box(lane, self.row, height, self.writer.write(atom), "function"))
        for number, source in enumerate(inputs):
            self.arrow(Arrow(self.row + 0.3 + 0.6 * number, source, lane))
        self.row += height
        self.top[lane] = self.last[lane] = self.row
        self.row += 0.45
        return lane

    def is_tensor(self, name: Name) -> bool:
        return name.id not in self.rule.coefficients and name.id not in self.scalars

    def lane_of(self, name: str) -> str:
        return self.answers.get(name, name)

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
