"""A run in an archive: one gzipped JSON file with its config.json and its records.

Every validation is kept. A training curve of more than `MOST` steps is thinned, keeping the steps
of validations; coefficients are kept at `MOMENTS` times at most. Both are halved until the file has
no more than `LARGEST` bytes. Paths on the machine are not kept.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from yuriiformer.display.columns import printable
from yuriiformer.errors import RunError, brief, one_line
from yuriiformer.reading import (
    Each,
    count,
    gunzipped,
    number_or_text,
    object_in,
    plain_text,
    problem_of,
    read_file,
)
from yuriiformer.runs.folder import CONFIG
from yuriiformer.runs.metrics import Curves, without_nan
from yuriiformer.runs.run import SAMPLES_FORM, Run, TaskScore, with_all_fields

ENDING = ".json.gz"
MOST = 2000  # points of a training curve
MOMENTS = 60  # of the coefficients
LARGEST = 100_000  # bytes of a file
SCORE: dict[str, Any] = {
    "task": plain_text,
    "metric": plain_text,
    "value": float,
    "stderr": (float, None),
    "checkpoint": plain_text,
    "items": count,
    "limit": (count, None),
}
NUMBERS = [number_or_text]


def _moment(value: Any) -> None:
    """A form: a step, and the values of coefficients by their name."""
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"must be a step and its values, not {brief(value)}")
    wrong = problem_of(value[0], count, "step") or problem_of(value[1], Each(NUMBERS), "values")
    if wrong:
        raise ValueError(f"is damaged: {wrong}")


def _exact(value: Any) -> None:
    """A form: a step and a loss."""
    if not isinstance(value, list) or len(value) != 2 or problem_of(value[0], count):
        raise ValueError(f"must be a step and a loss, not {brief(value)}")
    number_or_text(value[1])


FORM: dict[str, Any] = {  # of a run's file
    "config": dict,
    "resolved?": dict,
    **{key: form for key, form in CONFIG.items() if key.endswith("?")},
    "data": {f"{key.removesuffix('?')}?": form for key, form in CONFIG["data"].items()},
    "init?": {key: form for key, form in CONFIG["init?"].items() if key != "path"},
    "records": {
        "step": [count],
        "loss": NUMBERS,
        "seconds": NUMBERS,
        "tokens_per_second": NUMBERS,
        "median_tokens_per_second": (float, None),
        "val_step": [count],
        "val_loss": NUMBERS,
        "exact": (None, _exact),
        "texts?": Each(_exact),
        "coefficients": [_moment],
        "coefficients_float32": bool,
    },
    "failure": (str, None),
    "scores": [SCORE],
    "samples": (SAMPLES_FORM, None),
}
# Of config.json; where things lay on the machine is left out.
KEPT = ("format", "config", "data", "init", "resolved", "plan", "versions", "changes")
PLACES = {"data": "folder", "init": "path"}


def pack_run(run: Run) -> bytes:
    """The content of a run's file: the same bytes for the same run."""
    for share in (1, 2, 4, 8):
        content = _content(run, MOST // share, MOMENTS // share)
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        packed = gzip.compress(text.encode(), mtime=0)
        if len(packed) <= LARGEST:
            break
    return packed


def read_packed(path: Path) -> Run:
    """A run from its file; an error names a damaged one."""
    return unpack_run(read_file(path, RunError), path)


def unpack_run(packed: bytes, path: Path) -> Run:
    try:
        raw = gunzipped(packed)
    except (EOFError, ValueError, zlib.error) as error:
        raise RunError(f"{path} is damaged: {one_line(error):.120}") from None
    data = object_in(raw, path, FORM, RunError)
    records = data["records"]
    for names in (("step", "loss", "seconds", "tokens_per_second"), ("val_step", "val_loss")):
        if len({len(records[name]) for name in names}) > 1:
            raise RunError(f"{path} is damaged: its records are of unequal lengths")
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
        texts={name: (int(e[0]), float(e[1])) for name, e in records.get("texts", {}).items()},
    )
    scores = [TaskScore(**{name: each[name] for name in SCORE}) for each in data["scores"]]
    return Run(
        path,
        with_all_fields(saved, path),
        curves,
        None if data["failure"] is None else printable(data["failure"]),
        {score.task: score for score in scores},
        data["samples"],
    )


def _content(run: Run, most: int, times: int) -> dict[str, Any]:
    """A run as plain data, with so many points of its curve and times of its coefficients."""
    saved = {key: run.saved[key] for key in KEPT if key in run.saved}
    for part, place in PLACES.items():
        if part in saved:
            saved[part] = {key: value for key, value in saved[part].items() if key != place}
    curves = run.curves
    kept = _kept(curves, most)
    moments = curves.coefficients
    chosen = np.unique(np.linspace(0, max(len(moments) - 1, 0), times).astype(int))
    records = {
        "step": curves.step[kept].tolist(),
        "loss": _texts(curves.loss[kept]),
        "seconds": _texts(curves.seconds[kept]),
        "tokens_per_second": _texts(curves.speed[kept]),
        "median_tokens_per_second": curves.median_speed,
        "val_step": curves.val_step.tolist(),
        "val_loss": _texts(curves.val_loss),
        "exact": None if curves.exact is None else [curves.exact[0], *_texts([curves.exact[1]])],
        **_coefficients([moments[i] for i in chosen if i < len(moments)]),
    }
    if curves.texts:  # only then: archives of other runs stay as they are
        texts = curves.texts.items()
        records["texts"] = {name: [step, *_texts([loss])] for name, (step, loss) in texts}
    return {
        **saved,
        "records": records,
        "failure": run.failure,
        "scores": [asdict(score) for score in run.scores.values()],
        "samples": run.samples,
    }


def _kept(curves: Curves, most: int) -> Any:
    """Which training records are kept: all, or every n-th and those of validations."""
    count = len(curves.step)
    if count <= most:
        return np.arange(count)
    chosen = np.zeros(count, dtype=bool)
    chosen[:: -(-count // (most // 2))] = True
    chosen[-1] = True
    chosen |= np.isin(curves.step, curves.val_step)
    return np.flatnonzero(chosen)


def _texts(values: Any) -> list[Any]:
    found: list[Any] = without_nan([float(value) for value in values])
    return found


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
