"""A study is a file, written before the runs: the question, the arms, the hypotheses.

docs/comparing.md shows one with every key. A study that has begun can grow (arms, seeds,
hypotheses) but not change otherwise; what is added after the first finished run is marked as late.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from yuriiformer.comparison.arms import (
    ArmSpec,
    check_names,
    parse_seeds,
    parse_settings,
    slug,
    vary,
)
from yuriiformer.config import Validation
from yuriiformer.errors import ConfigError, YuriiError, brief, did_you_mean, one_line
from yuriiformer.methods.references import get_rule, get_rules
from yuriiformer.methods.rule import Rule
from yuriiformer.reading import (
    MOST_TOML,
    Each,
    one_of,
    parse_toml,
    plain_text,
    problem_of,
    read_file,
)
from yuriiformer.runs.run import text_of
from yuriiformer.training.presets import PRESETS

Direction = Literal["lower", "higher", "equal"]
Metric = Literal["final", "exact", "best"]
FIXED = "title question preset metric settings baseline families".split()  # once it has begun
ARM: dict[str, Any] = {
    "label?": str,
    "rule?": str,
    "rules?": [str],
    "equations?": str,
    "streams?": dict,
    "coefficients?": dict,
    "settings?": dict,
    "grid?": Each(list),
    "why?": str,
}
HYPOTHESIS: dict[str, Any] = {
    "claim": plain_text,
    "arm": plain_text,
    "against": plain_text,
    "direction?": one_of(*get_args(Direction)),
    "difference?": float,
    "family?": str,
    "metric?": plain_text,
}
FORM: dict[str, Any] = {  # of a study's file
    "title?": str,
    "question?": str,
    "preset?": str,
    "metric?": one_of(*get_args(Metric)),
    "settings?": dict,
    "seeds?": (str, [int]),
    "baseline?": str,
    "grid?": Each(list),
    "arms": [ARM],
    "families?": Each(str),
    "hypotheses?": [HYPOTHESIS],
}


@dataclass(frozen=True)
class Hypothesis:
    """A claim about two arms, by their labels. ``difference`` is the smallest of interest, in nats
    per token; families are corrected for their own number of tests. ``metric`` is the study's if
    not given; ``exact:NAME`` is the exact loss on another text."""

    claim: str
    arm: str
    against: str
    direction: Direction = "lower"
    difference: float = 0.0
    family: str = "main"
    metric: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain data; a metric that is the study's is left out, as before there were others."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Study:
    """A study's file, read and checked."""

    path: Path
    text: str = field(repr=False)
    title: str
    question: str
    preset: str
    metric: Metric
    settings: dict[str, Any]
    seeds: Sequence[int]
    baseline: str | None
    arms: Sequence[ArmSpec]
    families: dict[str, str]
    hypotheses: Sequence[Hypothesis]

    def definition(self) -> dict[str, Any]:
        """What the study says, as plain data."""
        return {
            **{name: getattr(self, name) for name in FIXED},
            "seeds": list(self.seeds),
            "arms": [{**arm.entry(), "rule": arm.rule.to_dict()} for arm in self.arms],
            "hypotheses": [each.to_dict() for each in self.hypotheses],
        }


def read_study(path: Path) -> Study:
    """From a TOML file; errors name it."""
    raw = read_file(path, ConfigError, MOST_TOML, missing=f"no study {str(path)!r}")
    try:
        text, data = raw.decode("utf-8-sig"), parse_toml(raw)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a study: {one_line(error):.160}") from None
    try:
        return _study(path, text, data)
    except YuriiError as error:
        raise ConfigError(f"{path}: {error}") from None


