"""Runs found in folders, grouped into arms: by a suite's definition, or by their configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yuriiformer.comparison.archive import SuiteRecord, is_archive, read_archive, read_suite
from yuriiformer.comparison.arms import slug
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.hypotheses import StudyRecord
from yuriiformer.comparison.outcomes import (
    IDENTITY,
    Arm,
    Comparison,
    compare_arms,
    data_of,
    find_baseline,
    numbers_of,
)
from yuriiformer.comparison.paper import paper_preset
from yuriiformer.errors import RunError
from yuriiformer.files import read_json, sha256_of_json
from yuriiformer.methods.catalog import rules
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.run import Run, read_run

DEPTH = 4  # folders below the one that is named
NAMED = 5  # of what is left out
BEGUN = "from a trained model"


@dataclass
class Found:
    """A group of arms before the comparison."""

    preset: str | None
    arms: dict[str, Arm] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    baseline: str | None = None
    study: StudyRecord | None = None
    left_out: list[str] = field(default_factory=list)  # runs that are there twice

    @property
    def runs(self) -> list[Run]:
        return [run for arm in self.arms.values() for run in arm.runs]

    def add(self, label: str, name: str, run: Run) -> None:
        arm = self.arms.setdefault(name, Arm(label, name, []))
        for place, other in enumerate(arm.runs):
            if experiment(other) != experiment(run):
                raise RunError(
                    f"{other.folder} and {run.folder} are both called {label!r} but have different "
                    "configurations: compare them in suites with different labels"
                )
            if other.seed == run.seed:  # the run with more steps counts, else the first
                kept, left = (run, other) if run.step > other.step else (other, run)
                arm.runs[place] = kept
                self.left_out.append(f"{left.folder} (the same run as {kept.folder})")
                return
        arm.runs.append(run)


def collect(
    folders: Sequence[Path], baseline: str | None = None, *, apart: bool = False
) -> list[Comparison]:
    """The comparisons in folders: one per preset of suites, and one of all single runs. Kept
    ``apart``, they may be on different data, and single runs are grouped by the paper's settings.
    """
    groups: dict[str | None, Found] = {}
    loose: dict[Path, Run] = {}
    left_out: list[str] = []
    seen: set[Path] = set()
    for place in [place for folder in folders for place in _places(folder, left_out)]:
        path = place.folder if isinstance(place, SuiteRecord) else place.path
        if path.resolve() in seen:
            left_out.append(f"{path} (named twice)")
        elif isinstance(place, SuiteRecord):
            _add_suite(groups, place, apart)
        else:
            loose[path.resolve()] = read_run(path)
        seen.add(path.resolve())
    in_suites = {run.folder.resolve() for group in groups.values() for run in group.runs}
    left_out += [f"{loose[path].folder} (named twice)" for path in loose if path in in_suites]
    alone = [run for path, run in loose.items() if path not in in_suites]
    parts: dict[Any, list[Run]] = {}
    for run in alone:
        setting = paper_preset(run.config) if apart else None
        parts.setdefault((setting, data_of(run) if apart else None), []).append(run)
    for (setting, _), some in parts.items():
        groups[_free(groups, setting, "single runs")] = _loose(some)
    full = [(name, group) for name, group in groups.items() if group.arms]
    if not full:
        raise RunError(f"no run has begun in {', '.join(map(str, folders))}")
    compared = [group.runs for _, group in full]
    for runs in compared if apart else [[run for part in compared for run in part]]:
        _check_comparable(runs)
    left_out += [text for _, group in full for text in group.left_out]
    full[0][1].remarks += _left_out_text(left_out)
    return [_comparison(name, group, baseline, len(groups)) for name, group in full]


def _left_out_text(names: Sequence[str]) -> list[str]:
    """One remark on all that is not in the report."""
    if not names:
        return []
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return [f"Left out: {', '.join(names[:NAMED])}{more}."]


def _places(folder: Path, left_out: list[str]) -> list[RunFolder | SuiteRecord]:
    """The suites, archives and runs in a folder: itself, or what is below it. Models beside them
    are left out."""
    if not folder.is_dir():
        raise RunError(f"no folder {str(folder)!r}")
    models: list[Path] = []
    found = list(_walk(folder, DEPTH, models))
    if models == [folder]:
        raise RunError(f"{str(folder)!r} is a model, not a run: it has no losses to report")
    names = [f"{each} (a model, not a run)" for each in models]
    if not found:
        raise RunError(
            f"nothing to report in {str(folder)!r}: it holds no run (a folder with config.json), "
            "no suite (suite.json) and no archive (archive.json)"
            + "".join(f". {text}" for text in _left_out_text(names))
        )
    left_out += [name for name in names if name not in left_out]
    return found


def _walk(folder: Path, depth: int, models: list[Path]) -> Iterator[RunFolder | SuiteRecord]:
    if SuiteFolder(folder).exists:
        yield read_suite(SuiteFolder(folder))
    elif is_archive(folder):
        yield read_archive(folder)
    elif _is_model(folder):
        models.append(folder)
    elif RunFolder(folder).exists:
        yield RunFolder(folder)
    elif depth:
        for below in sorted(folder.iterdir()):
            if below.is_dir() and not below.is_symlink():
                yield from _walk(below, depth - 1, models)


def _is_model(folder: Path) -> bool:
    """A model folder, or one of Hugging Face, whose ``config.json`` is not that of a run."""
    if not RunFolder(folder).exists:
        return (folder / "model.safetensors").is_file()
    return "model_type" in read_json(RunFolder(folder).config_file)


def _free(groups: dict[str | None, Found], name: str | None, words: str) -> str | None:
    """A name that no group has yet: the preset's, or with words after it."""
    if name not in groups:
        return name
    names = [f"{name or 'runs'}, {words}", *(f"{name}, {words} {n}" for n in range(2, 999))]
    return next(each for each in names if each not in groups)


