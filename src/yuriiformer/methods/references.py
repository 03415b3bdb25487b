"""A rule wherever one is named: by catalogue name, by TOML file, with one-word variations.

nesterov-lie-trotter                    from the catalogue
my_rule.toml                            from a file
nesterov-lie-trotter+V=zero             the same with another start of a stream
nesterov-lie-trotter+mu=0.5+fixed=mu    ... another start of a coefficient, kept fixed
nesterov-lie-trotter+fixed              ... no coefficient learned
nesterov-lie-trotter+channel=mu,beta    ... a coefficient per channel (or per head)
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yuriiformer.errors import RuleError
from yuriiformer.methods.catalog import rules
from yuriiformer.methods.rule import Rule


def get_rule(reference: str | Rule) -> Rule:
    """The rule that a reference names; a `Rule` names itself."""
    if isinstance(reference, Rule):
        return reference
    if not isinstance(reference, str):
        raise RuleError(f"a rule is named by text or given as a Rule, not {reference!r:.60}")
    base, words = _split(reference.strip())
    rule = load_rule(base) if base.endswith(".toml") else rules[base]
    for word in words:
        rule = _vary(rule, word)
    if words:
        rule = rule.vary(
            name="+".join([rule.name, *words]),
            label=f"{rule.label} ({', '.join(words)})",
        )
    return rule


def load_rule(path: str | Path) -> Rule:
    """A rule from a TOML file; errors say where in the file."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RuleError(f"no rule file {str(path)!r}") from None
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise RuleError(f"rule file {str(path)!r} cannot be read: {error}") from None
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RuleError(f"{path}: not TOML: {error}") from None
    try:
        return Rule.from_dict({"name": path.stem, **data}, source=str(path))
    except RuleError as error:
        lines, columns = _offset(text, data.get("equations"))
        raise error.within(str(path), lines=lines, columns=columns) from None


def _offset(text: str, equations: object) -> tuple[int, int]:
    """How far down (and, for its first line, to the right) the equations stand in their file."""
    start = text.find(equations) if isinstance(equations, str) and equations else -1
    if start < 0:  # written with escapes: places are those within the equations
        return 0, 0
    before = text[:start]
    return before.count("\n"), start - (before.rfind("\n") + 1)


def _split(reference: str) -> tuple[str, list[str]]:
    """Base and words. A '+' inside a file's path or inside parentheses does not part them."""
    path, extension, rest = reference.rpartition(".toml")
    base, rest = (path + extension, rest) if extension else ("", reference)
    parts, depth = [""], 0
    for character in rest:
        depth += (character == "(") - (character == ")")
        if character == "+" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return base + parts[0], [part.strip() for part in parts[1:]]


def _vary(rule: Rule, word: str) -> Rule:
    """The rule with one word applied."""
    key, equals, value = (part.strip() for part in word.partition("="))
    if key == "fixed" and not equals:
        return rule.vary(coefficients={name: {"learned": False} for name in rule.coefficients})
    if not equals or not value:
        raise RuleError(
            f"rule {rule.name!r}: '+{word}' is not a variation; write +STREAM=START, "
            "+COEFFICIENT=VALUE, +fixed, +fixed=NAMES, +channel=NAMES or +head=NAMES"
        )
    options: Mapping[str, Mapping[str, Any]] = {
        "fixed": {"learned": False},
        "channel": {"shape": "channel"},
        "head": {"shape": "head"},
        "scalar": {"shape": "scalar"},
    }
    if key in options:
        return rule.vary(coefficients={n.strip(): options[key] for n in value.split(",")})
    if key in rule.coefficients:
        return rule.vary(coefficients={key: {"initial": _number_or_text(value)}})
    if key in rule.streams:
        return rule.vary(streams={key: value})
    raise RuleError(
        f"rule {rule.name!r} has no stream or coefficient {key!r}; it has "
        f"{', '.join([*rule.streams, *rule.coefficients])}"
    )


def _number_or_text(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
