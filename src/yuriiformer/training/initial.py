"""How a run begins: with the vocabulary of its data, or from a model that is there (which one,
whether the data are in its vocabulary, what came over)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yuriiformer.config import TrainConfig
from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import GPT2, Tokenizer, padded, same_tokens
from yuriiformer.errors import ConfigError, RunError
from yuriiformer.evaluation.validation import Windows, protocol_windows, total_loss
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.device import autocast
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.takeover import TakenOver, take_over
from yuriiformer.runs.checkpoint import LAST
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.loading import LoadedModel, open_model
from yuriiformer.runs.metrics import Record
from yuriiformer.training.journal import Say
from yuriiformer.training.resume import stored_config
from yuriiformer.training.sharding import make_model

if TYPE_CHECKING:
    from yuriiformer.training.session import ResolvedRun

INIT = "init"  # its entry in config.json
LOOK = 1_000_000  # tokens of a file that does not say its vocabulary
CHARACTERS = 1024  # more ids than a vocabulary of characters has


def find_source(
    folder: RunFolder, given: str | Path | LoadedModel | None, *, resume: bool
) -> LoadedModel | None:
    """The model that a run begins from: the given one. A run that is resumed needs it only if it
    was stopped before its first checkpoint."""
    if not (resume and folder.exists):
        return None if given is None else _opened(given)
    known = folder.read_config().get(INIT)
    if known is None and given is None:
        return None
    if any(folder.checkpoints.glob(f"{LAST}*")):  # from there it is resumed
        _check_same(folder, known, given)
        return None
    if known is None:
        raise RunError(_REFUSED.format(folder=folder.path, began="without a model"))
    source = _opened(known["path"] if given is None else given)
    if source.about["sha256"] != known["model"]["sha256"]:
        raise RunError(
            f"{folder.path} has no checkpoint yet, and {source.path} is not the model that it was "
            "begun from: say where that is with --init-from, or choose another --out"
        )
    return source


_REFUSED = "{folder} was begun {began}: leave --init-from out to resume it, or choose another --out"


def _opened(given: str | Path | LoadedModel) -> LoadedModel:
    return given if isinstance(given, LoadedModel) else open_model(given)


def _check_same(
    folder: RunFolder, known: dict[str, Any] | None, given: str | Path | LoadedModel | None
) -> None:
    """A run is resumed from its own checkpoint; another model than at its beginning would be
    ignored, so it is refused."""
    if given is None:
        return
    asked = given.asked if isinstance(given, LoadedModel) else str(given)
    if known is None or known["path"] not in (asked, str(Path(asked).absolute())):
        began = "without a model" if known is None else f"from {known['path']}"
        raise RunError(_REFUSED.format(folder=folder.path, began=began))


def vocabulary_of(
    folder: RunFolder, source: LoadedModel | None, *, resume: bool
) -> ModelConfig | None:
    """The model whose token table a run keeps; None if it takes the data's vocabulary."""
    if source is not None:
        return source.model.config
    begun = resume and folder.exists and INIT in folder.read_config()
    return stored_config(folder.path).model if begun else None


def fill_vocabulary(config: TrainConfig, store: TokenStore) -> TrainConfig:
    """The data's vocabulary. nanoGPT's files do not say theirs: GPT-2's, unless only few ids occur
    in a part that is quick to read (characters)."""
    if store.meta is not None:
        return config.with_(vocab_size=store.padded_vocab_size, valid_vocab=store.vocab_size)
    parts = [store.val[:LOOK], store.train[:LOOK]]
    used = max((int(part.max()) + 1 for part in parts if len(part)), default=1)
    if used <= CHARACTERS:  # then all must be read: a rare one may come late
        used = store.used_vocab_size
    size = used if used <= CHARACTERS else GPT2.vocab_size
    return config.with_(vocab_size=padded(size), valid_vocab=size)


