"""An archive keeps the results of a suite without its runs: small, plain, checksummed.

    archive.json              what was compared, the study and its history, the runs and their sums
    runs/ARM/seed-0.json.gz   one run: its config.json, validations, training curve, coefficients

Every validation is kept. A training curve of more than `MOST` steps is thinned, keeping the steps
of validations; coefficients are kept at `MOMENTS` times at most. Paths on the machine are
not kept, and a run that has not finished is left for later.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from yuriiformer.comparison.record import Entry, SuiteRecord
from yuriiformer.comparison.study import grown
from yuriiformer.errors import ConfigError, RunError
from yuriiformer.files import write_bytes, write_text
from yuriiformer.runs.metrics import Curves
from yuriiformer.runs.run import Run, TaskScore, with_all_fields

FORMAT = 1
ARCHIVE = "archive.json"
ZEROS = "0" * 64
MOST = 2000  # points of a training curve
MOMENTS = 60  # of the coefficients
LATER = "had not finished when it was archived"
KEPT = ("format", "config", "data", "resolved", "plan", "versions", "changes")  # of config.json


@dataclass(frozen=True)
class Archived:
    """The number of runs that were added, that were there already, and that are left for later."""

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
            left += 1
            if before is None:
                missing = entry.missing if entry.run is None else LATER
                listed[entry.name] = _listed(entry, missing=missing)
        elif before is not None and before["finished"] and _same(folder, before, entry):
            known += 1
        else:
            added += 1
            listed[entry.name] = _store(folder, entry, entry.run)
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


def _save(folder: Path, content: Mapping[str, Any]) -> None:
    """With the checksum of the file, computed with zeros in place of the checksum."""
    blank = json.dumps({"sha256": ZEROS, **content}, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / ARCHIVE, blank.replace(ZEROS, _sum(blank.encode()), 1))


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _load(folder: Path) -> dict[str, Any]:
    path = folder / ARCHIVE
    try:
        raw = path.read_bytes()
        data = json.loads(raw)
        told = str(data.pop("sha256"))
        if _sum(raw.replace(told.encode(), ZEROS.encode(), 1)) != told:
            raise RunError(f"{path} is damaged: its checksum does not fit")
        if data["format"] != FORMAT:
            raise RunError(f"{path} has format {data['format']!r}; this version reads {FORMAT}")
    except RunError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error!r:.80}") from None
    return dict(data)


def _definition(record: SuiteRecord) -> dict[str, Any]:
    """The suite's definition without paths and commands of this machine."""
    kept = {key: value for key, value in record.definition.items() if key != "commands"}
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
    text = json.dumps(_content(run), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    data = gzip.compress(text.encode(), mtime=0)
    path = Path("runs") / f"{entry.name}.json.gz"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / path, data)
    return {
        **_listed(entry),
        "finished": run.finished,
        "file": path.as_posix(),
        "sha256": _sum(data),
    }


def _same(folder: Path, listed: Mapping[str, Any], entry: Entry) -> bool:
    """Whether the archive has this run. A different run of the same name is an error; a damaged one
    is written again."""
    try:
        old = _run(folder, entry.name, listed)
    except RunError:
        return False
    assert entry.run is not None
    if not np.array_equal(old.curves.val_loss, entry.run.curves.val_loss, equal_nan=True):
        raise RunError(
            f"{folder} has another run of {entry.label!r}, seed {entry.seed}: its losses differ. "
            "Archive this suite elsewhere"
        )
    return True


