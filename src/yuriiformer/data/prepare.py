"""From documents to token files: streaming, parallel, resumable; workers do not change the result.

The files are nanoGPT's: ``train.bin`` and ``val.bin``, flat little-endian uint16. ``meta.json``
describes them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

import yuriiformer
from yuriiformer.data.partial import SPLITS, Partial, Progress, Tally
from yuriiformer.data.records import Chunk, ChunkReader, Split
from yuriiformer.data.sources import Files, Source, find_files
from yuriiformer.data.splitting import SplitBy, Splitter, why_not_by_document
from yuriiformer.data.tokenizers import (
    TOKENIZER_FILE,
    Tokenizer,
    TrainedBPE,
    find_fast_tokenizer,
    load_tokenizer,
    needs_file,
    padded,
    trained_size,
)
from yuriiformer.data.workers import map_chunks
from yuriiformer.errors import DataError
from yuriiformer.files import sha256, write_text

FORMAT = 1
COMMIT_SECONDS = float(os.environ.get("YURII_COMMIT_SECONDS", "2"))  # tests set it lower
BPE_SAMPLE = 50_000_000  # characters of training documents that a small BPE is trained on

Report = Callable[[Progress, int, int | None], None]  # progress so far, done, total


@dataclass(frozen=True)
class Settings:
    """How documents become tokens.

    Args:
        tokenizer: ``gpt2``, ``bytes``, ``bpe:N``, or ``hf:PATH``, a fast tokeniser of Hugging
            Face's library: its ``tokenizer.json``, or the folder that holds it.
        seed: decides which documents are validation.
        val_fraction: a document is validation when hash(seed, index) falls below this (1: all
            are); with ``tail``, this much of each document.
        end_mark: an end-of-text token ``after`` every document, or only ``between`` documents.
        strict: stop at text that is not valid UTF-8.
        split: hold out whole ``documents``, or the ``tail`` of each. ``auto`` is by document,
            unless that leaves one side empty or tiny.
    """

    tokenizer: str = "gpt2"
    seed: int = 0
    val_fraction: float = 0.05
    end_mark: Literal["after", "between"] = "after"
    strict: bool = False
    split: SplitBy = "auto"

    def __post_init__(self) -> None:
        trained_size(self.tokenizer)
        if not 0 <= self.val_fraction <= 1:
            raise DataError(f"val_fraction must be from 0 to 1: {self.val_fraction}")
        if self.split == "tail" and self.val_fraction == 1:
            raise DataError("the tail of a document is a part of it: val_fraction must be below 1")
        if self.split not in get_args(SplitBy):
            raise DataError(f"split must be one of {', '.join(get_args(SplitBy))}: {self.split!r}")

    @property
    def splitter(self) -> Splitter:
        return Splitter(self.split, self.seed, self.val_fraction)

    def describe(self) -> dict[str, Any]:
        """For meta.json; a split by document is not named there, as before there was another."""
        return {k: v for k, v in vars(self).items() if k != "split" or v == "tail"}


@dataclass
class Written:
    """A chunk, tokenised."""

    data: dict[Split, bytes]
    tallies: dict[Split, Tally] = field(default_factory=lambda: {s: Tally() for s in SPLITS})
    empty: int = 0
    invalid: int = 0


def tokenize_chunk(chunk: Chunk, settings: Settings, tokenizer: Tokenizer) -> Written:
    """Read a chunk and turn its documents into the bytes of both files."""
    reader = ChunkReader(strict=settings.strict)
    documents = reader.documents(chunk)
    result = Written({}, empty=sum(not text for text in documents), invalid=reader.invalid)
    parts = settings.splitter.parts(chunk, documents)
    del documents  # a long document is not kept twice
    tokens = tokenizer.encode_batch([text for _, text in parts])
    mark = np.array([tokenizer.end_of_text], dtype="<u2")
    pieces: dict[Split, list[Any]] = {split: [] for split in SPLITS}
    for (split, text), ids in zip(parts, tokens, strict=True):
        plain = ids.astype("<u2", copy=False)
        pieces[split] += [plain, mark] if settings.end_mark == "after" else [mark, plain]
        result.tallies[split].add(Tally(1, len(ids) + 1, len(text.encode())))
    result.data.update({split: b"".join(arrays) for split, arrays in pieces.items()})
    return result


def prepare(
    source: Source | str | Path | Sequence[str | Path],
    out: str | Path,
    settings: Settings | None = None,
    *,
    workers: int = 1,
    restart: bool = False,
    report: Report | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Write a prepared corpus to ``out``, resuming one that was stopped; returns its meta.

    Args:
        source: files and folders of text (.txt, .jsonl, .parquet, also .gz and .zst), or a source
            of `yuriiformer.data.sources`.
        out: a new folder.
        settings: all of them as one object.
        workers: processes; the result does not depend on it.
        restart: discard an unfinished preparation of this folder.
        report: called with the progress.
        fields: of `Settings`, each by its name: ``tokenizer="bpe:2048"``.
    """
    source = _source(source)
    settings = replace(settings or Settings(), **fields)
    out = Path(out).resolve()
    settings, reason = _resolve(source, settings)
    plan = {
        "settings": settings.describe(),
        "source": source.describe(),
        "state of the source": source.state(),
        "format": FORMAT,
    }
    partial = None
    try:
        partial = Partial(out, plan, restart=restart)
        if not partial.finished:
            tokenizer = _tokenizer(source, partial.folder, settings)
            _write_all(source, partial, settings, tokenizer, workers, report)
            rule = _split_rule(source, settings, reason)
            partial.finish(_meta(partial, settings, source, tokenizer, rule))
        else:
            partial.publish()
    except OSError as error:  # a source's own are DataErrors already
        raise DataError(
            f"{out}.partial cannot be written: {error}; fix that and give the same "
            "command again: it resumes"
        ) from error
    finally:
        if partial is not None:
            partial.close()
    meta: dict[str, Any] = json.loads((out / "meta.json").read_text(encoding="utf-8"))
    return meta


