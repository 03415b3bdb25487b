"""Which tasks are asked for, and HellaSwag and ARC-Easy from local files.

A task is named as the harness names it, with ``@N`` for N examples before each question:
``arc_easy@25``; without it, as many as the task's own definition says (mostly none). ``paper`` are
the four of the paper.

Local files replace those of the hub in the harness's own definitions, so prompts and scores are the
harness's. Examples come from the train file, as there; without one, from the validation file, but
never the item that is scored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from yuriiformer.errors import ConfigError, DataError
from yuriiformer.files import sha256

BATCH_TOKENS = 4096  # of the texts of a task; 8192 took 15 % longer on two cores at d 384
PAPER_TASKS = {  # the harness's names with their numbers of examples, and the paper's words
    "hellaswag@10": "HellaSwag 10-shot",
    "arc_easy@25": "ARC-Easy 25-shot",
    "hellaswag@0": "HellaSwag 0-shot",
    "arc_easy@0": "ARC-Easy 0-shot",
}


@dataclass(frozen=True)
class TaskSpec:
    """A task and how many examples it shows; None: as its definition says."""

    name: str
    shots: int | None = None

    def __str__(self) -> str:
        return self.name if self.shots is None else f"{self.name}@{self.shots}"


def parse_tasks(words: Iterable[str]) -> list[TaskSpec]:
    """``paper``, ``NAME`` or ``NAME@SHOTS``, each also several with commas; none twice."""
    parts = [part for word in words for part in word.split(",") if part]
    whole = [each for part in parts for each in (PAPER_TASKS if part == "paper" else (part,))]
    found = []
    for word in whole:
        name, at, shots = word.partition("@")
        if not name or (at and not (shots.isascii() and shots.isdigit())):
            raise ConfigError(
                f"{word!r} is no task: write NAME, or NAME@N for N examples, such as arc_easy@25"
            )
        found.append(TaskSpec(name, int(shots) if at else None))
    if not found:
        raise ConfigError("no task is named: give 'paper', or a task such as hellaswag@10")
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Layout:
    """Where a task's local files stand, by split, and which fields of a line the task reads."""

    definition: str  # in the harness's folder of tasks
    files: dict[str, str]
    scored: str
    fields: dict[str, type | tuple[type, ...]]


LAYOUTS = {
    "hellaswag": Layout(
        "hellaswag/hellaswag.yaml",
        {"train": "hellaswag/hellaswag_train.jsonl", "validation": "hellaswag/hellaswag_val.jsonl"},
        "validation",
        {"activity_label": str, "ctx_a": str, "ctx_b": str, "endings": list, "label": (int, str)},
    ),
    "arc_easy": Layout(
        "arc/arc_easy.yaml",
        {
            "train": "arc_easy/ARC-Easy-train.jsonl",
            "validation": "arc_easy/ARC-Easy-validation.jsonl",
            "test": "arc_easy/ARC-Easy-test.jsonl",
        },
        "test",
        {"question": str, "choices": dict, "answerKey": str},
    ),
}


@dataclass(frozen=True)
class LocalTask:
    """A task's local files: the one that is scored, and the one that examples are taken from."""

    spec: TaskSpec
    layout: Layout
    scored: Path
    examples: Path
    examples_split: str

    @property
    def source(self) -> str:
        """The source of its examples, as text."""
        if not self.spec.shots:
            return "none"
        own = ", the scored item left out" if self.examples == self.scored else ""
        return f"{self.examples.name} ({self.examples_split} split{own})"

    def hashes(self) -> dict[str, str]:
        used = [self.scored, *([self.examples] if self.spec.shots else [])]
        return {path.name: sha256(path) for path in used}

    def config(self) -> dict[str, Any]:
        """The harness's definition of the task, with these files as its dataset."""
        from lm_eval import tasks  # noqa: PLC0415
        from lm_eval.tasks._yaml_loader import load_yaml  # noqa: PLC0415  there is no public one

        definition = load_yaml(
            Path(tasks.__file__).parent / self.layout.definition, resolve_func=True
        )
        config = {**definition, "dataset_path": "json", "custom_dataset": self._dataset}
        if "process_docs" in config:  # the harness would process all items five times over
            config["process_docs"] = cache(config["process_docs"])
        if self.examples_split != "train":
            config |= {"training_split": None, "fewshot_split": self.examples_split}
        if self.examples == self.scored:
            # The harness leaves out the scored item only if examples come from the test split.
            config["test_split"] = self.layout.scored
        return config

    def _dataset(self, **_: Any) -> Any:
        """In memory: no loader, so no network and no cache of converted files."""
        from datasets import Dataset, DatasetDict  # noqa: PLC0415

        parts = {self.layout.scored: self.scored, self.examples_split: self.examples}
        return DatasetDict(
            {
                split: Dataset.from_list(read_items(path, self.layout.fields))
                for split, path in parts.items()
            }
        )


def local_task(spec: TaskSpec, folder: Path) -> LocalTask:
    """The task from the files in a folder that is laid out as ``docs`` say."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} (--tasks-data)")
    if spec.name not in LAYOUTS:
        raise DataError(
            f"--tasks-data has no place for task {spec.name!r}, only for {' and '.join(LAYOUTS)}: "
            "run it without --tasks-data, from the hub"
        )
    layout = LAYOUTS[spec.name]
    files = {split: folder / name for split, name in layout.files.items()}
    scored = files[layout.scored]
    if not scored.is_file():
        raise DataError(f"{scored} is missing: task {spec.name!r} is scored on it")
    for split in ("train", "validation"):
        if files[split].is_file():
            return LocalTask(spec, layout, scored, files[split], split)
    if spec.shots:
        raise DataError(f"{files['train']} is missing: examples for {spec} come from it")
    return LocalTask(spec, layout, scored, scored, layout.scored)


def read_items(path: Path, fields: dict[str, type | tuple[type, ...]]) -> list[dict[str, Any]]:
    """Lines of JSON, the fields that are needed."""
    items = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    items.append(_item(line, fields, f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from None
    if not items:
        raise DataError(f"{path} has no items")
    return items


def _item(line: str, fields: dict[str, type | tuple[type, ...]], place: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError:
        raise DataError(f"{place} is not JSON") from None
    for name, kind in fields.items():
        if not isinstance(data, dict) or not isinstance(data.get(name), kind):
            raise DataError(f"{place} has no proper {name!r}")
    return {name: data[name] for name in fields}
