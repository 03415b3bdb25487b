"""``yurii import SOURCE OUT``: any model as a model folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from yuriiformer.cli.parsing import parse_flags


@dataclass(frozen=True)
class Flags:
    """Turn a model of another format into a model folder, with its tokeniser. A GPT-2 keeps its
    weights, biases and GELU, under the rule of the plain transformer. Nothing in it is executed."""

    source: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="SOURCE")]]
    """A folder of Hugging Face's GPT2LMHeadModel (or its name on the hub), a ckpt.pt of nanoGPT, an
    export; also a run or a checkpoint."""
    out: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="OUT")]]
    """Where to: a model folder, as load_model opens it."""


def run(arguments: list[str]) -> None:
    empty = Flags(tyro.MISSING, tyro.MISSING)
    flags = parse_flags("yurii import", empty, arguments)

    from yuriiformer.model.files import save_model
    from yuriiformer.runs.loading import open_model

    loaded = open_model(flags.source)
    model = loaded.model
    save_model(model, flags.out, loaded.tokenizer)
    config = model.config
    print(
        f"{flags.out}: {config.rule.name}, {config.n_layer} blocks of width {config.d_model}, "
        f"context {config.context}, vocabulary {config.vocab_size:,}"
    )
    if loaded.tokenizer is None:
        print("without a tokeniser: the source does not say its own")
