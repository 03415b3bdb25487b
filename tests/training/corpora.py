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
    home = _home()
    out = home / f"tales-{stories}-{vocabulary}"
    prepare(Tales(stories, seed=0), out, Settings(f"bpe:{vocabulary}"))
    return out


@cache
def _home() -> Path:
    _homes.append(tempfile.TemporaryDirectory(prefix=f"tales-{os.getpid()}-"))
    return Path(_homes[0].name)


_homes: list[tempfile.TemporaryDirectory] = []
