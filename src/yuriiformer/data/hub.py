"""Corpora on the Hugging Face hub, streamed, with the revision that was read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from yuriiformer.data.records import Chunk, Split
from yuriiformer.errors import DataError, one_line

RECORDS = 1000  # a chunk
TINYSTORIES, OPENWEBTEXT = "roneneldan/TinyStories", "Skylion007/openwebtext"


@dataclass(frozen=True)
class Hub:
    """A dataset of the hub; ``splits`` are read one after the other.

    ``own_split`` takes the hub's validation split as ours; otherwise documents are split by hash.
    """

    name: str
    splits: tuple[str, ...]
    revision: str
    column: str = "text"
    own_split: bool = False

    @property
    def total(self) -> int | None:
        """Records, where the hub knows their number."""
        total = 0
        for split in self.splits:
            known = (self._open(split).info.splits or {}).get(split)
            if known is None or not known.num_examples:
                return None
            total += known.num_examples
        return total

    def describe(self) -> dict[str, Any]:
        where = {"name": self.name, "splits": list(self.splits), "revision": self.revision}
        return {"kind": "hub", **where, "column": self.column}

    def state(self) -> list[int]:
        return []  # a revision does not change

    def chunks(self, skip: int = 0) -> Iterator[Chunk]:
        first = 0
        for split in self.splits:
            rows, before = self._open(split), 0
            if len(self.splits) == 1:  # skipped records are not fetched
                rows, first, before, skip = rows.skip(skip * RECORDS), skip * RECORDS, 0, 0
            for batch in self._batches(rows):
                if skip:
                    skip -= 1
                else:
                    ours: Split | None = None
                    if self.own_split:
                        ours = "train" if split == "train" else "val"
                    chunk = Chunk(first, len(batch), "texts", batch, self.name, before, self.column)
                    yield replace(chunk, split=ours, done=first + len(batch))
                first, before = first + len(batch), before + len(batch)

    def _open(self, split: str) -> Any:
        import datasets  # noqa: PLC0415

        try:
            return datasets.load_dataset(
                self.name, split=split, streaming=True, revision=self.revision
            )
        except Exception as error:  # the client lets many kinds of network error through
            raise _out_of_reach(self.name, error) from None

    def _batches(self, rows: Any) -> Iterator[list[Any]]:
        stream = iter(rows)
        while True:
            try:
                batch = list(itertools.islice(stream, RECORDS))
            except Exception as error:
                raise _out_of_reach(self.name, error) from None
            if not batch:
                return
            for row in batch:
                if self.column not in row:
                    has = ", ".join(row)
                    raise DataError(
                        f"{self.name} has no column {self.column!r}; it has {has}: use --column"
                    )
            yield [row[self.column] for row in batch]


def find_revision(name: str, revision: str | None = None) -> str:
    """The exact revision that is current now (or was asked for)."""
    try:
        from huggingface_hub import HfApi  # noqa: PLC0415

        info = HfApi().dataset_info(name, revision=revision, timeout=20)
    except ModuleNotFoundError as error:
        raise DataError(
            f"reading the hub needs the package {error.name!r}: pip install 'yuriiformer[data]'"
        ) from None
    except Exception as error:
        raise _out_of_reach(name, error) from None
    return str(info.sha)


def _out_of_reach(name: str, error: Exception) -> DataError:
    reason = one_line(error)[:160]
    return DataError(
        f"the hub's dataset {name} cannot be read ({reason}). Without a network: download its "
        "files elsewhere and pass --from PATH, or use 'yurii prepare tales', which needs none"
    )
