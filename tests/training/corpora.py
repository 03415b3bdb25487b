"""A small corpus, made once."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Tales


@cache
def tales(stories: int = 1500, vocabulary: int = 512) -> Path:
    """A folder of prepared tales for all tests of this process, removed with its temporary home."""
    return corpus(stories, Settings(f"bpe:{vocabulary}"))


def corpus(stories: int, settings: Settings) -> Path:
    """So many tales, prepared as told."""
    out = _home() / f"{stories}-{settings.tokenizer.replace(':', '-')}"
    prepare(Tales(stories, seed=0), out, settings)
    return out


@cache
def _home() -> Path:
    _homes.append(tempfile.TemporaryDirectory(prefix=f"tales-{os.getpid()}-"))
    return Path(_homes[0].name)


_homes: list[tempfile.TemporaryDirectory] = []
