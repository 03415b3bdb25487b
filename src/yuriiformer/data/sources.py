"""Where documents come from: files of several kinds, and the generated tales (see also `hub`).

A source cuts its records into chunks of about a megabyte without parsing them; workers read the
chunks (`records`). A record's index is its place in the corpus, even if it is dropped later, so the
split of documents depends neither on chunks nor on workers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Protocol

from yuriiformer.data.records import Chunk, Kind, Split, open_parquet, unpacked, zstd_error
from yuriiformer.data.tokenizers import END_OF_TEXT
from yuriiformer.errors import DataError, one_line

CHUNK_BYTES = 2**20
MOST_DOCUMENT = 2**30  # bytes: a document is tokenised in memory
MARKER = END_OF_TEXT.encode()
TEXT_KINDS = (".txt", ".jsonl")
PACKED = (".gz", ".zst")


class Source(Protocol):
    """A corpus: what it is, how much there is (bytes or records), and its chunks."""

    @property
    def total(self) -> int | None: ...

    @property
    def own_split(self) -> bool:
        """Whether the source itself says what is validation."""

    def describe(self) -> dict[str, Any]:
        """For meta.json."""

    def state(self) -> list[int]:
        """What must not have changed when a preparation is resumed, beside the description."""

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        """All chunks, the same each time, without the first ``skip``."""


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files that paths name, folders searched through, in a fixed order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [each for each in _inside(path) if _usable(each)]
            if not inside:
                raise DataError(
                    f"{path}: no .txt, .jsonl or .parquet file with text in this folder"
                )
            found += inside
        elif not path.exists():
            raise DataError(f"no file {str(path)!r}")
        elif not _kind(path):
            raise DataError(
                f"{path}: unknown kind of file; known are .txt and .jsonl (also with .gz or .zst) "
                "and .parquet"
            )
        elif path.stat().st_size == 0:
            raise DataError(f"{path} is empty")
        else:
            found.append(path)
    return found


def skipped_files(paths: Sequence[Path]) -> list[Path]:
    """The files in these folders that `find_files` leaves out: of another kind, or empty."""
    inside = (each for path in paths if path.is_dir() for each in _inside(path))
    return [each for each in inside if not _usable(each)]


def _inside(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _usable(path: Path) -> bool:
    return bool(_kind(path)) and path.stat().st_size > 0


def _kind(path: Path) -> str:
    """.txt, .jsonl (compression left aside) or .parquet; empty if it is none of them."""
    if path.suffix == ".parquet":
        return ".parquet"
    inner = Path(path.stem).suffix if path.suffix in PACKED else path.suffix
    return inner.lower() if inner.lower() in TEXT_KINDS else ""


@dataclass(frozen=True)
class Files:
    """Text files. ``drop_cut_ends`` leaves out what stands before the first and after the last
    end-of-text marker of a .txt file: a cut-out of a larger one begins and ends in mid-story."""

    paths: tuple[Path, ...]
    column: str = "text"
    drop_cut_ends: bool = False
    split: Split | None = None
    corpus: str | None = None  # whose files they are, where that is known

    @property
    def total(self) -> int | None:
        return sum(path.stat().st_size for path in self.paths)

    @property
    def own_split(self) -> bool:
        return self.split is not None

    def describe(self) -> dict[str, Any]:
        files = [{"name": path.name, "bytes": path.stat().st_size} for path in self.paths]
        options = {"column": self.column, "drop_cut_ends": self.drop_cut_ends}
        known = {} if self.corpus is None else {"corpus": self.corpus}
        return {"kind": "files", **known, "files": files, **options}

    def state(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in self.paths]

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        first, behind = 0, 0
        for path in self.paths:
            size = path.stat().st_size
            before = 0
            for kind, payload, count, read in self._pieces(path, size):
                if skip:
                    skip -= 1
                else:
                    chunk = Chunk(first, count, kind, payload, str(path), before, self.column)
                    yield replace(chunk, split=self.split, done=behind + min(size, read))
                first, before = first + count, before + count
            behind += size

    def _pieces(self, path: Path, size: int) -> Iterator[tuple[Kind, Any, int, int]]:
        """(kind, payload, records, bytes read so far) of one file."""
        try:
            if _kind(path) == ".parquet":
                yield from self._parquet(path, size)
                return
            with path.open("rb") as raw, unpacked(raw, path) as file:
                if _kind(path) == ".txt":
                    for documents in self._texts(file):
                        yield "txt", documents, len(documents), raw.tell()
                else:
                    for lines in _lines(file):
                        count = lines.count(b"\n") + (not lines.endswith(b"\n"))
                        yield "jsonl", lines, count, raw.tell()
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        except (EOFError, zlib.error, zstd_error()) as error:
            raise DataError(
                f"{path}: the compressed file is damaged or cut: {one_line(error)}"
            ) from None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {one_line(error)}") from None

    def _texts(self, file: IO[bytes]) -> Iterator[list[tuple[int, bytes]]]:
        """(place, bytes) of documents between markers, or of the whole file if it has none."""
        documents: list[tuple[int, bytes]] = []
        size, marked = 0, False
        for place, document, ended in _between_marks(file):
            if not ended and not marked:
                documents = [(place, document)]  # no marker at all: the file is the document
            elif (marked and ended) or (not self.drop_cut_ends and (ended or document.strip())):
                documents.append(_stripped(place, document))
                size += len(document)
            marked = marked or ended
            if size >= CHUNK_BYTES:
                yield documents
                documents, size = [], 0
        if documents:
            yield documents

    def _parquet(self, path: Path, size: int) -> Iterator[tuple[Kind, Any, int, int]]:
        file = open_parquet(path, self.column)
        rows, seen = max(1, file.metadata.num_rows), 0
        for batch in file.iter_batches(batch_size=1000, columns=[self.column]):
            seen += batch.num_rows
            yield "parquet", batch.column(0), batch.num_rows, size * seen // rows


def _between_marks(file: IO[bytes]) -> Iterator[tuple[int, bytes, bool]]:
    """(place, bytes, whether a marker ended it) of every stretch of a file.

    Only new bytes are searched, so the cost is linear also for long documents.
    """
    place, rest = 0, bytearray()
    while block := file.read(CHUNK_BYTES):
        searched = max(0, len(rest) - len(MARKER) + 1)
        rest += block
        if len(rest) > MOST_DOCUMENT:
            raise DataError(_too_long("<|endoftext|> between documents"))
        start = 0
        while (end := rest.find(MARKER, max(start, searched))) >= 0:
            yield place + start, bytes(rest[start:end]), True
            start = end + len(MARKER)
        place += start
        del rest[:start]
    last = bytes(rest)
    rest.clear()  # a file that is one document is not kept twice
    yield place, last, False


def _stripped(place: int, document: bytes) -> tuple[int, bytes]:
    """Line ends around a marker are the file's layout, not the document's."""
    return place + len(document) - len(document.lstrip()), document.strip()


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Whole lines, about a megabyte at a time."""
    while data := file.read(CHUNK_BYTES):
        rest = file.readline(MOST_DOCUMENT)
        if len(rest) == MOST_DOCUMENT:
            raise DataError(_too_long("one line per document"))
        yield data + rest