def _source(given: Source | str | Path | Sequence[str | Path]) -> Source:
    if isinstance(given, str | Path):
        given = [given]
    if isinstance(given, Sequence):
        return Files(tuple(find_files([Path(path) for path in given])))
    return given


def _resolve(source: Source, settings: Settings) -> tuple[Settings, str | None]:
    """Settings whose split is decided, and why it is not by document."""
    if settings.split != "auto" or source.own_split or not settings.val_fraction:
        by: SplitBy = "tail" if settings.split == "tail" else "documents"
        return replace(settings, split=by), None
    settings = replace(settings, split="documents")
    strict, splitter = settings.strict, settings.splitter
    reason = why_not_by_document(source.chunks(), splitter, strict=strict)
    return (replace(settings, split="tail"), reason) if reason else (settings, None)


def _split_rule(source: Source, settings: Settings, reason: str | None) -> str:
    if source.own_split:
        return "the source's own"
    if settings.split == "documents":
        return "hash of (seed, document index)"
    return f"the tail of each document{f' ({reason})' if reason else ''}"


def _tokenizer(source: Source, folder: Path, settings: Settings) -> Tokenizer:
    """The tokeniser; one that is not built in is trained or copied once, and kept."""
    size = trained_size(settings.tokenizer)
    if size is None and needs_file(settings.tokenizer):
        found, kept = find_fast_tokenizer(Path(settings.tokenizer[3:])), folder / TOKENIZER_FILE
        if kept.is_file() and kept.read_text(encoding="utf-8") != found.to_text():
            raise DataError(f"{settings.tokenizer} has changed since: start again with --restart")
        write_text(kept, found.to_text())
        return found
    if size is None or (folder / TOKENIZER_FILE).is_file():
        return load_tokenizer(settings.tokenizer, folder)
    texts = _training_texts(source, settings)
    first = next(texts, None)
    if first is None:
        raise _no_training_text(_held_out(source, settings))
    trained = TrainedBPE.train(chain([first], texts), size)
    if trained.vocab_size != size:
        raise DataError(
            f"the text gives a BPE of only {trained.vocab_size} tokens, not {size}: use "
            f"--tokenizer bpe:{trained.vocab_size} or more text"
        )
    write_text(folder / TOKENIZER_FILE, trained.to_text())
    return trained