def _group_of(groups: dict[str | None, Found], suite: SuiteRecord, apart: bool) -> Found:
    """The group of the suite's preset; kept apart, a group for each data that the preset is run
    on."""
    preset = suite.definition["preset"]
    own = [data_of(each.run) for each in suite.entries if each.run is not None]
    for group in groups.values():
        same = not (apart and own and group.runs) or data_of(group.runs[0]) == own[0]
        if group.preset == preset and same:
            return group
    return groups.setdefault(_free(groups, preset, suite.folder.resolve().name), Found(preset))


def _add_suite(groups: dict[str | None, Found], suite: SuiteRecord, apart: bool) -> None:
    group = _group_of(groups, suite, apart)
    group.baseline = group.baseline or suite.definition.get("baseline")
    if suite.study is not None:
        if group.study is not None and group.study != suite.study:
            raise RunError(
                f"{suite.folder} carries out another study ({suite.study.title!r}) than "
                f"{group.study.title!r}: report them apart"
            )
        group.study = suite.study
        group.remarks += [text for text in suite.study.remarks() if text not in group.remarks]
    for each in suite.entries:
        if each.run is not None:
            group.add(each.label, each.slug, each.run)
        else:
            group.remarks.append(f"{each.label}, seed {each.seed} {each.missing}.")


def _loose(runs: Sequence[Run]) -> Found:
    """Arms are runs that differ in their seed alone; labels say what else differs."""
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        kinds.setdefault(experiment(run), []).append(run)
    group = Found(None)
    order = {name: number for number, name in enumerate(rules)}
    for same in sorted(kinds.values(), key=lambda same: order.get(same[0].rule.name, len(order))):
        first = same[0]
        alike = [each[0] for each in kinds.values() if each[0].rule.name == first.rule.name]
        words = [f"{name}={numbers_of(first.config).get(name)}" for name in _varied(alike)]
        if len({each.from_model for each in alike}) > 1 and first.from_model:
            words.append(BEGUN)
        label = ", ".join([first.rule.label, *words])
        for run in same:
            group.add(label, slug(",".join([first.rule.name, *words])), run)
    return group


def _varied(runs: Sequence[Run]) -> list[str]:
    """The fields in which runs of one rule differ."""
    parts = [numbers_of(run.config) for run in runs]
    names = dict.fromkeys(name for part in parts for name in part)
    return [name for name in names if any(part.get(name) != parts[0].get(name) for part in parts)]


def experiment(run: Run) -> str:
    """A hash of what all runs of one arm have in common. Random weights and a trained model's (of
    each seed its own, perhaps) are two experiments."""
    begun = {"begun": BEGUN} if run.from_model else {}
    return sha256_of_json({"rule": run.rule.to_dict(), **numbers_of(run.config), **begun})


def _check_comparable(runs: Sequence[Run]) -> None:
    """Check that all runs have the same data and the same validation sequences."""
    first, problem = runs[0], "their losses cannot be compared. Report them apart"
    for run in runs[1:]:
        both = f"{first.folder} and {run.folder} were"
        for key in IDENTITY:
            one, two = (each.data.get(key) for each in (first, run))
            if one != two:
                words = f"{key} {_short(one)} and {_short(two)}"
                raise RunError(f"{both} trained on different data ({words}): {problem}")
        one, two = (each.data.get("texts", {}) for each in (first, run))
        for name in one.keys() & two.keys():
            if one[name] != two[name]:
                raise RunError(f"{both} evaluated on other texts called {name!r}: {problem}")
        for key in ("eval_sequences", "eval_blocks"):
            one, two = (getattr(each.config.validation, key) for each in (first, run))
            if one != two:
                words = f"{key} {one} and {two}"
                raise RunError(f"{both} validated on other sequences ({words}): {problem}")


def _short(value: Any) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 12 else str(value)


def _comparison(name: str | None, group: Found, baseline: str | None, groups: int) -> Comparison:
    found = group.arms.values()
    arms = [Arm(arm.label, arm.slug, sorted(arm.runs, key=lambda run: run.seed)) for arm in found]
    wanted = baseline or group.baseline
    preset = paper_preset(find_baseline(arms, wanted).first.config)
    title = (name or "runs") if groups > 1 else ""
    return compare_arms(
        arms, name=title, baseline=wanted, preset=preset, remarks=group.remarks, study=group.study
    )
