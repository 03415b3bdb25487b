"""The results of a suite: its definition and its runs, from its folder or from an archive.

An archive keeps them without the runs: small, plain, checksummed.

    archive.json              what was compared, the study and its history, the runs and their sums
    runs/ARM/seed-0.json.gz   one run: its config.json, validations, training curve, coefficients

A run that has not finished is left for later. Paths on the machine are not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from yuriiformer.comparison.archived_run import ENDING, pack_run, read_packed, unpack_run
from yuriiformer.comparison.definition import DEFINITION, RunSpec
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.hypotheses import StudyRecord
from yuriiformer.comparison.study import grown
from yuriiformer.errors import ConfigError, RunError
from yuriiformer.files import write_bytes, write_json, write_text
from yuriiformer.reading import Each, file_name, object_in, plain_text, read_file
from yuriiformer.runs.run import Run, read_run

FORMAT = 1
ARCHIVE = "archive.json"
ZEROS = "0" * 64
RUN: dict[str, Any] = {
    "label": plain_text,
    "slug": file_name,
    "seed": int,
    "finished": bool,
    "missing": str,
    "file": (str, None),
    "sha256": (str, None),
}
FORM: dict[str, Any] = {
    "sha256": str,
    "format": int,
    "definition": {**DEFINITION, "baseline": (str, None)},
    "runs": Each(RUN),
}
LATER = "had not finished when it was archived"


@dataclass(frozen=True)
class Entry:
    """A run of the suite; ``missing`` is the reason if there is none yet."""

    label: str
    slug: str
    seed: int
    run: Run | None
    missing: str = ""

    @property
    def name(self) -> str:
        return f"{self.slug}/seed-{self.seed}"


@dataclass(frozen=True)
class SuiteRecord:
    """``definition`` is what ``suite.json`` holds."""

    folder: Path
    definition: Mapping[str, Any]
    entries: Sequence[Entry]

    @property
    def study(self) -> StudyRecord | None:
        saved = self.definition.get("study")
        return None if saved is None else StudyRecord(saved["definition"], saved["history"])


def read_suite(suite: SuiteFolder) -> SuiteRecord:
    """From its folder."""
    definition, failures = suite.read(), suite.failures()
    entries = []
    for spec in suite.runs():
        failure = failures.get(spec.name)
        if spec.folder.exists:
            run = read_run(spec.folder.path, failure)
            entries.append(Entry(spec.label, spec.slug, spec.seed, run))
        elif spec.archived.exists():
            run = read_packed(spec.archived)
            entries.append(Entry(spec.label, spec.slug, spec.seed, run))
        else:
            missing = f"failed before its first step: {failure}" if failure else "has not begun"
            entries.append(Entry(spec.label, spec.slug, spec.seed, None, missing))
    return SuiteRecord(suite.path, definition, entries)


@dataclass(frozen=True)
class Archived:
    """The number of runs that were added (or whose new scores or samples were), that were there
    already, and that are left for later."""

    added: int
    known: int
    left: int


def is_archive(folder: Path) -> bool:
    return (folder / ARCHIVE).is_file()


def write_archive(record: SuiteRecord, folder: Path) -> Archived:
    """Archive a suite, or add its new runs to an archive of the same study."""
    if not is_archive(folder) and folder.exists() and (folder.is_file() or any(folder.iterdir())):
        raise RunError(f"{folder} holds something else than an archive: choose another folder")
    old = _load(folder) if is_archive(folder) else None
    definition = _definition(record)
    if old is not None:
        definition = _merged(folder, old["definition"], definition)
    listed: dict[str, dict[str, Any]] = {} if old is None else dict(old["runs"])
    added = known = left = 0
    for entry in record.entries:
        before = listed.get(entry.name)
        if entry.run is None or entry.run.status == "unfinished":
            left += before is None or not before["finished"]
            if before is None:
                missing = entry.missing if entry.run is None else LATER
                listed[entry.name] = _listed(entry, missing=missing)
            continue
        run: Run | None = entry.run
        if before is not None and before["finished"]:
            run = _news(folder, before, entry, entry.run)
        if run is None:
            known += 1
        else:
            added += 1
            listed[entry.name] = _store(folder, entry, run)
    for name, each in listed.items():
        if each["file"] is not None:
            _bytes(folder, name, each)  # also checks the runs that were there before
    folder.mkdir(parents=True, exist_ok=True)
    _save(folder, {"format": FORMAT, "definition": definition, "runs": listed})
    return Archived(added, known, left)


def read_archive(folder: Path) -> SuiteRecord:
    """The content of an archive; an error names a damaged file."""
    content = _load(folder)
    entries = []
    for name, each in content["runs"].items():
        run = None if each["file"] is None else _run(folder, name, each)
        entries.append(Entry(each["label"], each["slug"], each["seed"], run, each["missing"]))
    return SuiteRecord(folder, content["definition"], entries)


def begin_from_archive(suite: SuiteFolder, folder: Path, data: Mapping[str, Any]) -> None:
    """Begin a suite with the finished runs of an archive; they are not run again. ``suite.json``
    is written last, so that an interrupted beginning can be repeated."""
    content = _load(folder)
    definition = content["definition"]
    for key, value in definition["data"].items():
        if data.get(key) != value:
            raise RunError(f"{folder} has runs on other data ({key} differs): choose other --data")
    for name, each in content["runs"].items():
        if each["finished"]:
            run = _run(folder, name, each)
            spec = RunSpec(each["slug"], each["label"], each["seed"], suite.path, 0)
            for path in (spec.archived, spec.config_file):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(spec.archived, _bytes(folder, name, each))
            write_json(spec.config_file, run.config.to_dict())
    write_json(suite.file, {**definition, "data": dict(data), "commands": []})


def _save(folder: Path, content: Mapping[str, Any]) -> None:
    """With the checksum of the file, computed with zeros in place of the checksum."""
    blank = json.dumps({"sha256": ZEROS, **content}, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / ARCHIVE, blank.replace(ZEROS, _sum(blank.encode()), 1))


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _load(folder: Path) -> dict[str, Any]:
    path = folder / ARCHIVE
    raw = read_file(path, RunError)
    data = object_in(raw, path, FORM, RunError, FORMAT)
    told = data.pop("sha256")
    if not told or _sum(raw.replace(told.encode(), ZEROS.encode(), 1)) != told:
        raise RunError(f"{path} is damaged: its checksum does not fit")
    for name, each in data["runs"].items():
        _check_place(path, name, each)
    return data


def _check_place(path: Path, name: str, listed: Mapping[str, Any]) -> None:
    """Check that a run's file is where its name says, and not elsewhere on the machine."""
    own = f"{listed['slug']}/seed-{listed['seed']}"
    if name != own or listed["file"] not in (None, f"runs/{own}{ENDING}"):
        raise RunError(f"{path} is damaged: {name!r:.60} would be read or written elsewhere")