def _study(path: Path, text: str, data: Mapping[str, Any]) -> Study:
    _check_form(data)
    preset, metric = data.get("preset", "tales-tiny"), data.get("metric", "final")
    if preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}{did_you_mean(preset, PRESETS)}")
    arms = [arm for entry in data["arms"] for arm in _arms(path, entry, data.get("grid", {}))]
    check_names([arm.entry() for arm in arms])
    labels = [arm.label for arm in arms]
    baseline = data.get("baseline")
    if baseline is not None and baseline not in labels:
        raise ConfigError(f"the baseline {baseline!r} is no arm{_hint(baseline, labels)}")
    families = data.get("families", {})
    entries = enumerate(data.get("hypotheses", []), 1)
    hypotheses = [_hypothesis(number, entry, labels) for number, entry in entries]
    _check_hypotheses(hypotheses, families)
    settings = parse_settings(data.get("settings", {}))
    if metric == "exact":
        settings = {"exact": True, **settings}
    for each in hypotheses:
        _check_metric(each, settings, {arm.label: arm for arm in arms})
    return Study(
        path=path,
        text=text,
        title=data.get("title", path.stem),
        question=data.get("question", ""),
        preset=preset,
        metric=metric,
        settings=settings,
        seeds=_seeds(data.get("seeds", [0])),
        baseline=baseline,
        arms=arms,
        families=families,
        hypotheses=hypotheses,
    )


def _check_form(data: Mapping[str, Any]) -> None:
    """Check that the file has the form of a study, and no key besides."""
    if not data.get("arms"):
        raise ConfigError("it has no arms: [[arms]] with a label and a rule")
    wrong = problem_of(data, FORM)
    if wrong:
        raise ConfigError(wrong)
    parts = [(data, FORM, "the study")]
    parts += [(arm, ARM, "an arm") for arm in data["arms"]]
    parts += [(each, HYPOTHESIS, "a hypothesis") for each in data.get("hypotheses", [])]
    for part, form, what in parts:
        known = [key.removesuffix("?") for key in form]
        for key in part:
            if key not in known:
                raise ConfigError(f"{what} has an unknown key {key!r}{_hint(key, known)}")


def _arms(path: Path, entry: Mapping[str, Any], grid: Mapping[str, Any]) -> Iterator[ArmSpec]:
    """Those of one entry: a rule under a label, or several under their own labels."""
    what = [key for key in ("rule", "rules", "equations") if key in entry]
    name = repr(entry.get("label", entry.get("rules", "")))
    if len(what) != 1:
        raise ConfigError(f"arm {name} needs one of rule, rules and equations")
    if "label" not in entry and what != ["rules"]:
        raise ConfigError(f"an arm has no label ({what[0]} = {str(entry[what[0]])[:40]!r})")
    if "label" in entry and what == ["rules"]:
        raise ConfigError(f"arm {name}: several rules have their own labels; leave label out")
    if what != ["equations"] and ("streams" in entry or "coefficients" in entry):
        raise ConfigError(f"arm {name}: streams and coefficients go with equations")
    settings = parse_settings(entry.get("settings", {}))
    axes = {**grid, **entry.get("grid", {})}
    for rule in _rules(path, entry, what[0]):
        label, folder = entry.get("label", rule.label), slug(entry.get("label", rule.name))
        arm = ArmSpec(label, folder, rule, settings, entry.get("why", ""))
        for point in _points(axes):
            yield vary(arm, point)


def _rules(path: Path, entry: Mapping[str, Any], what: str) -> list[Rule]:
    if what == "equations":
        label = entry["label"]
        kept = ("label", "equations", "streams", "coefficients")
        data = {key: entry[key] for key in kept if key in entry}
        named = {"name": slug(label), "note": entry.get("why", ""), **data}
        return [Rule.from_dict(named, source=f"arm {label!r}")]
    if what == "rule":
        return [get_rule(_found(path, entry["rule"]))]
    if not entry["rules"]:
        raise ConfigError("rules = [] names no rule")
    return [rule for name in entry["rules"] for rule in get_rules(_found(path, name))]


def _found(path: Path, reference: str) -> str:
    """A reference; if it names a file that stands beside the study, with the file's folder."""
    name, ending, _ = reference.partition(".toml")
    beside = path.parent / f"{name}{ending}"
    return str(path.parent / reference) if ending and beside.exists() else reference


def _points(axes: Mapping[str, Any]) -> Iterator[tuple[tuple[str, Any], ...]]:
    """All combinations of a grid's values."""
    for name, values in axes.items():
        if not values:
            raise ConfigError(f"grid: {name} has no values")
    yield from itertools.product(*([(name, v) for v in values] for name, values in axes.items()))


