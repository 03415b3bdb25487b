"""Where documents come from: files of several kinds, the hub, the generated tales.

A source cuts its records into chunks of about a megabyte without looking into them; workers read
the chunks (`records`). A record's index is its place in the corpus, whatever becomes of it, so the
split of documents depends neither on chunks nor on workers.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

from yuriiformer.data.tokenizers import END_OF_TEXT
from yuriiformer.errors import DataError

Split = Literal["train", "val"]
Kind = Literal["txt", "jsonl", "parquet", "texts", "tales"]

CHUNK_BYTES = 2**20
MARKER = END_OF_TEXT.encode()
SUFFIXES = (".txt", ".jsonl", ".parquet")
PACKED = (".gz", ".zst")


@dataclass(frozen=True)
class Chunk:
    """Records to be read by a worker."""

    first: int  # index of its first record in the corpus
    count: int  # how many records it has
    kind: Kind
    payload: Any
    path: str = ""
    line: int = 0  # lines before it in its file
    split: Split | None = None  # where the source itself says so
    done: int = 0  # how much of the source's total is behind its end


class Source(Protocol):
    """A corpus: what it is, how much there is (bytes or records), and its chunks."""

    @property
    def total(self) -> int | None: ...

    @property
    def own_split(self) -> bool:
        """Whether the source itself says what is validation."""

    def describe(self) -> dict[str, Any]:
        """For the record: goes into meta.json."""

    def state(self) -> list[int]:
        """What must not have changed when a preparation is resumed, beside the description."""

    def chunks(self) -> Iterator[Chunk]:
        """All chunks, the same each time."""


def find_files(paths: Sequence[Path]) -> list[Path]:
    """The files that paths name, folders searched through, in a fixed order."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file() and _suffix(p))
            if not inside:
                raise DataError(f"{path}: no {', '.join(SUFFIXES)} file in this folder")
            found += inside
        elif not path.exists():
            raise DataError(f"no file {str(path)!r}")
        elif not _suffix(path):
            known = ", ".join((*SUFFIXES, *(f".jsonl{packed}" for packed in PACKED)))
            raise DataError(f"{path}: unknown kind of file; known are {known}")
        else:
            found.append(path)
    for path in found:
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty")
    return found


def _suffix(path: Path) -> str:
    """The kind of a file, compression left aside; empty if unknown."""
    suffixes = path.suffixes
    if suffixes and suffixes[-1] in PACKED:
        suffixes = suffixes[:-1]
    return suffixes[-1] if suffixes and suffixes[-1] in SUFFIXES else ""


@dataclass(frozen=True)
class Files:
    """Text files. ``drop_cut_ends`` leaves out what stands before the first and after the last
    end-of-text marker of a .txt file: a cut-out of a larger one begins and ends in mid-story."""

    paths: tuple[Path, ...]
    column: str = "text"
    drop_cut_ends: bool = False
    split: Split | None = None
    first: int = 0

    @property
    def total(self) -> int | None:
        return sum(path.stat().st_size for path in self.paths)

    @property
    def own_split(self) -> bool:
        return self.split is not None

    def describe(self) -> dict[str, Any]:
        files = [{"name": path.name, "bytes": path.stat().st_size} for path in self.paths]
        return {"kind": "files", "files": files, "column": self.column,
                "drop_cut_ends": self.drop_cut_ends}  # fmt: skip

    def state(self) -> list[int]:
        return [path.stat().st_mtime_ns for path in self.paths]

    def chunks(self) -> Iterator[Chunk]:
        first, behind = self.first, 0
        for path in self.paths:
            size = path.stat().st_size
            for chunk in self._of_file(path, first, behind, size):
                yield chunk
                first = chunk.first + chunk.count
            behind += size

    def _of_file(self, path: Path, first: int, behind: int, size: int) -> Iterator[Chunk]:
        kind = _suffix(path)
        if kind == ".parquet":
            yield from self._parquet(path, first, behind)
            return
        try:
            with path.open("rb") as raw, _unpacked(raw, path) as file:
                pieces = self._texts(file) if kind == ".txt" else _lines(file)
                line = 0
                for payload, count in pieces:
                    done = behind + min(size, raw.tell())
                    name = "txt" if kind == ".txt" else "jsonl"
                    yield Chunk(first, count, cast(Kind, name), payload, str(path), line,
                                self.split, done)  # fmt: skip
                    first, line = first + count, line + count
        except (EOFError, gzip.BadGzipFile) as error:
            raise DataError(f"{path}: the compressed file is damaged: {error}") from None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error}") from None

    def _texts(self, file: IO[bytes]) -> Iterator[tuple[list[tuple[int, bytes]], int]]:
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
                yield documents, len(documents)
                documents, size = [], 0
        if documents:
            yield documents, len(documents)

    def _parquet(self, path: Path, first: int, behind: int) -> Iterator[Chunk]:
        file = open_parquet(path, self.column)
        groups = file.metadata.num_row_groups
        for group in range(groups):
            rows = file.metadata.row_group(group).num_rows
            done = behind + path.stat().st_size * (group + 1) // groups
            yield Chunk(first, rows, "parquet", group, str(path), 0, self.split, done)
            first += rows