def _content(run: Run) -> dict[str, Any]:
    """A run as plain data."""
    saved = {key: run.saved[key] for key in KEPT if key in run.saved}
    saved["data"] = {key: value for key, value in saved["data"].items() if key != "folder"}
    curves = run.curves
    kept = _kept(curves)
    moments = _moments(len(curves.coefficients))
    records = {
        "step": curves.step[kept].tolist(),
        "loss": _texts(curves.loss[kept]),
        "seconds": _texts(curves.seconds[kept]),
        "tokens_per_second": _texts(curves.speed[kept]),
        "median_tokens_per_second": curves.median_speed,
        "val_step": curves.val_step.tolist(),
        "val_loss": _texts(curves.val_loss),
        "exact": None if curves.exact is None else [curves.exact[0], *_texts([curves.exact[1]])],
        **_coefficients([curves.coefficients[i] for i in moments]),
    }
    return {
        **saved,
        "records": records,
        "failure": run.failure,
        "scores": [asdict(score) for score in run.scores.values()],
        "samples": run.samples,
    }


def _kept(curves: Curves) -> Any:
    """Which training records are kept: all, or every n-th and those of validations."""
    count = len(curves.step)
    if count <= MOST:
        return np.arange(count)
    chosen = np.zeros(count, dtype=bool)
    chosen[:: -(-count // (MOST // 2))] = True
    chosen[-1] = True
    chosen |= np.isin(curves.step, curves.val_step)
    return np.flatnonzero(chosen)


def _moments(count: int) -> list[int]:
    chosen = np.unique(np.linspace(0, max(count - 1, 0), MOMENTS).astype(int))
    return [int(i) for i in chosen if i < count]


def _texts(values: Any) -> list[Any]:
    """JSON has no NaN and no infinity: they are text."""
    return [float(v) if math.isfinite(v) else str(float(v)) for v in values]


Moments = Sequence[tuple[int, Mapping[str, Sequence[float]]]]


def _coefficients(moments: Moments) -> dict[str, Any]:
    """Nine digits are enough for float32 numbers, which coefficients are."""
    numbers = np.array([v for _, values in moments for layers in values.values() for v in layers])
    single = bool(np.array_equal(numbers.astype(np.float32), numbers, equal_nan=True))

    def kept(layers: Sequence[float]) -> list[Any]:
        return _texts(float(f"{v:.9g}") if single else v for v in layers)

    found = [(step, {name: kept(own) for name, own in each.items()}) for step, each in moments]
    return {"coefficients": found, "coefficients_float32": single}


def _restored(records: Mapping[str, Any]) -> list[tuple[int, dict[str, list[float]]]]:
    kind = np.float32 if records["coefficients_float32"] else np.float64

    def restored(layers: Sequence[Any]) -> list[float]:
        return list(np.array([float(v) for v in layers], dtype=kind).tolist())

    return [
        (step, {name: restored(layers) for name, layers in values.items()})
        for step, values in records["coefficients"]
    ]


def _bytes(folder: Path, name: str, listed: Mapping[str, Any]) -> bytes:
    """A run's file, whole."""
    path = folder / str(listed["file"])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}; it holds {name}") from None
    if _sum(data) != listed["sha256"]:
        raise RunError(f"{path} is damaged: its checksum does not fit; it holds {name}")
    return data


def _run(folder: Path, name: str, listed: Mapping[str, Any]) -> Run:
    path = folder / listed["file"]
    data = json.loads(gzip.decompress(_bytes(folder, name, listed)))
    records = data["records"]
    saved = {key: data[key] for key in KEPT if key in data}
    names = ("loss", "seconds", "tokens_per_second", "val_loss")
    columns = {name: np.array([float(v) for v in records[name]]) for name in names}
    exact = records["exact"]
    curves = Curves(
        step=np.array(records["step"], dtype=np.int64),
        loss=columns["loss"],
        seconds=columns["seconds"],
        speed=columns["tokens_per_second"],
        val_step=np.array(records["val_step"], dtype=np.int64),
        val_loss=columns["val_loss"],
        exact=None if exact is None else (int(exact[0]), float(exact[1])),
        median_speed=records["median_tokens_per_second"],
        coefficients=_restored(records),
    )
    scores = [TaskScore(**each) for each in data["scores"]]
    return Run(
        path,
        with_all_fields(saved, path),
        curves,
        data["failure"],
        {score.task: score for score in scores},
        data["samples"],
    )
