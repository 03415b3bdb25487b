"""Reads the records of a chunk; errors name the record."""

from __future__ import annotations

import json
from collections.abc import Iterator

from yuriiformer.data.formats import parquet_values
from yuriiformer.data.sources import BOM, Chunk
from yuriiformer.errors import DataError


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
