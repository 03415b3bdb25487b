"""Small corpora, and what came of them."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import yuriiformer as yf
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Files, find_files
from yuriiformer.errors import DataError

DOCUMENTS = [f"Document {i}: " + "word " * (i % 17) + "end – ü." for i in range(300)]


def files(*paths: Path, **options) -> Files:
    return Files(tuple(find_files(paths)), **options)


def write_jsonl(path: Path, documents=DOCUMENTS, column="text") -> Path:
    path.write_text("".join(json.dumps({"id": 1, column: d}) + "\n" for d in documents))
    return path


def documents_of(store: yf.TokenStore, split: str) -> list[str]:
    tokenizer = store.tokenizer()
    ids = np.asarray(store.split(split))
    ends = np.flatnonzero(ids == tokenizer.end_of_text)
    assert len(ids) == 0 or ends[-1] == len(ids) - 1
    parts = np.split(ids, ends + 1)[:-1]
    return [tokenizer.decode(part[:-1]) for part in parts]


def contents(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def fails(tmp_path, source, reason, tokenizer="bytes", **options):
    settings, out = Settings(tokenizer, **options), tmp_path / "out"
    with pytest.raises(DataError) as caught:
        prepare(source() if callable(source) else source, out, settings)
    assert reason in str(caught.value), str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    shutil.rmtree(tmp_path / "out.partial", ignore_errors=True)