def _definition(record: SuiteRecord) -> dict[str, Any]:
    """The suite's definition without paths and commands of this machine."""
    places = ("commands", "init_from")
    kept = {key: value for key, value in record.definition.items() if key not in places}
    data = {key: value for key, value in kept["data"].items() if key != "folder"}
    return {**kept, "data": data}


def _merged(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The definition of both; refuses what is not the same study on the same data."""
    for key in ("preset", "data"):
        if old[key] != new[key]:
            raise RunError(f"{folder} is an archive of other runs ({key} differs): choose another")
    arms = {arm["slug"]: arm for arm in old["arms"]}
    for arm in new["arms"]:
        if arms.setdefault(arm["slug"], arm) != arm:
            raise RunError(f"{folder} has another arm {arm['label']!r}: choose another folder")
    merged = {
        **old,
        "arms": list(arms.values()),
        "seeds": sorted({*old["seeds"], *new["seeds"]}),
        "baseline": old["baseline"] or new["baseline"],
    }
    studies = [each.get("study") for each in (old, new)]
    if studies == [None, None]:
        return merged
    if None in studies:
        raise RunError(f"{folder} and the suite are not of one study: choose another folder")
    return {**merged, "study": _merged_study(folder, studies[0], studies[1])}


def _merged_study(folder: Path, old: Any, new: Any) -> dict[str, Any]:
    """The later of two states of one study, with the history of both."""
    for before, after in ((old, new), (new, old)):
        try:
            grown(before["definition"], after["definition"])
        except ConfigError as error:
            problem = error
            continue
        known = [(entry["text"], entry["finished"]) for entry in old["history"]]
        more = [e for e in new["history"] if (e["text"], e["finished"]) not in known]
        return {"definition": after["definition"], "history": [*old["history"], *more]}
    raise RunError(f"{folder} is an archive of another study: {problem}")


def _listed(entry: Entry, *, missing: str = "") -> dict[str, Any]:
    return {
        "label": entry.label,
        "slug": entry.slug,
        "seed": entry.seed,
        "finished": False,
        "missing": missing,
        "file": None,
        "sha256": None,
    }


def _store(folder: Path, entry: Entry, run: Run) -> dict[str, Any]:
    """Write a run's file; its line in the archive."""
    data = pack_run(run)
    path = Path("runs") / f"{entry.name}{ENDING}"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / path, data)
    return {
        **_listed(entry),
        "finished": run.finished,
        "file": path.as_posix(),
        "sha256": _sum(data),
    }


def _news(folder: Path, listed: Mapping[str, Any], entry: Entry, run: Run) -> Run | None:
    """What to keep of a run that the archive has: with the scores and samples that came since, or
    None if none did. A different run of the same name is an error; a damaged one is written
    again."""
    try:
        old = _run(folder, entry.name, listed)
    except RunError:
        return run
    if not np.array_equal(old.curves.val_loss, run.curves.val_loss, equal_nan=True):
        raise RunError(
            f"{folder} has another run of {entry.label!r}, seed {entry.seed}: its losses differ. "
            "Archive this suite elsewhere"
        )
    scores, samples = {**old.scores, **run.scores}, run.samples or old.samples
    if (scores, samples) == (old.scores, old.samples):
        return None
    return replace(old, scores=scores, samples=samples)


def _bytes(folder: Path, name: str, listed: Mapping[str, Any]) -> bytes:
    """A run's file, whole."""
    path = folder / str(listed["file"])
    data = read_file(path, RunError)
    if _sum(data) != listed["sha256"]:
        raise RunError(f"{path} is damaged: its checksum does not fit; it holds {name}")
    return data


def _run(folder: Path, name: str, listed: Mapping[str, Any]) -> Run:
    return unpack_run(_bytes(folder, name, listed), folder / listed["file"])
