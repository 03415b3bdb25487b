"""Corpora on the Hugging Face hub, streamed, with the revision that was read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yuriiformer.data.sources import Chunk, Split
from yuriiformer.errors import DataError

RECORDS = 1000  # a chunk


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
    total: int | None = None

    def describe(self) -> dict[str, Any]:
        return {"kind": "hub", "name": self.name, "splits": list(self.splits),
                "revision": self.revision, "column": self.column}  # fmt: skip

    def state(self) -> list[int]:
        return []  # a revision does not change

    def chunks(self) -> Iterator[Chunk]:
        import datasets  # noqa: PLC0415

        first = 0
        for split in self.splits:
            try:
                rows = datasets.load_dataset(
                    self.name, split=split, streaming=True, revision=self.revision
                )
                texts = (row[self.column] for row in rows)
                while batch := list(itertools.islice(texts, RECORDS)):
                    ours: Split | None = None
                    if self.own_split:
                        ours = "train" if split == "train" else "val"
                    yield Chunk(first, len(batch), "texts", batch, split=ours)
                    first += len(batch)
            except KeyError:
                raise DataError(f"{self.name}: no column {self.column!r}: use --column") from None
            except (OSError, ValueError, RuntimeError) as error:
                raise _out_of_reach(self.name, error) from None


def find_revision(name: str, revision: str | None = None) -> str:
    """The exact revision that is current now (or was asked for)."""
    try:
        from huggingface_hub import HfApi  # noqa: PLC0415

        info = HfApi().dataset_info(name, revision=revision, timeout=20)
    except ModuleNotFoundError as error:
        raise DataError(
            f"reading the hub needs the package {error.name!r}: pip install 'yuriiformer[data]'"
        ) from None
    except Exception as error:  # the client lets many kinds of network error through
        raise _out_of_reach(name, error) from None
    return str(info.sha)


def _out_of_reach(name: str, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return DataError(
        f"the hub's dataset {name} cannot be read ({reason}). Without a network: download its "
        "files elsewhere and pass --from PATH, or use 'yurii prepare tales', which needs none"
    )
