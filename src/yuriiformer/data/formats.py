"""File formats that need help: compressed text and parquet."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import IO, Any, cast

from yuriiformer.errors import DataError, one_line


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
        self.ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            data = self.waiting or self.raw.read(2**18)
            self.waiting = b""
            if not data:
                if self.frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            self.frame = self.frame or self.library.decompressobj()
            self.ready = self.frame.decompress(data)
            if self.frame.eof:
                self.waiting, self.frame = self.frame.unused_data, None
        taken = self.ready[: len(buffer)]
        buffer[: len(taken)] = taken
        self.ready = self.ready[len(taken) :]
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
