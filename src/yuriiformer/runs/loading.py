"""Any model, with what belongs to it: its tokeniser, and for the model of a run its data.

A model is named by a run, one of its checkpoints, a model folder, an export for Hugging Face, a
folder of Hugging Face's GPT-2, a ``ckpt.pt`` of nanoGPT, or the name of a GPT-2 on the hub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import Tokenizer, load_tokenizer, needs_file
from yuriiformer.errors import DataError, ModelFileError, RunError
from yuriiformer.files import read_json, sha256
from yuriiformer.methods.rule import Rule
from yuriiformer.model.files import CONFIG, load_model, read_tokenizer, weights_file
from yuriiformer.model.foreign import EXPORTED, read_export, read_gpt2, read_nanogpt
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.checkpoint import MANIFEST, Checkpoint, about, read_checkpoint
from yuriiformer.runs.folder import RunFolder, find_checkpoint
from yuriiformer.runs.metrics import read_metrics

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, with what is known of it.

    A model of a run has a checkpoint and ``saved``, the run's ``config.json``; ``places`` are where
    the run's data may stand by now, besides where the run says. ``remarks`` say what the user
    should know about the choice of the model.
    """

    path: Path
    model: YuriiFormer
    weights: Path
    places: Sequence[Path] = ()
    with_model: Tokenizer | None = None  # the tokeniser that lay with the model
    checkpoint: Checkpoint | None = None
    saved: dict[str, Any] = field(default_factory=dict, repr=False)
    remarks: Sequence[str] = ()
    asked: str = ""  # what was asked for: a whole path, or a name on the hub

    @cached_property
    def about(self) -> dict[str, Any]:
        """Which model this is."""
        if self.checkpoint is not None:
            return about(self.checkpoint)
        return {"model": str(self.path), "sha256": sha256(self.weights)}

    @cached_property
    def recorded(self) -> float | None:
        """The validation loss that the run wrote down of this very model, if it measured one."""
        if self.checkpoint is None:
            return None
        told = self.checkpoint.manifest["about"].get("val_loss")
        try:
            records = [] if told is not None else read_metrics(RunFolder(self.path).metrics_file)
        except (OSError, RunError):
            records = []
        here = [each for each in records if each["step"] == self.checkpoint.step]
        found = [told, *(each["val_loss"] for each in here if "val_loss" in each)]
        return None if found[-1] is None else float(found[-1])

    @property
    def data(self) -> Mapping[str, Any]:
        """What is recorded of the data of its run: folder, counts, hashes, tokeniser, source."""
        found: Mapping[str, Any] = self.saved.get("data", {})
        return found

    @property
    def from_model(self) -> bool:
        """Whether its run began with the weights of a model."""
        return bool(self.saved.get("init"))

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
    def tokenizer(self) -> Tokenizer | None:
        """``encode(text)`` and ``decode(tokens)``; None where it is not known."""
        try:
            return self.need_tokenizer()
        except DataError:
            return None

    def need_tokenizer(self) -> Tokenizer:
        """The tokeniser; an error says why there is none."""
        found, name = self.with_model, self.data.get("tokenizer")
        if found is None and name is not None and not needs_file(name):
            found = load_tokenizer(name)
        found = found or self.store.tokenizer()
        real = self.model.config.real_vocab
        if found.vocab_size != real:
            raise DataError(
                f"the model of {self.path} has a vocabulary of {real:,}, but the tokeniser "
                f"{found.name} has {found.vocab_size:,}: say where the run's own data are with "
                "--data"
            )
        return found


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
    """Any model.

    Args:
        path: a run, a checkpoint, a model folder, an export, a folder of Hugging Face's GPT-2, a
            nanoGPT ``ckpt.pt``, or the name of a GPT-2 on the hub.
        checkpoint: of a run: ``best`` (by validation loss; the default), ``final`` or ``last``.
        data: places where the data of a run may stand, if they have moved.
        device: where the model goes.
    """
    for place in data:
        if not place.is_dir():
            raise DataError(f"--data: there is no folder {str(place)!r}")
    path = Path(path)
    if not path.exists():
        return replace(_with(_from_hub(path), data, checkpoint, device), asked=path.as_posix())
    return replace(_with(path, data, checkpoint, device), asked=str(path.absolute()))


