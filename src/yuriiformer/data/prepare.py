"""From documents to token files: streaming, parallel, resumable; workers do not change the result.

The files are nanoGPT's: ``train.bin`` and ``val.bin``, flat little-endian uint16. ``meta.json``
describes them.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, Literal

import numpy as np

import yuriiformer
from yuriiformer.data.order import hash_words, uniform
from yuriiformer.data.partial import SPLITS, Partial, Progress, Tally
from yuriiformer.data.records import Chunk, ChunkReader, Split
from yuriiformer.data.sources import Source
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
from yuriiformer.errors import DataError
from yuriiformer.files import sha256, write_text

FORMAT = 1
COMMIT_SECONDS = float(os.environ.get("YURII_COMMIT_SECONDS", "2"))  # tests set it lower
BPE_SAMPLE = 50_000_000  # characters of training documents that a small BPE is trained on
_SPLIT = 3  # what the hash is for

Report = Callable[[Progress, int, int | None], None]  # progress so far, done, total


@dataclass(frozen=True)
class Settings:
    """How documents become tokens.

    Args:
        tokenizer: ``gpt2``, ``bytes``, ``bpe:N``, or ``hf:PATH``, a fast tokeniser of Hugging
            Face's library: its ``tokenizer.json``, or the folder that holds it.
        seed: decides which documents are validation.
        val_fraction: a document is validation when hash(seed, index) falls below this.
        end_mark: an end-of-text token ``after`` every document, or only ``between`` documents.
        strict: stop at text that is not valid UTF-8.
    """

    tokenizer: str = "gpt2"
    seed: int = 0
    val_fraction: float = 0.05
    end_mark: Literal["after", "between"] = "after"
    strict: bool = False

    def __post_init__(self) -> None:
        trained_size(self.tokenizer)
        if not 0 <= self.val_fraction < 1:
            raise DataError(f"val_fraction must be at least 0 and below 1: {self.val_fraction}")


@dataclass
class Written:
    """A chunk, tokenised."""

    data: dict[Split, bytes]
    tallies: dict[Split, Tally] = field(default_factory=lambda: {s: Tally() for s in SPLITS})
    empty: int = 0
    invalid: int = 0


def is_validation(seed: int, index: Any, fraction: float) -> Any:
    """Which documents, by their index in the corpus, are held out."""
    return uniform(hash_words(seed, _SPLIT, index)) < fraction


def _splits(chunk: Chunk, places: Sequence[int], settings: Settings) -> list[Split]:
    """The split of each document, by its place in the chunk."""
    index = chunk.first + np.array(places, dtype=np.int64)
    held_out = is_validation(settings.seed, index, settings.val_fraction)
    return [chunk.split or ("val" if out else "train") for out in held_out]


def tokenize_chunk(chunk: Chunk, settings: Settings, tokenizer: Tokenizer) -> Written:
    """Read a chunk and turn its documents into the bytes of both files."""
    reader = ChunkReader(strict=settings.strict)
    documents = reader.documents(chunk)
    kept = [(i, text) for i, text in enumerate(documents) if text]
    tokens = tokenizer.encode_batch([text for _, text in kept])
    splits = _splits(chunk, [i for i, _ in kept], settings)
    mark = np.array([tokenizer.end_of_text], dtype=np.uint16)
    pieces: dict[Split, list[Any]] = {split: [] for split in SPLITS}
    result = Written({})
    for (_, text), ids, split in zip(kept, tokens, splits, strict=True):
        pieces[split] += [ids, mark] if settings.end_mark == "after" else [mark, ids]
        result.tallies[split].add(Tally(1, len(ids) + 1, len(text.encode())))
    for split, parts in pieces.items():
        whole = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint16)
        result.data[split] = whole.astype("<u2").tobytes()
    result.empty, result.invalid = len(documents) - len(kept), reader.invalid
    return result


def prepare(
    source: Source,
    out: Path,
    settings: Settings,
    *,
    workers: int = 1,
    restart: bool = False,
    report: Report | None = None,
) -> dict[str, Any]:
    """Write a prepared corpus to ``out``, resuming one that was stopped; returns its meta."""
    out = Path(out).resolve()
    plan = {
        "settings": settings.__dict__,
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
            partial.finish(_meta(partial, settings, source, tokenizer))
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
    trained = TrainedBPE.train(_training_texts(source, settings), size)
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
        splits = _splits(chunk, range(len(documents)), settings)
        for document, split in zip(documents, splits, strict=True):
            if document and split == "train":
                yield document
                taken += len(document)
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
    if not progress.train.documents and progress.val.documents:
        raise DataError(
            f"all documents ({progress.val.documents}) fell into the validation split: give more "
            "documents (a .txt file is one unless <|endoftext|> splits it), or --val-fraction 0"
        )
    if not progress.train.documents:
        raise DataError("there is no document with text in this source: nothing to prepare")


def _map(
    chunks: Iterator[Chunk], settings: Settings, tokenizer: Tokenizer, folder: Path, workers: int
) -> Iterator[tuple[Chunk, Written]]:
    """Chunks and their tokens, in order; only a few are in memory at a time."""
    if workers <= 1:
        for chunk in chunks:
            yield chunk, tokenize_chunk(chunk, settings, tokenizer)
        return
    pool = ProcessPoolExecutor(
        workers,
        get_context("spawn"),
        initializer=_start_worker,
        initargs=(settings, tokenizer.name, folder, tokenizer.end_of_text),
    )
    waiting: deque[tuple[Chunk, Future[Written]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(_work, chunk)))
            if len(waiting) > 2 * workers + 2:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    except BrokenProcessPool:
        raise DataError(
            "a worker process died (out of memory?): give the same command again, with fewer "
            "--workers, and it resumes"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_worker: dict[str, Any] = {}


def _start_worker(settings: Settings, tokenizer: str, folder: Path, end_of_text: int) -> None:
    """The parent handles interrupts; a worker ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def leave_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    _worker["settings"] = settings
    _worker["tokenizer"] = load_tokenizer(tokenizer, folder, end_of_text)


def _work(chunk: Chunk) -> Written:
    return tokenize_chunk(chunk, _worker["settings"], _worker["tokenizer"])


def _meta(
    partial: Partial, settings: Settings, source: Source, tokenizer: Tokenizer
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
        "split_rule": "the source's own" if source.own_split else "hash of (seed, document index)",
        "settings": settings.__dict__,
        "empty_documents": progress.empty,
        "invalid_utf8_documents": progress.invalid,
        "source": source.describe(),
    }
