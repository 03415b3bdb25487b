"""Resuming a run: the same run, from the newest checkpoint that is whole."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from yuriiformer.config import PARTS, TrainConfig, differences
from yuriiformer.errors import ConfigError, RunError, did_you_mean
from yuriiformer.model.config import ModelConfig
from yuriiformer.runs.checkpoint import LAST, Checkpoint, newest_whole
from yuriiformer.runs.folder import RunFolder
from yuriiformer.training.journal import Say
from yuriiformer.training.state import versions


def open_run(
    folder: RunFolder, now: dict[str, Any], allow_changed: Sequence[str], say: Say
) -> Checkpoint | None:
    """Begin a run's folder, or find where to resume; refuses what would be another run.

    ``now`` is what ``config.json`` would say of the run as it is asked for.
    """
    if not folder.exists:
        folder.write_config({**now, "versions": versions()})
        return None
    saved = folder.read_config()
    changes = _changes(saved, now["config"], now["data"])
    unwanted = [name for name in changes if name not in allow_changed]
    if unwanted:
        pairs = [(name, *map(_show, changes[name])) for name in unwanted]
        words = ", ".join(f"{name} {before} -> {after}" for name, before, after in pairs)
        raise RunError(
            f"{folder.path} was begun with another configuration: {words}. Give the same, or allow "
            f"it with --allow-changed {' '.join(unwanted)}"
        )
    elsewhere = differences({"": saved["resolved"]}, {"": now["resolved"]})
    for name, (before, after) in elsewhere.items():
        say(f"note: {name} was {before} and is now {after}: numbers agree up to rounding")
    checkpoint = _newest(folder, say)
    changes |= elsewhere
    if changes:
        step = checkpoint.step if checkpoint else 0
        entry = {"step": step, "fields": {name: list(change) for name, change in changes.items()}}
        folder.write_config({**saved, **now, "changes": [*saved.get("changes", []), entry]})
    return checkpoint


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
    numbers = [{k: v for k, v in each.items() if k != "output"} for each in (before, now)]
    found = differences(*numbers)
    for name, (before, after) in differences({"": saved["data"]}, {"": identity}).items():
        if name != "folder":  # the same data may have moved
            found[name] = (before, after)
    return found


def check_changed(names: Sequence[str]) -> None:
    """That each is the name of a field that a run's configuration has."""
    parts = [ModelConfig, *(kind for name, kind in PARTS.items() if name != "output")]
    known = [each.name for kind in parts for each in fields(kind)]
    known += ["train_tokens", "val_tokens", "train_sha256", "val_sha256", "tokenizer"]
    for name in names:
        if name not in known:
            raise ConfigError(f"--allow-changed: unknown field {name!r}{did_you_mean(name, known)}")


def _show(value: Any) -> str:
    if isinstance(value, dict) and "name" in value:  # a rule
        return str(value["name"])
    return str(value) if len(str(value)) < 40 else f"{str(value)[:37]}..."


def stored_config(out: Path) -> TrainConfig:
    """The configuration that a run was begun with (what it writes as of then)."""
    return TrainConfig.from_dict(RunFolder(out).read_config()["config"])