def _between_marks(file: IO[bytes]) -> Iterator[tuple[int, bytes, bool]]:
    """(place, bytes, whether a marker ended it) of every stretch of a file.

    Only what is new is searched, so a long document costs no more than a short one.
    """
    place, rest = 0, bytearray()
    while block := file.read(CHUNK_BYTES):
        searched = max(0, len(rest) - len(MARKER) + 1)
        rest += block
        start = 0
        while (end := rest.find(MARKER, max(start, searched))) >= 0:
            yield place + start, bytes(rest[start:end]), True
            start = end + len(MARKER)
        place += start
        del rest[:start]
    yield place, bytes(rest), False


def _stripped(place: int, document: bytes) -> tuple[int, bytes]:
    """Line ends around a marker are the file's layout, not the document's."""
    bare = document.strip()
    return place + len(document) - len(document.lstrip()), bare


def _lines(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Whole lines, about a megabyte at a time, with their number."""
    while data := file.read(CHUNK_BYTES):
        data += file.readline()
        yield data, data.count(b"\n") + (not data.endswith(b"\n"))


def _unpacked(raw: IO[bytes], path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if path.suffix == ".zst":
        import zstandard  # noqa: PLC0415

        return io.BufferedReader(cast(Any, zstandard.ZstdDecompressor().stream_reader(raw)))
    return raw


def open_parquet(path: Path | str, column: str) -> Any:
    """A parquet file that has the column; otherwise an error says which it has."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a parquet file: {error}") from None
    names = file.schema_arrow.names
    if column not in names:
        raise DataError(f"{path} has no column {column!r}; it has {', '.join(names)}: use --column")
    return file


@dataclass(frozen=True)
class Parts:
    """Several sources one after the other: a corpus that comes with its own validation split."""

    parts: tuple[Files, ...]
    own_split: bool = True

    @property
    def total(self) -> int | None:
        return sum(part.total or 0 for part in self.parts)

    def describe(self) -> dict[str, Any]:
        return {"kind": "parts", "parts": [{"split": p.split, **p.describe()} for p in self.parts]}

    def state(self) -> list[int]:
        return [time for part in self.parts for time in part.state()]

    def chunks(self) -> Iterator[Chunk]:
        behind = 0
        for part in self.parts:
            for chunk in part.chunks():
                yield Chunk(**{**chunk.__dict__, "done": behind + chunk.done})
            behind += part.total or 0


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

    def chunks(self) -> Iterator[Chunk]:
        size = 1000
        for first in range(0, self.stories, size):
            count = min(size, self.stories - first)
            yield Chunk(first, count, "tales", self.seed, done=first + count)
