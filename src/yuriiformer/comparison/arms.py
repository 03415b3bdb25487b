"""Arms: what is compared. A rule with overrides of any field, under a label.

    nesterov-lie-trotter                       a rule alone
    deep: rule=gd-lie-trotter n_layer=18       a label, a rule, and fields set
    rest: rule=nesterov-lie-trotter V=zero     ... or a variation of the rule

A grid multiplies arms: ``muon_lr=0.01,0.02`` makes two of each.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from yuriiformer.config import PARTS, TrainConfig
from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.methods.references import get_rule, get_rules
from yuriiformer.methods.rule import Rule
from yuriiformer.model.config import ModelConfig
from yuriiformer.training.presets import preset

TRUE, FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")
LONGEST = 120  # bytes of a folder's name
OWN = {"rule", "seed", "vocab_size", "valid_vocab"}  # an arm cannot set these


@dataclass(frozen=True)
class ArmSpec:
    """What an arm is, before it runs. ``settings`` are fields of a run's configuration; ``slug``
    is its name as a folder, ``why`` a sentence about it."""

    label: str
    slug: str
    rule: Rule
    settings: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    def entry(self) -> dict[str, Any]:
        """As plain data."""
        own = {"slug": self.slug, "label": self.label, "rule": self.rule.name}
        return {**own, "settings": dict(self.settings), "why": self.why}

    def config(self, preset_name: str, seed: int, common: Mapping[str, Any]) -> TrainConfig:
        settings = {**common, **self.settings, "seed": seed}
        return preset(preset_name, self.rule).with_(**settings)


def slug(text: str) -> str:
    """A name for a folder: letters of any script, and not too long for file systems."""
    name = re.sub(r"[^\w.=+,-]+", "-", text).strip("-.") or "arm"
    if len(name.encode()) > LONGEST:
        name = f"{name[: LONGEST // 5]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return name


def make_arms(names: Sequence[str], texts: Sequence[str], grid: Sequence[str]) -> list[ArmSpec]:
    """Arms from rules (or groups of them), from texts, each multiplied by the grid."""
    rules = [rule for name in names for rule in get_rules(name)]
    arms = [ArmSpec(rule.label, slug(rule.name), rule) for rule in rules]
    arms += [parse_arm(text) for text in texts]
    if not arms:
        raise ConfigError("nothing to compare: give --rules or --arm")
    axes: dict[str, list[tuple[str, str]]] = {}
    for text in grid:
        for name, value in _axis(text):
            axes.setdefault(name, []).append((name, value))
    points = list(itertools.product(*axes.values()))
    arms = [vary(arm, point) for arm in arms for point in points]
    check_names([arm.entry() for arm in arms])
    return arms


def check_names(arms: Sequence[Mapping[str, Any]]) -> None:
    """Check that labels and folder names are unique (some file systems ignore case)."""
    for one, two in itertools.combinations(arms, 2):
        if one["label"] == two["label"] or one["slug"].lower() == two["slug"].lower():
            raise ConfigError(
                f"two arms are called {two['label']!r} (as a folder, {two['slug']!r}): give each a "
                "label of its own, --arm 'LABEL: rule=...'"
            )


def parse_arm(text: str) -> ArmSpec:
    """``label: rule=NAME field=value ...``"""
    label, colon, rest = text.partition(":")
    if not colon or "=" in label:
        label, rest = "", text
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise ConfigError(f"--arm {text!r}: {error}") from None
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or not value:
            raise ConfigError(
                f"--arm {text!r}: {word!r} is not FIELD=VALUE; write 'LABEL: rule=NAME n_layer=4'"
            )
        if name in values:
            raise ConfigError(f"--arm {text!r} sets {name} twice")
        values[name] = value
    reference = values.pop("rule", None)
    if reference is None:
        raise ConfigError(f"--arm {text!r} names no rule: write 'LABEL: rule=NAME ...'")
    base = get_rule(reference)
    varies = [name for name in values if name in {*base.streams, *base.coefficients}]
    words = [f"{name}={values.pop(name)}" for name in varies]
    rule = get_rule("+".join([reference, *words]))
    settings = parse_settings(values)
    named = " ".join([rule.name, *(f"{name}={value}" for name, value in settings.items())])
    return ArmSpec(label.strip() or named, slug(label.strip() or named), rule, settings)


def parse_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a run's configuration, each of its own type, from text or from such a value."""
    kinds = _kinds()
    found = {}
    for name, value in values.items():
        key = name.replace("-", "_")
        if key in OWN:
            hint = "its own --seeds" if key == "seed" else "rule=NAME or the data"
            raise ConfigError(f"{name} cannot be set here: it comes from {hint}")
        if key not in kinds:
            raise ConfigError(f"unknown field {name!r}{did_you_mean(key, kinds)}")
        found[key] = _convert(key, kinds[key], value if isinstance(value, str) else str(value))
    return found


def split_settings(words: Sequence[str]) -> dict[str, str]:
    """``FIELD=VALUE`` words."""
    found = split_words("set", words, "FIELD")
    names = [word.partition("=")[0].replace("-", "_") for word in words]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"--set names {twice[0]} twice")
    return found


def split_words(flag: str, words: Sequence[str], what: str) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise ConfigError(f"--{flag} {word!r} is not {what}=VALUE")
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def _kinds() -> dict[str, Any]:
    """The type of every field that can be set."""
    parts = [ModelConfig, *PARTS.values()]
    return {
        each.name: get_type_hints(part)[each.name]
        for part in parts
        for each in fields(part)
        if each.name not in OWN
    }


def _convert(name: str, kind: Any, text: str) -> Any:
    """Text as a value of a field's type; the configuration checks its range."""
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        if text.lower() == "none":
            return None
        return _convert(name, kinds[0], text)
    if kind is bool:
        if text.lower() not in (*TRUE, *FALSE):
            raise ConfigError(f"{name}={text!r} is neither true nor false")
        return text.lower() in TRUE
    if kind in (int, float):
        try:
            return kind(text.replace("_", ""))
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise ConfigError(f"{name}={text!r} is not {what}") from None
    if get_origin(kind) is Literal and text not in get_args(kind):
        raise ConfigError(f"{name}={text!r} is not one of {', '.join(get_args(kind))}")
    return text


def _axis(text: str) -> list[tuple[str, str]]:
    name, equals, values = text.partition("=")
    points = [value.strip() for value in values.split(",") if value.strip()]
    if not equals or not points:
        raise ConfigError(f"--grid {text!r} is not FIELD=VALUE,VALUE")
    parse_settings(dict.fromkeys([name], points[0]))
    return [(name, value) for value in points]


def vary(arm: ArmSpec, point: Sequence[tuple[str, Any]]) -> ArmSpec:
    """An arm at one point of a grid."""
    if not point:
        return arm
    words = ", ".join(f"{name}={value}" for name, value in point)
    settings = {**arm.settings, **parse_settings(dict(point))}
    label, folder = f"{arm.label}, {words}", slug(f"{arm.slug},{words}")
    return replace(arm, label=label, slug=folder, settings=settings)


def parse_seeds(text: str) -> list[int]:
    """``0,1,2`` or ``0-4``."""
    seeds: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match:
            raise ConfigError(f"--seeds {text!r}: {part!r} is no seed; write 0,1,2 or 0-4")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first > 10_000:
            raise ConfigError(f"--seeds {text!r}: {part!r} is no range of seeds")
        seeds += range(first, last + 1)
    if not seeds:
        raise ConfigError("--seeds needs at least one, such as 0,1,2")
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds {text!r} names a seed twice")
    return seeds
