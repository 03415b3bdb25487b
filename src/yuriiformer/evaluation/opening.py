"""A trained model with what belongs to it: its checkpoint, its data, its tokeniser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import Tokenizer
from yuriiformer.errors import CheckpointError, DataError, RunError
from yuriiformer.model.files import WEIGHTS, load_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.checkpoint import BEST, FINAL, LAST, Checkpoint, read_checkpoint
from yuriiformer.runs.folder import RunFolder


@dataclass(frozen=True)
class Opened:
    """A run's model, ready to be used."""

    folder: RunFolder
    checkpoint: Checkpoint
    model: YuriiFormer
    store: TokenStore
    tokenizer: Tokenizer

    def about(self) -> dict[str, Any]:
        """Which model this is."""
        return about(self.checkpoint)


def about(checkpoint: Checkpoint) -> dict[str, Any]:
    """Which model a checkpoint holds."""
    return {
        "checkpoint": checkpoint.folder.name,
        "step": checkpoint.step,
        "sha256": checkpoint.manifest["files"][WEIGHTS]["sha256"],
    }


def find_checkpoint(folder: RunFolder, name: str | None = None) -> Checkpoint:
    """The one that is named, else the best, else what there is."""
    if not folder.exists:
        raise RunError(f"no run in {str(folder.path)!r}: it has no config.json")
    if name is not None:
        if not (folder.checkpoints / name).is_dir():
            there = sorted(each.name for each in folder.checkpoints.glob("*/"))
            known = f"; it has {', '.join(there)}" if there else ", nor any other yet"
            raise RunError(f"{folder.path} has no checkpoint {name!r}{known}")
        return read_checkpoint(folder.checkpoints / name)
    problem = None
    for each in (BEST, FINAL, LAST):
        if (folder.checkpoints / each).is_dir():
            try:
                return read_checkpoint(folder.checkpoints / each)
            except CheckpointError as error:
                problem = error
    raise problem or RunError(f"{folder.path} has no checkpoint yet: train it first")


def find_data(folder: RunFolder, others: Sequence[Path] = ()) -> TokenStore:
    """The run's data, where it says they are or in the first other place that is there."""
    own = Path(folder.read_config()["data"]["folder"])
    return TokenStore.open(next((place for place in (own, *others) if place.is_dir()), own))


def open_model(
    path: str | Path, checkpoint: str | None = None, data: Sequence[Path] = ()
) -> Opened:
    """The model of a run. ``data`` are other places where its data may stand by now."""
    folder = RunFolder(path)
    found = find_checkpoint(folder, checkpoint)
    store = find_data(folder, data)
    tokenizer = store.tokenizer()
    model = load_model(found.folder)
    if tokenizer.vocab_size != model.config.real_vocab:
        raise DataError(
            f"the model of {folder.path} has a vocabulary of {model.config.real_vocab:,}, but the "
            f"tokeniser of {store.folder} has {tokenizer.vocab_size:,}: say where the run's own "
            "data are with --data"
        )
    return Opened(folder, found, model, store, tokenizer)
