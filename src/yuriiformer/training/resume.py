"""Resuming a run: the same run, from the newest checkpoint that is whole."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from yuriiformer.config import PARTS, TrainConfig, differences, is_whole
from yuriiformer.errors import ConfigError, RunError, did_you_mean
from yuriiformer.files import read_json
from yuriiformer.model.config import ModelConfig
from yuriiformer.runs.checkpoint import LAST, Checkpoint, newest_whole
from yuriiformer.runs.folder import RunFolder
from yuriiformer.training.journal import Say
from yuriiformer.training.state import STATE, versions

MODEL = [each.name for each in fields(ModelConfig)]
DIVIDED = ("parallel", "shard_group")
# What may differ of the data: they may have been moved, and older runs do not record the source.
TOLD = ("folder", "source", "train_documents", "val_documents")


@dataclass(frozen=True)
class ResumePoint:
    """Where a run resumes (None: it begins), and what its ``config.json`` says from then on, if
    that changes: written only once the checkpoint has been loaded."""

    checkpoint: Checkpoint | None = None
    config: dict[str, Any] | None = None


def open_run(
    folder: RunFolder, now: dict[str, Any], allow_changed: Sequence[str], say: Say
) -> ResumePoint:
    """Begin a run's folder, or find where to resume; refuses what would be another run.

    ``now`` is what ``config.json`` would say of the run as it is asked for.
    """
    if not folder.exists:
        folder.write_config({**now, "versions": versions()})
        return ResumePoint()
    saved = folder.read_config()
    changes = _changes(saved, now["config"], now["data"])
    _check_changes(folder, changes, allow_changed)
    before = {"parallel": "ddp", **saved["resolved"]}  # older runs do not tell
    elsewhere = differences({"": before}, {"": {"parallel": "ddp", **now["resolved"]}})
    for name, (before, after) in elsewhere.items():
        say(f"note: {name} was {before} and is now {after}: numbers agree up to rounding")
    checkpoint = _newest(folder, say)
    if checkpoint is not None:
        _check_edited(folder, saved, checkpoint, allow_changed)
    changes |= elsewhere
    if not changes:
        return ResumePoint(checkpoint)
    step = checkpoint.step if checkpoint else 0
    entry = {"step": step, "fields": {name: list(change) for name, change in changes.items()}}
    return ResumePoint(checkpoint, {**saved, **now, "changes": [*saved.get("changes", []), entry]})


def _check_changes(
    folder: RunFolder, changes: Mapping[str, tuple[Any, Any]], allow_changed: Sequence[str]
) -> None:
    """Check that no field differs but those that may; fields of the model never may, because the
    checkpoint holds the other model."""
    unwanted = [name for name in changes if name not in allow_changed or name in MODEL]
    if not unwanted:
        return
    words = ", ".join(_show(name, *changes[name]) for name in unwanted)
    fixed = [name for name in unwanted if name in MODEL]
    remedy = f"Give the same, or allow it with --allow-changed {' '.join(unwanted)}"
    if fixed:
        remedy = (
            f"The checkpoints hold the other model: give the same {', '.join(fixed)}, or choose "
            "another --out"
        )
    raise RunError(f"{folder.path} was begun with another configuration: {words}. {remedy}")


def _check_edited(
    folder: RunFolder, saved: dict[str, Any], checkpoint: Checkpoint, allow_changed: Sequence[str]
) -> None:
    """Check that ``config.json`` says what the checkpoint was trained with. What was changed on
    purpose since the checkpoint stands in its list of changes."""
    trained = read_json(checkpoint.folder / STATE).get("config")
    if not isinstance(trained, dict) or not is_whole(trained):
        return
    try:
        before = TrainConfig.from_dict({name: trained[name] for name in ("model", *PARTS)})
    except ConfigError:
        return  # of an older version
    after = TrainConfig.from_dict(saved["config"])
    meant = {
        name
        for entry in saved.get("changes", [])
        if entry["step"] >= checkpoint.step
        for name in entry["fields"]
    }
    found = _differences(before.to_dict(), after.to_dict())
    edited = {n: pair for n, pair in found.items() if n not in meant and n not in allow_changed}
    if edited:
        words = ", ".join(_show(name, *pair) for name, pair in edited.items())
        raise RunError(
            f"{folder.config_file} was edited: the checkpoint of step {checkpoint.step} was "
            f"trained with another configuration ({words}). Put it back, or allow it with "
            f"--allow-changed {' '.join(edited)}"
        )


def _newest(folder: RunFolder, say: Say) -> Checkpoint | None:
    """The newest whole checkpoint; one that is damaged is put aside."""
    checkpoint, problems = newest_whole(folder.checkpoints)
    if problems and checkpoint is None:
        raise RunError(
            f"no whole checkpoint in {folder.checkpoints}: {'; '.join(problems)}. Put a good copy "
            "back, or begin anew with another --out"
        )
    for problem in problems:
        assert checkpoint is not None
        say(f"{problem}; going back to {checkpoint.folder.name}, step {checkpoint.step}")
    if problems and (folder.checkpoints / LAST).exists():
        # Put aside, or the next save would let it take the place of the whole one.
        aside = folder.checkpoints / f"{LAST}.damaged"
        shutil.rmtree(aside, ignore_errors=True)
        (folder.checkpoints / LAST).rename(aside)
    return checkpoint


def _changes(
    saved: dict[str, Any], now: dict[str, Any], identity: dict[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Fields that can change a number and differ."""
    before = TrainConfig.from_dict(saved["config"]).to_dict()  # with fields that are new since
    found = _differences(before, now)
    for name, (before, after) in differences({"": saved["data"]}, {"": identity}).items():
        if name not in TOLD:
            found[name] = (before, after)
    return found


def _differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Fields that differ, what a run writes aside, and how it is divided among processes: like
    their number, that may change."""
    one, two = ({k: v for k, v in each.items() if k != "output"} for each in (before, after))
    return {name: pair for name, pair in differences(one, two).items() if name not in DIVIDED}


def check_changed(names: Sequence[str]) -> None:
    """Check that each is the name of a field that a run's configuration has."""
    parts = [ModelConfig, *(kind for name, kind in PARTS.items() if name != "output")]
    known = [each.name for kind in parts for each in fields(kind)]
    known += ["train_tokens", "val_tokens", "train_sha256", "val_sha256", "tokenizer"]
    for name in names:
        if name not in known:
            raise ConfigError(f"--allow-changed: unknown field {name!r}{did_you_mean(name, known)}")


def _show(name: str, before: Any, after: Any) -> str:
    """What changed, in words. For a rule that kept its name, the parts of it that changed."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.get("name") != after.get("name"):
            return f"{name} {before.get('name')} -> {after.get('name')}"
        parts = [key for key in before if before[key] != after.get(key)]
        inner = [_show(key, _flat(before[key]), _flat(after.get(key))) for key in parts]
        return f"{name} {before.get('name')} ({', '.join(inner)})"
    return f"{name} {_short(before)} -> {_short(after)}"


def _flat(value: Any) -> Any:
    """Equations on one line, a table as its text."""
    return "; ".join(value.splitlines()) if isinstance(value, str) else str(value)


def _short(value: Any) -> str:
    return str(value) if len(str(value)) < 80 else f"{str(value)[:77]}..."


def stored_config(out: Path) -> TrainConfig:
    """The configuration that a run was begun with."""
    return TrainConfig.from_dict(RunFolder(out).read_config()["config"])
