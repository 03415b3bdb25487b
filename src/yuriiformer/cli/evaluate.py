"""``yurii evaluate``: validation loss and downstream tasks of a trained model."""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
import tyro

from yuriiformer import __version__
from yuriiformer.cli.parsing import parse_flags
from yuriiformer.comparison.paper import paper_downstream, paper_preset, paper_references
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import ConfigError, RunError, YuriiError
from yuriiformer.evaluation.local_tasks import TaskSpec, local_task, parse_tasks
from yuriiformer.evaluation.scoring import BATCH_TOKENS
from yuriiformer.evaluation.text import tasks_text, validation_text
from yuriiformer.evaluation.validation import (
    BITS_PER_BYTE,
    as_trained,
    exact_loss,
    text_bytes,
    validation_loss,
)
from yuriiformer.files import sha256, write_json
from yuriiformer.methods.catalog import paper
from yuriiformer.model.files import CONFIG, WEIGHTS, load_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.checkpoint import Checkpoint
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.runs.opening import about, find_checkpoint, find_data
from yuriiformer.training.processes import choose_device

Result = dict[str, Any]
SEQUENCES = 4800  # of a validation, where no run says: the paper's


@dataclass(frozen=True)
class Flags:
    """Flags of ``yurii evaluate``."""

    run: tyro.conf.Positional[Path] = Path()
    """Folder of a run; or of a model, with --data."""
    checkpoint: Literal["best", "final", "last"] | None = None
    """Which; the best by validation loss if not given."""
    tasks: tuple[str, ...] = ()
    """Tasks of lm-evaluation-harness: 'paper' (HellaSwag 10- and 0-shot, ARC-Easy 25- and 0-shot),
    NAME, or NAME@N for N examples before each question."""
    tasks_data: Path | None = None
    """Folder with local files of HellaSwag and ARC-Easy; the hub is asked if not given."""
    limit: int | None = None
    """Only the first so many items of each task."""
    batch_tokens: int = BATCH_TOKENS
    """Tokens of a batch of the tasks' texts: less needs less memory."""
    validation: bool = True
    """Measure the validation loss."""
    data: Path | None = None
    """Prepared data: where the run's are, if they were moved; needed with a model's folder."""
    out: Path | None = None
    """Folder for the results; 'evaluation' in the run's if not given."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    json: bool = False
    """Print JSON."""


DESCRIPTION = (
    "Measure a trained model: validation loss by the paper's protocol and exact over the split, "
    "perplexity, bits per byte; with --tasks also downstream tasks. An evaluation that was stopped "
    "resumes when it is given again."
)


@dataclass(frozen=True)
class Subject:
    """What is evaluated."""

    model: YuriiFormer
    store: TokenStore
    about: Result
    run: Result  # the run's config.json; empty for a model alone
    out: Path

    @property
    def own_data(self) -> bool:
        """Whether the validation split is the one that the run was judged by."""
        known = self.run.get("data", {})
        meta = self.store.meta
        own = None if meta is None else meta["splits"]["val"]["sha256"]
        same_hash = None in (own, known.get("val_sha256")) or own == known["val_sha256"]
        return bool(known.get("val_tokens") == len(self.store.val) and same_hash)


def run(arguments: list[str]) -> int:
    """``yurii evaluate RUN``"""
    flags = parse_flags("yurii evaluate", Flags(), arguments, DESCRIPTION)
    if flags.run == Path():
        raise ConfigError("the folder of a run is needed: yurii evaluate RUN")
    for name in ("limit", "batch_tokens"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    tasks = parse_tasks(flags.tasks) if flags.tasks else []
    if not tasks and not flags.validation:
        raise ConfigError("nothing to do: --no-validation without --tasks")
    _check_tasks(tasks, flags.tasks_data)
    subject = _open(flags)
    found: Result = {**subject.about, "results": str(subject.out)}
    try:
        subject.out.mkdir(parents=True, exist_ok=True)
        if flags.validation:
            found["validation"] = _validate(subject, say=not flags.json)
        if tasks:
            found["tasks"] = _tasks(subject, tasks, flags)
    except OSError as error:
        raise RunError(f"{subject.out} cannot be written: {error}") from None
    if flags.json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
    else:
        print(f"\nresults in {subject.out}", flush=True)
    return 0


def _check_tasks(tasks: list[TaskSpec], data: Path | None) -> None:
    """What can be known to be missing before anything is measured."""
    if tasks and find_spec("lm_eval") is None:
        raise YuriiError("--tasks needs the package 'lm_eval': pip install 'yuriiformer[eval]'")
    for spec in tasks if data is not None else ():
        local_task(spec, data or Path())


def _open(flags: Flags) -> Subject:
    device = choose_device(flags.device)
    if not (flags.run / "config.json").is_file() and (flags.run / CONFIG).is_file():
        if flags.data is None:
            raise ConfigError(f"{flags.run} is a model without a run: say its data with --data")
        model, store = load_model(flags.run, device=device), TokenStore.open(flags.data)
        known: Result = {"model": str(flags.run), "sha256": sha256(flags.run / WEIGHTS)}
        config: Result = {}
        out = flags.run.resolve().with_name(f"{flags.run.resolve().name}-evaluation")
    else:
        folder = RunFolder(flags.run)
        checkpoint = find_checkpoint(folder, flags.checkpoint)
        config, out = folder.read_config(), folder.path / "evaluation"
        known = {"run": str(flags.run), **about(checkpoint)}
        recorded = _recorded(folder, checkpoint)
        known |= {} if recorded is None else {"recorded_val_loss": recorded}
        store = TokenStore.open(flags.data) if flags.data else find_data(folder)
        model = load_model(checkpoint.folder, device=device)
    store.check_model(model.config.vocab_size, model.config.valid_vocab)
    known["rule"] = model.config.rule.name
    return Subject(model, store, known, config, flags.out or out)


def _recorded(folder: RunFolder, checkpoint: Checkpoint) -> float | None:
    """The validation loss that the run wrote down of this very model, if it measured one."""
    try:
        records = read_metrics(folder.metrics_file)
    except (OSError, RunError):
        records = []
    found = [r["val_loss"] for r in records if r["step"] == checkpoint.step and "val_loss" in r]
    loss = checkpoint.manifest["about"].get("val_loss", found[-1] if found else None)
    return None if loss is None else float(loss)


def _validate(subject: Subject, *, say: bool) -> Result:
    """Measure, or take what was measured of this very model before."""
    model, store = subject.model, subject.store
    settings = subject.run.get("config", {}).get("validation", {})
    sequences = int(settings.get("eval_sequences", SEQUENCES))
    path = subject.out / f"validation-{subject.about.get('checkpoint', 'model')}.json"
    made_from = {
        "sha256": subject.about["sha256"],
        "data": str(store.folder.resolve()),
        "val_tokens": len(store.val),
        "val_sha256": store.meta["splits"]["val"]["sha256"] if store.meta else None,
        "eval_sequences": sequences,
        "context": model.config.context,
        "device": model.token_table.device.type,
    }
    found = _read(path)
    whole = all(isinstance(found.get(part), dict) for part in ("protocol", "exact"))
    if not whole or not all(found.get(key) == value for key, value in made_from.items()):
        size = text_bytes(store) if store.meta else None
        with as_trained(model, subject.run) as dtype:
            given = validation_loss(model, store, sequences, tell=Bar("validation"))
            exact = exact_loss(model, store, tell=Bar("exact validation"))
        found = {
            **subject.about, **made_from, **_versions(), "dtype": dtype,
            "own_data": subject.own_data,
            "protocol": given.to_dict(),
            "exact": {
                **exact.to_dict(), "text_bytes": size,
                "bits_per_byte": exact.bits_per_byte(size) if size else None,
                "note": BITS_PER_BYTE if size else "no bits per byte: the tokeniser is not known",
            },
        }  # fmt: skip
        write_json(path, found)
    if say:
        print(validation_text(found, judged=bool(subject.run)), flush=True)
    return found


def _tasks(subject: Subject, tasks: list[TaskSpec], flags: Flags) -> Result:
    try:
        from yuriiformer.evaluation.tasks import evaluate_tasks  # noqa: PLC0415  lm_eval is slow
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("yuriiformer"):
            raise
        raise YuriiError(
            f"--tasks needs the package {error.name!r}: pip install 'yuriiformer[eval]'"
        ) from None
    bar = Bar()
    found: Result = {}
    for spec, result in evaluate_tasks(
        subject.model, subject.store.tokenizer(), tasks, limit=flags.limit,
        tasks_data=flags.tasks_data, batch_tokens=flags.batch_tokens,
        cache=subject.out / "cache.jsonl", begin=lambda spec: bar.begin(str(spec)), tell=bar,
    ):  # fmt: skip
        found[str(spec)] = {**subject.about, **result, **_versions()}
        write_json(_task_file(subject, spec, flags.limit), found[str(spec)])
    if not flags.json:
        print("\n" + tasks_text(found, _figures(subject), paper_references()))
    return found


def _versions() -> Result:
    """Of what the numbers depend on."""
    return {"versions": {"yuriiformer": __version__, "torch": torch.__version__}}


def _read(path: Path) -> Result:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _task_file(subject: Subject, spec: TaskSpec, limit: int | None) -> Path:
    part = "" if limit is None else f"-first-{limit}"
    return subject.out / f"{spec}-{subject.about.get('checkpoint', 'model')}{part}.json"


def _figures(subject: Subject) -> Mapping[str, float]:
    """The paper's, if this is one of its settings and one of its rules."""
    rule = subject.model.config.rule
    if rule.name not in paper or paper[rule.name].assigns != rule.assigns:
        return {}
    setting = paper_preset(subject.run.get("config", {}))
    return paper_downstream(setting, rule.name) or {}


class Bar:
    """How far something is, on a terminal: rewritten in place, and gone when it is done."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.stream = sys.stderr  # now: the harness's own words are kept from it later
        self.began = (0, time.monotonic())

    def begin(self, name: str) -> None:
        self.name, self.began = name, (0, 0.0)
        self._write(f"{name}: preparing the texts")

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self.began[1]:
            self.began = (done, now)
        first, start = self.began
        left = (now - start) * (total - done) / (done - first) if done > first else None
        rest = "" if left is None else f", {datetime.timedelta(seconds=round(left))} left"
        self._write("" if done >= total else f"{self.name}: {done:,}/{total:,}{rest}")

    def _write(self, text: str) -> None:
        if self.stream.isatty():
            print(f"\r\x1b[K{text}", end="", file=self.stream, flush=True)
