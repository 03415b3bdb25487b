"""The rules as a table and, one at a time, in full."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from yuriiformer.methods.coefficients import Coefficient, implied, resolve
from yuriiformer.methods.drawing.equations import latex_equations, unicode_equations
from yuriiformer.methods.rule import Rule
from yuriiformer.methods.validate import DEFAULT_STARTS

STARTS = {
    "tables": "its own token and position tables",
    "normalized": "its own token and position tables, through a LayerNorm without gain",
    "zero": "zero",
    "tied": "the main token and position tables (those of X)",
}


@dataclass(frozen=True)
class ExtraParameters:
    """Beyond gradient descent: token tables of streams other than X, LN_v gains, coefficients.

    Position tables are left out, as in the paper's convention.
    """

    tables: int
    norms: int
    coefficients: int

    @property
    def total(self) -> int:
        return self.tables + self.norms + self.coefficients


def extra_parameters(
    rule: Rule,
    *,
    n_layer: int,
    n_head: int,
    d_model: int,
    vocab_size: int,
    separate_norms: bool = False,
) -> ExtraParameters:
    """The parameters that a model of this rule has beyond the same model of gradient descent."""
    own = [s for s, start in rule.streams.items() if s != "X" and start in ("tables", "normalized")]
    norms = rule.norm_calls if separate_norms else min(1, rule.norm_calls)
    size = {"scalar": 1, "head": n_head, "channel": d_model}
    learned = sum(size[spec.shape] for spec in rule.coefficients.values() if spec.learned)
    return ExtraParameters(
        len(own) * vocab_size * d_model, n_layer * norms * d_model, n_layer * learned
    )


def extra_small(rule: Rule) -> ExtraParameters:
    """What the rule adds to the paper's small model."""
    return extra_parameters(rule, n_layer=12, n_head=12, d_model=768, vocab_size=50304)


def toml_text(rule: Rule) -> str:
    """The rule as a file that `load_rule` reads back: what its names already say is left out."""
    lines = [f"name = {_quoted(rule.name)}", f"label = {_quoted(rule.label)}"]
    lines += [f"note = {_quoted(rule.note)}"] if rule.note else []
    equations = [line.strip() for line in rule.equations.strip().splitlines()]
    lines += ['equations = """', *equations, '"""']
    starts = {s: start for s, start in rule.streams.items() if DEFAULT_STARTS.get(s) != start}
    lines += ["[streams]"] if starts else []
    lines += [f"{stream} = {_quoted(start)}" for stream, start in starts.items()]
    options = {name: _options(name, each) for name, each in rule.coefficients.items()}
    lines += ["[coefficients]"] if any(options.values()) else []
    lines += [f"{name} = {{ {', '.join(own)} }}" for name, own in options.items() if own]
    return "\n".join(lines) + "\n"


def _options(name: str, spec: Coefficient) -> list[str]:
    """What must be declared: all that the name does not imply."""
    usual = resolve(name, None if implied(name) else 0.0).to_dict()
    return [
        f"{key} = {_quoted(value) if isinstance(value, str) else json.dumps(value)}"
        for key, value in spec.to_dict().items()
        if value != usual[key] or (key == "initial" and not implied(name))
    ]


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's escapes are among its own."""
    return json.dumps(text, ensure_ascii=False)


def describe(rule: Rule) -> dict[str, Any]:
    """Everything about a rule as plain data."""
    return {
        **rule.to_dict(),
        "oracle_calls": rule.oracle_calls,
        "norm_calls": rule.norm_calls,
        "extra_parameters_small": extra_small(rule).total,
        "unicode": unicode_equations(rule),
        "latex": latex_equations(rule),
    }


def summary_rows(rules: Iterable[Rule]) -> Iterator[dict[str, str]]:
    """The rows of the table of rules, by column."""
    for rule in rules:
        calls = rule.oracle_calls
        streams = [s if start == "tables" else f"{s}={start}" for s, start in rule.streams.items()]
        fixed = [name for name, spec in rule.coefficients.items() if not spec.learned]
        which = "" if len(fixed) == len(rule.coefficients) else f": {' '.join(fixed)}"
        names = " ".join(rule.coefficients) or "–"
        yield {
            "rule": rule.name,
            "label": rule.label,
            "attn + mlp": f"{calls['attn']} + {calls['mlp']}",
            "coefficients": f"{names} (fixed{which})" if fixed else names,
            "streams": " ".join(streams),
            "extra": human_count(extra_small(rule).total),
        }


def full_text(rule: Rule) -> str:
    """A rule for reading: equations, streams, coefficients."""
    calls = rule.oracle_calls
    extra = extra_small(rule)
    lines = [f"{rule.name}: {rule.label}"]
    lines += [rule.note] if rule.note else []
    lines += ["", *(f"  {line}" for line in unicode_equations(rule)), ""]
    written = {assign.target for assign in rule.assigns}
    for stream, start in rule.streams.items():
        constant = "" if stream in written else "; constant over depth"
        lines.append(f"  {stream} starts from {STARTS[start]}{constant}")
    lines += [f"  {name}: {coefficient_text(c)}" for name, c in rule.coefficients.items()]
    lines.append(f"  a block calls attention {calls['attn']} × and the MLP {calls['mlp']} ×")
    lines.append(
        f"  beyond gradient descent, the paper's small model has {human_count(extra.total)} "
        f"parameters more: tables {human_count(extra.tables)}, LN_v {human_count(extra.norms)}, "
        f"coefficients {human_count(extra.coefficients)}"
    )
    return "\n".join(lines)


def coefficient_text(spec: Coefficient) -> str:
    """Its range, start and shape."""
    ranges = {"unit": "in (0, 1)", "positive": "> 0", "real": "any number"}
    start = spec.initial if isinstance(spec.initial, str) else f"{spec.initial:.12g}"
    kind = "learned, starts at" if spec.learned else "fixed at"
    shape = "" if spec.shape == "scalar" else f", one for each {spec.shape}"
    return f"{ranges[spec.range]}, {kind} {start}{shape}"


def human_count(count: int) -> str:
    """38.6 M, 9.3 k, 72, 0."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            return f"{count / size:.1f} {letter}"
    return str(count)
