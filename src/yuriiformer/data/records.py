"""What a worker does with a chunk: reads its records, and says what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from yuriiformer.data.sources import Chunk, open_parquet
from yuriiformer.errors import DataError


class ChunkReader:
    """Reads chunks; counts documents that were not valid UTF-8 (or stops at the first)."""

    def __init__(self, column: str = "text", *, strict: bool = False) -> None:
        self.column = column
        self.strict = strict
        self.invalid = 0

    def documents(self, chunk: Chunk) -> list[str | None]:
        """All records in order; None is a record without text."""
        return [document or None for document in self._records(chunk)]

    def _records(self, chunk: Chunk) -> Iterator[str | None]:
        if chunk.kind == "txt":
            for offset, record in chunk.payload:
                yield self._decode(record, chunk.path, offset)
        elif chunk.kind == "jsonl":
            lines = chunk.payload.removesuffix(b"\n").split(b"\n")
            for number, line in enumerate(lines, chunk.line + 1):
                yield self._from_json(line, f"{chunk.path}:{number}")
        elif chunk.kind == "parquet":
            file = open_parquet(chunk.path, self.column)
            table = file.read_row_group(chunk.payload, columns=[self.column])
            for value in table.column(0).to_pylist():
                yield self._checked(value, chunk.path)
        elif chunk.kind == "texts":
            yield from chunk.payload
        else:
            from yuriiformer.data.tales import story  # noqa: PLC0415

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

    def _from_json(self, line: bytes, where: str) -> str | None:
        """The text of one line; a blank line is a record without text."""
        text = self._decode(line, where).strip()
        if not text:
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not JSON: {error}") from None
        if not isinstance(data, dict):
            raise DataError(f"{where}: a line must be an object with the text in {self.column!r}")
        if self.column not in data:
            keys = ", ".join(map(str, data)) or "none"
            raise DataError(f"{where}: no column {self.column!r}; it has {keys}: use --column")
        return self._checked(data[self.column], where)

    def _checked(self, value: object, where: str) -> str | None:
        if value is None:
            return None
        if isinstance(value, str):
            return value if value.isascii() else self._without_surrogates(value, where)
        raise DataError(f"{where}: column {self.column!r} holds no text but {value!r:.40}")

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
