"""``yurii export RUN FOLDER``: a run's model for Hugging Face's transformers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from yuriiformer.cli.parsing import parse_flags


@dataclass(frozen=True)
class Flags:
    """Write a run's model as a folder that AutoModelForCausalLM and AutoTokenizer open
    after 'import yuriiformer.huggingface': configuration, safetensors, tokeniser, a model card."""

    run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
    """The run's folder."""
    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
    """Where to: a folder of its own; an earlier export in it is replaced."""
    checkpoint: Literal["best", "final", "last"] = "best"
    """Which of the run's checkpoints: the best by validation loss, the final one, the newest."""
    data: Path | None = None
    """The prepared data, if they have moved since the run (a trained tokeniser lies there)."""


def run(arguments: list[str]) -> None:
    empty = Flags(tyro.MISSING, tyro.MISSING)
    flags = parse_flags("yurii export", empty, arguments)

    from yuriiformer.huggingface.export import export_run  # noqa: PLC0415  transformers are slow

    tokenizer = export_run(flags.run, flags.folder, flags.checkpoint, data=flags.data)
    print(flags.folder)
    if tokenizer is None:
        print("without a tokeniser: the run's data do not name it")