def check_vocabulary(store: TokenStore, source: LoadedModel) -> None:
    """Check that the data are in the model's tokens."""
    has = source.model.config
    try:
        theirs = None if store.meta is None else store.tokenizer()
    except ModuleNotFoundError:  # its library is not installed: the size must do
        theirs = None
    size = store.used_vocab_size
    fits = size <= has.real_vocab if store.meta is None else size == has.real_vocab
    ours = source.with_model or source.tokenizer
    if fits and ours is not None and theirs is not None:
        fits = same_tokens(ours, theirs)
    if not fits:
        known = "another tokeniser" if theirs is None else f"the tokeniser {theirs.name}"
        raise ConfigError(
            f"{store.folder} was prepared with {known} ({size:,} ids), not with that of "
            f"{source.path} ({has.real_vocab:,}): prepare the text with --tokenizer "
            f"{_reference(source, ours)}"
        )


def _reference(source: LoadedModel, tokenizer: Tokenizer | None) -> str:
    """How ``yurii prepare`` is told to use a model's tokeniser."""
    if tokenizer is not None and tokenizer.to_text() is None:
        return tokenizer.name
    return f"hf:{source.weights.parent}"


def _windows(config: TrainConfig, store: TokenStore, source: LoadedModel) -> Windows | None:
    """The run's validation, with the model's own context where that is shorter."""
    if not config.validation.eval_every:
        return None
    context = min(config.model.context, source.model.config.context)
    asked = config.validation
    return protocol_windows(store, context, asked.eval_sequences, asked.eval_blocks)


@dataclass(frozen=True)
class Initial:
    """What a run began with, as the run's result tells it."""

    path: str
    taken_over: TakenOver
    loss_before: float | None


@dataclass(frozen=True)
class Jump:
    """A listener that says how the loss at step 0 compares with the model's before."""

    before: float | None
    say: Say

    def record(self, record: Record) -> None:
        if self.before is not None and record["step"] == 0 and "val_loss" in record:
            now = record["val_loss"]
            self.say(
                f"validation loss: {self.before:.4f} before, {now:.4f} at step 0 "
                f"({now - self.before:+.4f})"
            )

    def close(self) -> None:
        """Nothing is open."""


def begin_from(
    here: ResolvedRun, folder: RunFolder, model: YuriiFormer, source: LoadedModel, say: Say
) -> Initial:
    """Begin with the weights of another model; ``config.json`` and the output say which came."""
    initial = Initial(str(source.path), take_over(model, source.model), _loss_before(here, source))
    say(f"weights of {source.path} ({source.rule.name}):")
    for line in initial.taken_over.lines():
        say(line)
    if here.processes.leads:
        saved = folder.read_config()
        more = {**initial.taken_over.to_dict(), "loss_before": initial.loss_before}
        folder.write_config({**saved, INIT: {**saved[INIT], **more}})
    return initial


def _loss_before(here: ResolvedRun, source: LoadedModel) -> float | None:
    """What the run's validation says of the other model."""
    windows, processes = _windows(here.config, here.store, source), here.processes
    if windows is None:
        return None
    if processes.sharded:
        return _divided_loss(here, source.model, windows)

    def loss() -> float:
        with autocast(here.dtype, processes.device):
            model = source.model.to(processes.device)
            return windows.loss(model, batch=here.config.machine.micro_batch).mean

    before: float = processes.share(processes.led(loss))  # all wait for the first
    return before


def _divided_loss(here: ResolvedRun, source: YuriiFormer, windows: Windows) -> float:
    """Where no device is to hold a whole model, the other one is divided, too."""
    model = make_model(replace(here.config, model=source.config), here.processes, here.dtype)
    take_over(model, source)
    with autocast(here.dtype, here.processes.device):
        found = total_loss(model, here.batches.part(windows)[0])
    assert found is not None  # it is never asked to stop
    nats, tokens = here.processes.sum([found[0], float(found[1])])
    return nats / tokens
