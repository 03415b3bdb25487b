"""A trained model with what belongs to it: its checkpoint, its data, its tokeniser."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import Tokenizer, load_tokenizer, trained_size
from yuriiformer.errors import CheckpointError, DataError, RunError
from yuriiformer.files import sha256
from yuriiformer.methods.rule import Rule
from yuriiformer.model.files import CONFIG, WEIGHTS, load_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.checkpoint import BEST, FINAL, LAST, Checkpoint, read_checkpoint
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import read_metrics


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, with what is known of it. Its data and its tokeniser are looked for when
    they are asked for: a model can be used without them.

    A model of a run has a checkpoint and ``saved``, the run's ``config.json``; ``places`` are where
    the run's data may stand by now, besides where the run says.
    """

    path: Path
    model: YuriiFormer
    places: Sequence[Path] = ()
    checkpoint: Checkpoint | None = None
    saved: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def about(self) -> dict[str, Any]:
        """Which model this is."""
        if self.checkpoint is not None:
            return about(self.checkpoint)
        return {"model": str(self.path), "sha256": sha256(self.path / WEIGHTS)}

    @cached_property
    def recorded(self) -> float | None:
        """The validation loss that the run wrote down of this very model, if it measured one."""
        if self.checkpoint is None:
            return None
        told = self.checkpoint.manifest["about"].get("val_loss")
        if told is None:
            with suppress(OSError, RunError):
                for record in read_metrics(RunFolder(self.path).metrics_file):
                    if record["step"] == self.checkpoint.step:
                        told = record.get("val_loss", told)
        return None if told is None else float(told)

    @property
    def rule(self) -> Rule:
        return self.model.config.rule

    @cached_property
    def store(self) -> TokenStore:
        """The data that the model was trained on."""
        if self.saved:
            return find_data(RunFolder(self.path), self.places)
        if not self.places:
            raise DataError(f"{self.path} is a model without a run: say its data with --data")
        return TokenStore.open(self.places[0])

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokeniser of those data."""
        name = self.saved.get("data", {}).get("tokenizer")
        if name is not None and trained_size(name) is None:  # it does not lie beside the data
            found = load_tokenizer(name)
        else:
            found = self.store.tokenizer()
        real = self.model.config.real_vocab
        if found.vocab_size != real:
            raise DataError(
                f"the model of {self.path} has a vocabulary of {real:,}, but the tokeniser "
                f"{found.name} has {found.vocab_size:,}: say where the run's own data are with "
                "--data"
            )
        return found


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
    taken for them: with another tokeniser the model would write nonsense without a warning."""
    known = folder.read_config()["data"]
    own = Path(known["folder"])
    places = [place for place in (*others, own) if place.is_dir()]
    if not places:
        gone = others[0] if others else own
        raise DataError(f"the data of {folder.path} are not in {gone}: say where with --data")
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
    here = store.identity
    if store.meta is None and "val_sha256" in known:
        return False
    told = [name for name in ("val_tokens", "train_sha256", "val_sha256") if name in here]
    return all(known.get(name, here[name]) == here[name] for name in told)


def open_model(
    path: str | Path,
    checkpoint: str | None = None,
    data: Sequence[Path] = (),
    *,
    device: str | torch.device = "cpu",
) -> LoadedModel:
    """The model of a run, or of a model's folder. ``data`` are places where its data may stand."""
    path = Path(path)
    if not (path / "config.json").is_file() and (path / CONFIG).is_file():
        return LoadedModel(path, load_model(path, device=device), data)
    folder = RunFolder(path)
    found = find_checkpoint(folder, checkpoint)
    model = load_model(found.folder, device=device)
    return LoadedModel(path, model, data, found, folder.read_config())
