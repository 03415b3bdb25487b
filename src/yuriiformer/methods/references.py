"""A rule wherever one is named: by catalogue name, by TOML file, with one-word variations.

nesterov-lie-trotter                    from the catalogue
my_rule.toml                            from a file
nesterov-lie-trotter+V=zero             the same with another start of a stream
nesterov-lie-trotter+mu=0.5+fixed=mu    ... another start of a coefficient, kept fixed
nesterov-lie-trotter+fixed              ... no coefficient learned
nesterov-lie-trotter+channel=mu,beta    ... a coefficient per channel (or per head)
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yuriiformer.errors import RuleError, brief, one_line
from yuriiformer.methods.catalog import GROUPS, rules
from yuriiformer.methods.rule import Rule
from yuriiformer.reading import MOST_TOML, parse_toml, read_file


def get_rule(reference: str | os.PathLike[str] | Rule) -> Rule:
    """The rule that a reference names; a `Rule` names itself."""
    if isinstance(reference, Rule):
        return reference
    if isinstance(reference, os.PathLike):
        return load_rule(reference)
    if not isinstance(reference, str):
        raise RuleError(f"a rule is named by text or given as a Rule, not {brief(reference)}")
    base, words = _split(reference.strip())
    rule = load_rule(base) if base.endswith(".toml") else rules[base]
    return _vary(rule, words) if words else rule


def get_rules(name: str) -> list[Rule]:
    """The rules of a group (all, paper, standard, controls, upcycling, further), or the one rule
    of a reference."""
    return list(GROUPS[name].values()) if name in GROUPS else [get_rule(name)]


def load_rule(path: str | os.PathLike[str]) -> Rule:
    """A rule from a TOML file; errors say where in the file."""
    path = Path(path)
    raw = read_file(path, RuleError, MOST_TOML, missing=f"no rule file {str(path)!r}")
    try:
        text, data = raw.decode("utf-8-sig"), parse_toml(raw)
    except (ValueError, RecursionError) as error:
        raise RuleError(f"{path}: not TOML: {one_line(error):.160}") from None
    try:
        return Rule.from_dict({"name": path.stem, **data}, source=str(path))
    except RuleError as error:
        raise _in_file(error, path, text, data.get("equations")) from None


def _in_file(error: RuleError, path: Path, text: str, equations: object) -> RuleError:
    """The error with its line and column in the file, if they can be found."""
    if error.declared is not None:  # the line that declares the name, after the equations
        line = line_declaring(error.declared, text)
        if line is not None:
            return error.within(str(path), line, 1)
    if error.line is None or error.column is None or not isinstance(equations, str):
        return error.within(str(path))
    key = re.search(r"^[ \t]*equations[ \t]*=", text, re.MULTILINE)
    start = text.find(equations, key.end() if key else 0)
    if start < 0:  # written with escapes: only the place within the equations is known
        return error.within(f"{path}, in the equations")
    line = text.count("\n", 0, start) + error.line
    before = start - (text.rfind("\n", 0, start) + 1) if error.line == 1 else 0
    return error.within(str(path), line, error.column + before)


def line_declaring(name: str, text: str) -> int | None:
    """Where TOML declares a stream or coefficient: ``a = 1``, ``a.initial = 1`` or
    ``[coefficients.a]``, the name perhaps quoted."""
    within = r"(?:\[?[ \t]*(?:streams|coefficients)[ \t]*\.[ \t]*)?"
    key = rf"^[ \t]*{within}[\"']?{re.escape(name)}[\"']?[ \t]*[=.\]]"
    found = list(re.finditer(key, text, re.MULTILINE))
    return text.count("\n", 0, found[-1].start()) + 1 if found else None


def _split(reference: str) -> tuple[str, list[str]]:
    """Base and words. A '+' in a file's path, in parentheses or in 1e+5 is no separator."""
    path, extension, rest = reference.rpartition(".toml")
    base, rest = (path + extension, rest) if extension else ("", reference)
    parts, depth = [""], 0
    for character in rest:
        depth += (character == "(") - (character == ")")
        if character == "+" and depth == 0 and not re.search(r"[\d.][eE]$", parts[-1]):
            parts.append("")
        else:
            parts[-1] += character
    return base + parts[0], [part.strip() for part in parts[1:]]


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "fixed": {"learned": False},
    "channel": {"shape": "channel"},
    "head": {"shape": "head"},
    "scalar": {"shape": "scalar"},
}


def _vary(rule: Rule, words: list[str]) -> Rule:
    """The rule with all words applied at once: their order does not matter."""
    streams: dict[str, str] = {}
    coefficients: dict[str, dict[str, Any]] = defaultdict(dict)
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if key == "fixed" and not equals:
            value = ",".join(rule.coefficients)
        elif not equals or not value:
            raise RuleError(
                f"rule {rule.name!r}: '+{word}' is not a variation; write +STREAM=START, "
                "+COEFFICIENT=VALUE, +fixed, +fixed=NAMES, +channel=NAMES or +head=NAMES"
            )
        if key in _OPTIONS:
            for name in filter(None, value.split(",")):
                coefficients[name.strip()].update(_OPTIONS[key])
        elif key in rule.coefficients:
            coefficients[key]["initial"] = _number_or_text(value)
        elif key in rule.streams:
            streams[key] = value
        else:
            raise RuleError(
                f"rule {rule.name!r} has no stream or coefficient {key!r}; it has "
                f"{', '.join([*rule.streams, *rule.coefficients])}"
            )
    return rule.vary(
        name="+".join([rule.name, *words]),
        label=f"{rule.label} ({', '.join(words)})",
        streams=streams,
        coefficients=coefficients,
    )


def _number_or_text(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