def _training_texts(source: Source, settings: Settings) -> Iterator[str]:
    """Training documents from the corpus's start, up to a fixed amount."""
    taken = 0
    for chunk in source.chunks():
        documents = ChunkReader(strict=settings.strict).documents(chunk)
        for split, text in settings.splitter.parts(chunk, documents):
            if split == "train":
                yield text
                taken += len(text)
        if taken > BPE_SAMPLE:
            return


def _write_all(
    source: Source,
    partial: Partial,
    settings: Settings,
    tokenizer: Tokenizer,
    workers: int,
    report: Report | None,
) -> None:
    """Every chunk that is not yet written, in order."""
    progress, total = partial.progress, source.total
    chunks = source.chunks(skip=progress.chunks)
    committed = time.monotonic()
    for chunk, written in _map(chunks, settings, tokenizer, partial.folder, workers):
        for split in SPLITS:
            data, tally = written.data[split], written.tallies[split]
            if settings.end_mark == "between" and data and not progress.of(split).tokens:
                data, tally = data[2:], Tally(tally.documents, tally.tokens - 1, tally.text_bytes)
            partial.write(split, data)
            progress.of(split).add(tally)
        progress.chunks += 1
        progress.empty += written.empty
        progress.invalid += written.invalid
        if time.monotonic() - committed > COMMIT_SECONDS:
            partial.commit()
            committed = time.monotonic()
        if report:
            report(progress, chunk.done, total)
    partial.commit()
    whole = settings.val_fraction == 1  # then an empty training split is intended
    if not (progress.val if whole else progress.train).documents:
        raise _no_training_text(progress.val.documents)


def _held_out(source: Source, settings: Settings) -> int:
    """How many documents are validation."""
    reader = ChunkReader(strict=settings.strict)
    parts = (settings.splitter.parts(chunk, reader.documents(chunk)) for chunk in source.chunks())
    return sum(split == "val" for each in parts for split, _ in each)


def _no_training_text(held_out: int) -> DataError:
    if not held_out:
        return DataError("there is no document with text in this source: nothing to prepare")
    return DataError(
        f"the training side is empty: all documents ({held_out}) fell into the validation split. "
        "Give more documents (a .txt file is one unless <|endoftext|> splits it), --val-fraction "
        "0, or 'yurii prepare text --split tail', which holds out the end of each document"
    )


def _map(
    chunks: Iterator[Chunk], settings: Settings, tokenizer: Tokenizer, folder: Path, workers: int
) -> Iterator[tuple[Chunk, Written]]:
    """Chunks and their tokens, in order; only a few are in memory at a time."""
    if workers <= 1:
        yield from ((chunk, tokenize_chunk(chunk, settings, tokenizer)) for chunk in chunks)
        return
    arguments = (settings, tokenizer.name, folder, tokenizer.end_of_text)
    yield from map_chunks(_work, chunks, workers, _start_worker, arguments)


_worker: dict[str, Any] = {}


def _start_worker(settings: Settings, tokenizer: str, folder: Path, end_of_text: int) -> None:
    _worker["settings"] = settings
    _worker["tokenizer"] = load_tokenizer(tokenizer, folder, end_of_text)


def _work(chunk: Chunk) -> Written:
    return tokenize_chunk(chunk, _worker["settings"], _worker["tokenizer"])


def _meta(
    partial: Partial, settings: Settings, source: Source, tokenizer: Tokenizer, split_rule: str
) -> dict[str, Any]:
    """The description of the files. Without times and machine names: equal inputs, equal bytes."""
    progress = partial.progress
    splits = {}
    for split in SPLITS:
        digest = sha256(partial.folder / f"{split}.bin")
        splits[split] = {**progress.of(split).__dict__, "sha256": digest}
    return {
        "format": FORMAT,
        "yuriiformer": yuriiformer.__version__,
        "dtype": "uint16",
        "tokenizer": {
            "name": tokenizer.name,
            "vocab_size": tokenizer.vocab_size,
            "padded_vocab_size": padded(tokenizer.vocab_size),
            "end_of_text": tokenizer.end_of_text,
        },
        "splits": splits,
        "split_rule": split_rule,
        "settings": settings.describe(),
        "empty_documents": progress.empty,
        "invalid_utf8_documents": progress.invalid,
        "source": source.describe(),
    }