def _seeds(value: Any) -> list[int]:
    if isinstance(value, str):
        return parse_seeds(value)
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"seeds must be a list of different whole numbers, not {value!r:.60}")
    return list(value)


def _hypothesis(number: int, entry: Mapping[str, Any], labels: Sequence[str]) -> Hypothesis:
    what = f"hypothesis {number}"
    if not entry["claim"].strip():
        raise ConfigError(f"{what} has an empty claim")
    for key in ("arm", "against"):
        if entry[key] not in labels:
            raise ConfigError(
                f"{what} ({entry['claim'][:40]!r}) names an unknown arm {entry[key]!r}"
                f"{_hint(entry[key], labels)}"
            )
    if entry["arm"] == entry["against"]:
        raise ConfigError(f"{what} compares {entry['arm']!r} with itself")
    size = float(entry.get("difference", 0.0))
    if not 0 <= size < 1e6:
        raise ConfigError(f"{what}: difference must be a number of nats from 0 on, not {size!r}")
    if entry.get("direction") == "equal" and size == 0:
        raise ConfigError(
            f"{what}: 'equal' needs difference > 0, the largest that still counts as equal"
        )
    return Hypothesis(**{**entry, "difference": size})


def _check_metric(
    hypothesis: Hypothesis, common: Mapping[str, Any], arms: Mapping[str, ArmSpec]
) -> None:
    """Check that both arms of a hypothesis are measured by its own metric."""
    metric = hypothesis.metric
    if metric is None:
        return
    text, known = text_of(metric), get_args(Metric)
    if text is None and metric not in known:
        words = f"{', '.join(known)} or exact:TEXT, with TEXT among the setting 'texts'"
        raise ConfigError(f"the metric {metric!r} of {hypothesis.claim[:40]!r} is not {words}")
    for label in (hypothesis.arm, hypothesis.against):
        own = {**common, **arms[label].settings}
        names = Validation(texts=own.get("texts")).text_names
        if (text is not None and text not in names) or (metric == "exact" and not own.get("exact")):
            lacks = "exact = true" if text is None else f"texts = {text!r}"
            raise ConfigError(
                f"{hypothesis.claim[:40]!r} is about {metric}, but {label!r} has no setting {lacks}"
            )


def _check_hypotheses(hypotheses: Sequence[Hypothesis], families: Mapping[str, str]) -> None:
    """Check that claims are unique and that no family is another one misspelt."""
    claims = [each.claim for each in hypotheses]
    twice = [claim for claim in claims if claims.count(claim) > 1]
    if twice:
        raise ConfigError(f"two hypotheses have the claim {twice[0][:60]!r}")
    named = list(dict.fromkeys(each.family for each in hypotheses))
    if families:
        for name in named:
            if name not in families:
                raise ConfigError(f"unknown family {name!r}{_hint(name, list(families))}")
        return
    for name in named:
        near = did_you_mean(name, [other for other in named if other != name])
        if near:
            raise ConfigError(
                f"family {name!r} looks like another one misspelt{near}. If both are meant, "
                'declare them: [families] with a line NAME = "what it asks" for each'
            )


def _hint(word: object, known: Sequence[str]) -> str:
    return did_you_mean(str(word), known) or f"; there are {', '.join(known)}"


def grown(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What a study's new definition adds to the one that has begun; other changes are errors."""
    for key in FIXED:
        old, now, what = before[key], after[key], key
        if old != now:
            if isinstance(old, dict):  # the entry that differs, not all of them
                name = next(n for n in {**old, **now} if old.get(n, ...) != now.get(n, ...))
                old, now, what = old.get(name), now.get(name), f"{name} in its {key}"
            raise ConfigError(f"{what} changed from {brief(old)} to {brief(now)}")
    added = {}
    for key, title in {"arms": "label", "seeds": None, "hypotheses": "claim"}.items():
        old, now = (
            {each[title] if title else each: each for each in part[key]} for part in (before, after)
        )
        for name, each in old.items():
            if name not in now:
                raise ConfigError(f"{name!r} is gone from its {key}")
            if now[name] != each:
                raise ConfigError(f"{name!r} changed in its {key}")
        added[key] = [each for name, each in now.items() if name not in old]
    return added
