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
    try:
        folder.read_config()
    except RunError as error:
        raise RunError(f"{str(folder.path)!r} is not the folder of a run: {error}") from None
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
    """The run's data: in one of the other places, or where it says they are. Others' data are not
    taken for them: with another tokeniser a model would speak gibberish, and nobody be told."""
    known = folder.read_config()["data"]
    own = Path(known["folder"])
    places = [place for place in (*others, own) if place.is_dir()] or [*others, own]
    for place in places:
        store = TokenStore.open(place)
        if _same(store, known):
            return store
    raise DataError(
        f"{places[0]} does not hold the data that {folder.path} was trained on: say where they are "
        "with --data"
    )


def _same(store: TokenStore, known: dict[str, Any]) -> bool:
    """Whether these are the data that a run's configuration tells of."""
    if len(store.val) != known.get("val_tokens", len(store.val)):
        return False
    if store.meta is None:
        return "val_sha256" not in known
    hashes = {
        f"{split}_sha256": store.meta["splits"][split]["sha256"] for split in ("train", "val")
    }
    return all(known.get(name, value) == value for name, value in hashes.items())


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
