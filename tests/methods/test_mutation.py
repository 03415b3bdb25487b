"""Faults put into the paper's rules, one at a time: the longhand comparison must see each.

Every rule is mutated at every place where a fault fits. A fault that makes the rule invalid is
caught by validation; every other one must change the block's result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch

import yuriiformer as yf
from tests.longhand import LONGHAND
from tests.methods.worlds import NAMES, World
from yuriiformer.errors import RuleError
from yuriiformer.methods.interpreter import run_rule
from yuriiformer.methods.tree import Assign, Binary, Call, Expr, Name, Negate, Number, children

SWAPS = {
    "oracle": {"attn": "mlp", "mlp": "attn"},
    "X and V": {"X": "V", "V": "X"},
    "substep": {
        **{name: f"{name}_half" for name in ("mu", "beta", "gamma")},
        **{f"{name}_half": name for name in ("mu", "beta", "gamma")},
    },
    "damping and step": {"beta": "gamma", "gamma": "beta"},
}


def text(node: Expr) -> str:
    """A tree back as text, every part in parentheses."""
    if isinstance(node, Number):
        return repr(node.value)
    if isinstance(node, Name):
        return node.id
    if isinstance(node, Negate):
        return f"(-{text(node.operand)})"
    if isinstance(node, Binary):
        return f"({text(node.left)} {node.op} {text(node.right)})"
    return f"{node.function}({', '.join(map(text, node.arguments))})"


def rebuild(node: Expr, parts: list[Expr]) -> Expr:
    if isinstance(node, Binary):
        return replace(node, left=parts[0], right=parts[1])
    if isinstance(node, Negate):
        return replace(node, operand=parts[0])
    return replace(node, arguments=tuple(parts))


def faults_here(node: Expr):
    """(kind of fault, faulty node) for every fault that fits this very node."""
    if isinstance(node, Binary) and node.op in "+-":
        yield "sign flipped", replace(node, op="-" if node.op == "+" else "+")
        yield "left term lost", node.right
        yield "right term lost", node.left
    if isinstance(node, Binary) and node.op == "*":
        yield "factor lost", node.right
    if isinstance(node, Number) and node.value == 0.5:
        yield "half weight lost", Number(1.0)
    if isinstance(node, Call) and node.function == "norm":
        yield "norm missing", node.arguments[0]
        yield "norm doubled", Call("norm", (node,))
    if isinstance(node, Call) and node.function in SWAPS["oracle"]:
        yield "oracle swapped", replace(node, function=SWAPS["oracle"][node.function])
        if node.arguments[0] != Name("X"):
            yield "no lookahead", replace(node, arguments=(Name("X"),))
        else:
            yield "lookahead added", replace(node, arguments=(_ahead(),))
        yield "stale lookahead", replace(node, arguments=(_stale(node.arguments[0]),))
    if isinstance(node, Name):
        for kind in ("X and V", "substep", "damping and step"):
            if node.id in SWAPS[kind]:
                yield f"{kind} swapped", Name(SWAPS[kind][node.id])


def _ahead() -> Expr:
    return Binary("+", Name("X"), Binary("*", Name("mu"), Name("V")))


def _stale(node: Expr) -> Expr:
    """The same point, but taken from the state at the block's start."""
    if isinstance(node, Name) and node.id in ("X", "V"):
        return Name(f"{node.id}_start")
    parts = [_stale(child) for child in children(node)]
    return rebuild(node, parts) if parts else node


def mutants(node: Expr):
    yield from faults_here(node)
    parts = list(children(node))
    for i, part in enumerate(parts):
        for kind, faulty in mutants(part):
            yield kind, rebuild(node, [*parts[:i], faulty, *parts[i + 1 :]])


def faulty_texts(rule: yf.Rule):
    lines = [f"{assign.target} = {text(assign.value)}" for assign in rule.assigns]
    saved = ["X_start = X"] + (["V_start = V"] if rule.uses_velocity else [])
    first = rule.assigns[0]
    for i, assign in enumerate(rule.assigns):
        yield "line lost", lines[:i] + lines[i + 1 :]
        for kind, faulty in mutants(assign.value):
            line = f"{assign.target} = {text(faulty)}"
            if kind == "stale lookahead":
                if assign == first:
                    continue  # at the start of the block nothing is stale yet
                yield kind, [*saved, *lines[:i], line, *lines[i + 1 :]]
            else:
                yield kind, [*lines[:i], line, *lines[i + 1 :]]


def state_after(rule: yf.Rule, world: World) -> dict[str, torch.Tensor]:
    streams = {name: {"X": world.X, "V": world.V}[name] for name in rule.streams}
    out = run_rule(
        rule,
        streams,
        attn=world.attn,
        mlp=world.mlp,
        coefficients=world.only(rule.coefficients),
        velocity_norm=world.norm,
    )
    return {"V": world.V, **out}


def is_stale_free(kind: str, rule: yf.Rule, lines: list[str]) -> bool:
    """A stale lookahead is a fault only if the state has changed since the block's start."""
    if kind != "stale lookahead":
        return False
    at = next(i for i, line in enumerate(lines) if line.count("_start") and "_start =" not in line)
    used = {name for name in ("X", "V") if f"{name}_start" in lines[at]}
    changed = {line.split(" = ")[0] for line in lines[:at]}
    return not used & changed


def test_every_fault_is_caught():
    caught, missed = Counter(), []
    world = World(11)
    for name, (_, _, _, block) in LONGHAND.items():
        X, V = block(world.X, world.V, world.attn, world.mlp, world.coefficients, world.norm)
        for kind, lines in faulty_texts(yf.rules[name]):
            try:
                faulty = yf.Rule("faulty", "\n".join(lines))
            except RuleError:
                caught["invalid"] += 1
                continue
            if is_stale_free(kind, faulty, lines):
                continue
            assert set(faulty.coefficients) <= set(NAMES)
            out = state_after(faulty, world)
            wrong = max((out["X"] - X).abs().max(), (out["V"] - V).abs().max())
            if wrong > 1e-6:
                caught[kind] += 1
            else:
                missed.append((name, kind, lines))
    assert not missed, f"{len(missed)} faults not seen, the first: {missed[0]}"
    assert sum(caught.values()) - caught["invalid"] >= 300, caught
    kinds = {"sign flipped", "stale lookahead", "no lookahead", "norm missing", "norm doubled"}
    kinds |= {"X and V swapped", "half weight lost", "substep swapped", "oracle swapped"}
    assert all(caught[kind] >= 2 for kind in kinds), caught


def test_an_unchanged_rule_passes_the_same_comparison():
    """The comparison above can also say yes: it is not blind to agreement."""
    world = World(11)
    for name, (_, _, _, block) in LONGHAND.items():
        X, V = block(world.X, world.V, world.attn, world.mlp, world.coefficients, world.norm)
        rule = yf.rules[name]
        copy = yf.Rule("copy", "\n".join(f"{a.target} = {text(a.value)}" for a in rule.assigns))
        out = state_after(copy, world)
        assert max((out["X"] - X).abs().max(), (out["V"] - V).abs().max()) < 1e-12
        assert isinstance(rule.assigns[0], Assign)