def _too_long(remedy: str) -> str:
    return f"a document of more than {MOST_DOCUMENT / 2**30:g} GiB: it needs {remedy}"


@dataclass(frozen=True)
class Parts:
    """Several sources one after the other: a corpus that comes with its own validation split."""

    parts: tuple[Files, ...]
    own_split: bool = True

    @property
    def total(self) -> int | None:
        return sum(part.total or 0 for part in self.parts)

    def describe(self) -> dict[str, Any]:
        parts = [{"split": part.split, **part.describe()} for part in self.parts]
        corpus = self.parts[0].corpus
        known = {} if corpus is None else {"corpus": corpus}
        return {"kind": "parts", **known, "parts": parts}

    def state(self) -> list[int]:
        return [time for part in self.parts for time in part.state()]

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        first, behind = 0, 0
        for part in self.parts:
            last = first
            for chunk in part.chunks():
                last = first + chunk.first + chunk.count
                if skip:
                    skip -= 1
                else:
                    yield replace(chunk, first=first + chunk.first, done=behind + chunk.done)
            first, behind = last, behind + (part.total or 0)


@dataclass(frozen=True)
class Tales:
    """So many generated stories."""

    stories: int
    seed: int
    own_split: bool = False

    @property
    def total(self) -> int | None:
        return self.stories

    def describe(self) -> dict[str, Any]:
        return {"kind": "tales", "stories": self.stories, "seed": self.seed}

    def state(self) -> list[int]:
        return []

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        size = 1000
        for first in range(skip * size, self.stories, size):
            count = min(size, self.stories - first)
            yield Chunk(first, count, "tales", self.seed, done=first + count)