def _with(
    path: Path, data: Sequence[Path], checkpoint: str | None, device: str | torch.device
) -> LoadedModel:
    """The model in a file or folder that is there, by what lies in it."""
    kind = read_json(path / "config.json").get("model_type")
    alone = path.is_file() or (path / CONFIG).is_file() or kind is not None
    if alone and checkpoint is not None:
        raise RunError(f"{path} is one model: --checkpoint chooses among those of a run")
    if (path / MANIFEST).is_file():
        return _of_checkpoint(path, data, device)
    if not alone:
        return _of_run(path, data, checkpoint, device)
    if path.is_file():
        if path.suffix in (".safetensors", ".json"):
            raise ModelFileError(f"{path} is one file of a model: name its folder, {path.parent}")
        model, tokenizer, weights = read_nanogpt(path)
    elif (path / CONFIG).is_file():
        model, tokenizer, weights = load_model(path), read_tokenizer(path), weights_file(path)
    elif kind == EXPORTED:
        model, tokenizer, weights = read_export(path)
    else:
        model, tokenizer, weights = read_gpt2(path)
    return LoadedModel(path, model.to(device), weights, data, tokenizer)


def _of_checkpoint(path: Path, data: Sequence[Path], device: str | torch.device) -> LoadedModel:
    found = read_checkpoint(path)
    model, tokenizer = load_model(path, device=device), read_tokenizer(path)
    run = RunFolder(path.resolve().parent.parent)
    saved = run.read_config() if run.exists else {}
    home = run.path if saved else path
    return LoadedModel(home, model, weights_file(path), data, tokenizer, found, saved)


def _of_run(
    path: Path, data: Sequence[Path], checkpoint: str | None, device: str | torch.device
) -> LoadedModel:
    folder = RunFolder(path)
    if not folder.exists:
        raise RunError(f"{path} {_what_it_is(path)}")
    found, problems = find_checkpoint(folder, checkpoint)
    model, tokenizer = load_model(found.folder, device=device), read_tokenizer(found.folder)
    saved, weights = folder.read_config(), weights_file(found.folder)
    return LoadedModel(path, model, weights, data, tokenizer, found, saved, problems)


def _what_it_is(path: Path) -> str:
    """Why a path leads to no model, as far as can be told."""
    if (path / "suite.json").is_file():
        return f"is a suite: name one of its runs, {path}/runs/ARM/seed-0"
    if (path / "meta.json").is_file():
        return "holds prepared data, not a model: train one on them first"
    if path.name == "checkpoints":
        return "holds the checkpoints of a run: name the run, or one of them"
    return "holds no model: it has neither config.json, as runs and exports have, nor model.json"


def _from_hub(path: Path) -> Path:
    """The folder of a model that is on the hub, or was taken from there before."""
    name = path.as_posix()
    here = len(path.parts) > 1 and path.parent.exists()  # then no name on the hub is meant
    if here or not HUB_NAME.fullmatch(name):
        raise ModelFileError(f"there is no model {name!r}")
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415
    except ModuleNotFoundError:
        raise ModelFileError(
            f"there is no model {name!r} here; to look on the hub: pip install 'yuriiformer[hf]'"
        ) from None
    try:
        wanted = ["*.json", "*.txt", "model.safetensors", "pytorch_model.bin"]
        return Path(snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # no network, no such model, no permission: each its own class
        raise ModelFileError(
            f"there is no model {name!r} here, and none could be taken from the hub "
            f"({type(error).__name__})"
        ) from None
