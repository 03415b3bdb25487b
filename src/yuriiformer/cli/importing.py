"""``yurii import SOURCE OUT``: a GPT-2 checkpoint as a model folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from yuriiformer.cli.parsing import parse_flags
from yuriiformer.errors import ModelFileError


@dataclass(frozen=True)
class Flags:
    """Turn a GPT-2 checkpoint into a model folder: its weights, biases and GELU under the rule
    of the plain transformer. Nothing in the checkpoint is executed."""

    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SOURCE")]]
    """A folder of Hugging Face's GPT2LMHeadModel, or a ckpt.pt of nanoGPT."""
    out: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="OUT")]]
    """Where to: a model folder, as load_model opens it."""


def run(arguments: list[str]) -> None:
    empty = Flags(tyro.MISSING, tyro.MISSING)
    flags = parse_flags("yurii import", empty, arguments)
    if not flags.source.exists():
        raise ModelFileError(f"there is no {str(flags.source)!r}")

    from yuriiformer.huggingface import import_gpt2, import_nanogpt  # noqa: PLC0415  slow
    from yuriiformer.model.files import save_model  # noqa: PLC0415

    model = (import_gpt2 if flags.source.is_dir() else import_nanogpt)(flags.source)
    save_model(model, flags.out)
    config = model.config
    print(
        f"{flags.out}: {config.rule.name}, {config.n_layer} blocks of width {config.d_model}, "
        f"context {config.context}, vocabulary {config.vocab_size:,}"
    )
