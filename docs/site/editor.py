"""What the rule editor says about a text. The page runs this file in the browser, with the
package's own parser, passes, drawings and lab; the tests run it in Python and compare."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from docs.site.path import path_svg
from yuriiformer.errors import RuleError, YuriiError, one_line
from yuriiformer.lab.plain import PlainQuadratic, PlainResult, run_plain
from yuriiformer.methods.catalog import BASELINE, rules
from yuriiformer.methods.drawing.listing import (
    STARTS,
    coefficient_text,
    extra_small,
    human_count,
    toml_text,
)
from yuriiformer.methods.drawing.markup import mathml
from yuriiformer.methods.drawing.svg import svg_diagram
from yuriiformer.methods.passes import oracle_calls
from yuriiformer.methods.references import line_declaring
from yuriiformer.methods.rule import Rule
from yuriiformer.reading import MOST_TOML, parse_toml

NAME = "mine"
STEPS = 60


def answer(
    equations: str,
    declarations: str = "",
    *,
    costs: Mapping[str, float],
    condition: float = 100.0,
    shifted: bool = False,
) -> dict[str, Any]:
    """Everything the page shows: an error with its place, or the rule and what follows from it.

    ``declarations`` is the rest of a rule's TOML file. ``costs`` are FLOPs per token of one call of
    each oracle and of the output, and the number of layers.
    """
    try:
        rule = read(equations, declarations)
    except RuleError as error:
        return {"ok": False, **_place(error, equations, declarations)}
    found = {**shown(rule), **cost(rule, costs), **lab(rule, condition, shifted)}
    return {"ok": True, **found, "borrowed": borrowed(rule)}


def read(equations: str, declarations: str) -> Rule:
    raw = declarations.encode(errors="replace")
    if len(raw) > MOST_TOML:  # as of a rule's file
        raise RuleError(f"more than {MOST_TOML:,} bytes", source=TOML)
    try:
        data = parse_toml(raw)
    except (ValueError, RecursionError) as error:
        found = re.search(r" ?\(at line (\d+), column (\d+)\)", str(error))
        reason = one_line(error).replace(found[0], "") if found else one_line(error)
        line, column = (int(found[1]), int(found[2])) if found else (None, None)
        raise RuleError(f"not TOML: {reason}", line=line, column=column, source=TOML) from None
    if "equations" in data:
        raise RuleError("the equations stand in the other box", source=TOML)
    return Rule.from_dict({"name": NAME, **data, "equations": equations})


TOML = "declarations"


def _place(error: RuleError, equations: str, declarations: str) -> dict[str, Any]:
    """The error as Python has it, and in which box it is to be shown."""
    said = {"message": str(error), "reason": error.reason}
    if error.source == TOML:
        return {**said, "box": "declarations", "line": error.line, "column": error.column}
    if error.line is not None:
        return {**said, "box": "equations", "line": error.line, "column": error.column}
    if error.declared is not None:
        line = line_declaring(error.declared, declarations)
        return {**said, "box": "declarations", "line": line, "column": 1 if line else None}
    return {**said, "box": _at_fault(error, equations), "line": None, "column": None}


def _at_fault(error: RuleError, equations: str) -> str:
    """Of an error without a place: the equations, if it is theirs without declarations, too."""
    try:
        read(equations, "")
    except RuleError as alone:
        if alone.reason == error.reason:
            return "equations"
    return "declarations"


def shown(rule: Rule) -> dict[str, Any]:
    """What is read off the equations."""
    written = {assign.target for assign in rule.assigns}
    return {
        "mathml": mathml(rule),
        "svg": svg_diagram(rule),
        "toml": toml_text(rule),
        "streams": {
            name: f"starts from {STARTS[start]}"
            + ("" if name in written else "; constant over depth")
            for name, start in rule.streams.items()
        },
        "coefficients": {name: coefficient_text(c) for name, c in rule.coefficients.items()},
        "locals": list(rule.locals),
        "calls": rule.oracle_calls,
        "norms": rule.norm_calls,
    }


def borrowed(rule: Rule) -> str:
    """The name, if it is that of another rule: a changed rule must not pass for the catalogue's."""
    return rule.name if rules.get(rule.name, rule) != rule else ""


def forward(rule: Rule, costs: Mapping[str, float]) -> float:
    """FLOPs per token of a model of this rule."""
    calls = oracle_calls(rule.programs(int(costs["layers"])))
    return sum(costs[oracle] * count for oracle, count in calls.items()) + costs["output"]


def cost(rule: Rule, costs: Mapping[str, float]) -> dict[str, Any]:
    return {
        "flops": round(forward(rule, costs) / forward(rules[BASELINE], costs), 4),
        "extra": human_count(extra_small(rule).total),
    }


def lab(rule: Rule, condition: float, shifted: bool) -> dict[str, Any]:
    """Path and rate on the quadratic, or why there are none."""
    try:
        problem = PlainQuadratic(condition, shifted)
        found = run_plain(rule, problem, STEPS)
    except YuriiError as error:  # a schedule that leaves its range, a condition number
        return {"path": "", "points": [], "radius": None, "remark": str(error)}
    points = [[float(f"{z:.6g}") for z in point] for point in found.path]
    radius = None if found.radius is None else float(f"{found.radius:.6g}")
    return {
        "path": path_svg(problem, found),
        "points": points,
        "radius": radius if radius is None or math.isfinite(radius) else None,
        "remark": remark(rule, found),
    }


def remark(rule: Rule, found: PlainResult) -> str:
    said = []
    if found.stopped is not None:
        said.append(f"It diverges: stopped at block {found.stopped}.")
    if found.radius is None:
        steady = found.setting.steady
        said.append("It is not linear." if steady else "Its blocks differ: no rate of one block.")
    elif found.radius >= 1 and found.stopped is None:
        said.append("It does not converge.")
    if rule.norm_calls:
        said.append("LN_v is off here.")
    return " ".join(said)
