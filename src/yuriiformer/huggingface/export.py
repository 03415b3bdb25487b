"""A model as a folder that transformers load: configuration, weights, tokeniser, a card."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers.utils import logging

from yuriiformer.data.tokenizers import Tokenizer, check_ids
from yuriiformer.errors import ModelFileError, RunError
from yuriiformer.files import new_folder, read_json, sync
from yuriiformer.huggingface.card import model_card
from yuriiformer.huggingface.config import YuriiFormerConfig
from yuriiformer.huggingface.model import YuriiFormerForCausalLM
from yuriiformer.huggingface.tokens import fast_tokenizer
from yuriiformer.model.files import unwrap
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.checkpoint import BEST, FINAL, LAST
from yuriiformer.runs.loading import open_model

CARD = "README.md"
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    CARD,
}


def export_model(
    model: YuriiFormer, folder: str | Path, tokenizer: Tokenizer | None = None
) -> None:
    """Write a model as transformers do; an earlier export in the folder is replaced.

    ``AutoModelForCausalLM.from_pretrained(folder)`` opens it after ``import
    yuriiformer.huggingface``; with ``tokenizer``, ``AutoTokenizer`` its tokeniser.
    """
    model = unwrap(model)
    if tokenizer is not None:
        check_ids(model.config.real_vocab, tokenizer)
    folder = Path(folder).resolve()  # so that a link stays a link
    if folder.exists() and not _replaceable(folder):
        raise ModelFileError(f"{folder} holds other files: export to a folder of its own")
    try:
        with new_folder(folder) as part:
            _write(model, part, tokenizer)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{folder} cannot be written: {error}") from error


def _replaceable(folder: Path) -> bool:
    """Whether it is empty, or an earlier export and nothing else."""
    if not folder.is_dir():
        return False
    names = {path.name for path in folder.iterdir()}
    kind = read_json(folder / "config.json").get("model_type")
    return not names or (names <= FILES and kind == YuriiFormerConfig.model_type)


def _write(model: YuriiFormer, folder: Path, tokenizer: Tokenizer | None) -> None:
    end = None if tokenizer is None else tokenizer.end_of_text
    wrapped = YuriiFormerForCausalLM.of(model, end_of_text=end)
    with _no_bars():
        wrapped.save_pretrained(folder, max_shard_size="1TB")
    if tokenizer is not None:
        fast_tokenizer(tokenizer, model.config.context).save_pretrained(folder)
    card = folder / CARD
    card.write_text(model_card(model, tokenizer), encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(card.stat().st_mode)  # safetensors' own files are for their owner alone
        sync(path)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Without the progress bars of transformers."""
    bars: Any = logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def export_run(
    run: str | Path,
    folder: str | Path,
    checkpoint: str = BEST,
    *,
    data: str | Path | None = None,
) -> Tokenizer | None:
    """Write a run's model and its data's tokeniser; gives that, or None where it is not known.

    Args:
        run: the run's folder.
        folder: where to; a folder of its own.
        checkpoint: ``best`` (by validation loss), ``final`` or ``last``.
        data: the prepared data, if they have moved (a trained tokeniser is stored with them).
    """
    if checkpoint not in (BEST, FINAL, LAST):
        raise RunError(f"there is no checkpoint {checkpoint!r}: use {BEST}, {FINAL} or {LAST}")
    loaded = open_model(run, checkpoint, [] if data is None else [Path(data)])
    known = loaded.saved.get("data", {})
    # nanoGPT's files do not say their tokeniser
    tokenizer = None if known.get("tokenizer") is None else loaded.tokenizer
    export_model(loaded.model, folder, tokenizer)
    return tokenizer
