"""``yurii export MODEL FOLDER``: a model for Hugging Face's transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from yuriiformer.cli.parsing import parse_flags


@dataclass(frozen=True)
class Flags:
    """Write a model as a folder that AutoModelForCausalLM and AutoTokenizer open after 'import
    yuriiformer.huggingface' or with trust_remote_code=True: configuration, safetensors, tokeniser,
    a model card. With --as gpt2 transformers alone are enough."""

    model: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="MODEL")]]
    """A run, a checkpoint, a model folder, an export, a GPT-2."""
    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
    """Where to: a folder of its own; an earlier export in it is replaced."""
    checkpoint: Literal["best", "final", "last"] | None = None
    """Which of a run's checkpoints; the best by validation loss if not given."""
    kind: Annotated[Literal["yuriiformer", "gpt2"], tyro.conf.arg(name="as")] = "yuriiformer"
    """What to write: gpt2 is a plain GPT2LMHeadModel, for models of the rule gd-lie-trotter."""
    data: Path | None = None
    """The prepared data, where the model does not have its tokeniser with it."""


def run(arguments: list[str]) -> None:
    empty = Flags(tyro.MISSING, tyro.MISSING)
    flags = parse_flags("yurii export", empty, arguments)

    from yuriiformer.huggingface.export import export_run

    tokenizer = export_run(
        flags.model, flags.folder, flags.checkpoint, data=flags.data, kind=flags.kind
    )
    print(flags.folder)
    if tokenizer is None:
        print("without a tokeniser: neither the model nor its data name one")
