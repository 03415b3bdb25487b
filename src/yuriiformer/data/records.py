"""Chunks of records, and how they are read: compressed text, parquet, JSON lines.

Errors name the record.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from yuriiformer.errors import DataError, one_line

Split = Literal["train", "val"]
Kind = Literal["txt", "jsonl", "parquet", "texts", "tales"]

# Four bytes can stand for a block of 128 KiB, so this much becomes 64 MiB at most.
ZSTD_BYTES = 2**11
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Chunk:
    """Records to be read by a worker."""

    first: int  # index of its first record in the corpus
    count: int  # how many records it has
    kind: Kind
    payload: Any
    path: str = ""
    before: int = 0  # records before it in its file
    column: str = "text"
    split: Split | None = None  # where the source itself says so
    done: int = 0  # how much of the source's total is behind its end


class ChunkReader:
    """Reads chunks; counts documents that were not valid UTF-8 (or stops at the first)."""

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.invalid = 0

    def documents(self, chunk: Chunk) -> list[str | None]:
        """All records in order; None is a record without text."""
        return [document or None for document in self._records(chunk)]

    def _records(self, chunk: Chunk) -> Iterator[str | None]:
        if chunk.kind == "txt":
            for offset, record in chunk.payload:
                bare = record.removeprefix(BOM) if offset == 0 else record
                yield self._decode(bare, chunk.path, offset + len(record) - len(bare))
        elif chunk.kind == "jsonl":
            data = chunk.payload if chunk.before else chunk.payload.removeprefix(BOM)
            lines = data.removesuffix(b"\n").split(b"\n")
            for number, line in enumerate(lines, chunk.before + 1):
                yield self._from_json(line, chunk.column, f"{chunk.path}:{number}")
        elif chunk.kind == "parquet":
            values = parquet_values(chunk.payload, chunk.path, chunk.column)
            for number, value in enumerate(values, chunk.before + 1):
                where = f"{chunk.path}, row {number}"
                yield None if value is None else self._decode(value, where)
        elif chunk.kind == "texts":
            for number, value in enumerate(chunk.payload, chunk.before + 1):
                yield self._checked(value, chunk.column, f"{chunk.path}, row {number}")
        else:
            from yuriiformer.data.tales.grammar import story  # noqa: PLC0415

            for index in range(chunk.first, chunk.first + chunk.count):
                yield story(chunk.payload, index)

    def _decode(self, record: bytes, where: str, offset: int = 0) -> str:
        """Bytes as text; what is not UTF-8 is replaced and counted, or stops everything."""
        try:
            return record.decode("utf-8")
        except UnicodeDecodeError as error:
            if self.strict:
                raise DataError(
                    f"{where}, byte {offset + error.start}: not valid UTF-8 (without --strict it "
                    "is replaced and counted)"
                ) from None
        self.invalid += 1
        return record.decode("utf-8", "replace")

    def _from_json(self, line: bytes, column: str, where: str) -> str | None:
        """The text of one line; a blank line is a record without text."""
        text = self._decode(line, where).strip()
        if not text:
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON: {error}") from None
        if not isinstance(data, dict):
            raise DataError(f"{where}: a line must be an object with the text in {column!r}")
        if column not in data:
            keys = ", ".join(map(str, data)) or "none"
            raise DataError(f"{where}: no column {column!r}; it has {keys}: use --column")
        return self._checked(data[column], column, where)

    def _checked(self, value: object, column: str, where: str) -> str | None:
        if value is None:
            return None
        if not isinstance(value, str):
            raise DataError(f"{where}: column {column!r} holds no text but {value!r:.40}")
        return value if value.isascii() else self._without_surrogates(value, where)

    def _without_surrogates(self, text: str, where: str) -> str:
        """JSON can write half a character (\\ud800); no UTF-8 has it."""
        try:
            text.encode()
        except UnicodeEncodeError:
            if self.strict:
                reason = "half a surrogate pair is not valid text (without --strict it is replaced)"
                raise DataError(f"{where}: {reason}") from None
            self.invalid += 1
            return text.encode("utf-8", "replace").decode()
        return text


def unpacked(raw: IO[bytes], path: Path) -> IO[bytes]:
    """The file's contents, decompressed if its name says so; a cut file ends in an EOFError."""
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    if path.suffix == ".zst":
        return io.BufferedReader(_Zstd(raw), 2**20)
    return raw


def zstd_error() -> type[Exception]:
    """The exception of a damaged .zst file (a class that is never raised if zstd is missing)."""
    try:
        import zstandard  # noqa: PLC0415
    except ModuleNotFoundError:
        return EOFError
    return zstandard.ZstdError


class _Zstd(io.RawIOBase):
    """Frames of a .zst file, one after the other.

    Written here because the library's own reader accepts a truncated file as complete.
    """

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard  # noqa: PLC0415

        self.raw = raw
        self.library = zstandard.ZstdDecompressor()
        self.frame: Any = None
        self.waiting = b""
        self.ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            data = self.waiting or self.raw.read(ZSTD_BYTES)
            self.waiting = b""
            if not data:
                if self.frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            self.frame = self.frame or self.library.decompressobj()
            self.ready = memoryview(self.frame.decompress(data))
            if self.frame.eof:
                self.waiting, self.frame = self.frame.unused_data, None
        taken = self.ready[: len(buffer)]
        buffer[: len(taken)] = taken
        self.ready = self.ready[len(taken) :]  # a view: nothing is copied
        return len(taken)


def open_parquet(path: Path | str, column: str) -> Any:
    """A parquet file that has the column; otherwise an error says which it has."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a parquet file: {one_line(error)}") from None
    names = file.schema_arrow.names
    if column not in names:
        raise DataError(f"{path} has no column {column!r}; it has {', '.join(names)}: use --column")
    return file


def parquet_values(array: Any, where: str, column: str) -> list[bytes | None]:
    """The texts of a column as bytes, not yet trusted to be UTF-8."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    if not any(check(kind) for check in (*is_text, pa.types.is_null)):
        raise DataError(f"{where}: column {column!r} holds no text but {kind}")
    values: list[bytes | None] = array.cast(pa.large_binary()).to_pylist()
    return values
