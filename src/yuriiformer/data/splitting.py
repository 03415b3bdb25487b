"""What is held out for validation: whole documents, or the last part of each document.

Neither depends on chunks or workers: a document's split follows from its index in the corpus, and
the place where a document is cut follows from its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from yuriiformer.data.order import hash_words, uniform
from yuriiformer.data.records import Chunk, ChunkReader, Split

SplitBy = Literal["auto", "documents", "tail"]
ENOUGH = 8  # documents on each side: then the split by document works, and no more are read
TINY = 0.25  # of the text that a side was meant to get
_SPLIT = 3  # what the hash is for

# Where a document may be cut, best first. What matches stays in front of the cut.
_BREAKS = [
    re.compile(each) for each in (r"\n\s*\n\s*", r"\n\s*", r"[.!?…]\W*?\s+|[。！？]", r"\s+")
]


def is_validation(seed: int, index: Any, fraction: float) -> Any:
    """Which documents, by their index in the corpus, are held out."""
    return uniform(hash_words(seed, _SPLIT, index)) < fraction


def cut_place(text: str, fraction: float) -> int:
    """Where the last ``fraction`` of a text begins: at a paragraph if one begins near there, or
    else at a line, a sentence, a word. The text's length if it is too short to be cut."""
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    share = round(end * fraction)
    wanted, reach = end - share, share // 2
    for pattern in _BREAKS:
        found = [match.end() for match in pattern.finditer(text, wanted - reach, wanted + reach)]
        places = [place for place in found if start < place < end]
        if places:
            return min(places, key=lambda place: abs(place - wanted))
    return wanted if share and start < wanted else len(text)


@dataclass(frozen=True)
class Splitter:
    """Divides documents into training and validation.

    Args:
        by: whole documents (where hash(seed, index) is below the fraction), or each one's tail.
        seed: of the hash.
        fraction: how much is validation: of the documents, or of each document.
    """

    by: SplitBy
    seed: int
    fraction: float

    def parts(self, chunk: Chunk, documents: Sequence[str | None]) -> list[tuple[Split, str]]:
        """The texts of a chunk's documents with their splits, in order."""
        kept = [(place, text) for place, text in enumerate(documents) if text]
        if self.by == "tail" and chunk.split is None:
            return [part for _, text in kept for part in self._cut(text)]
        index = chunk.first + np.array([place for place, _ in kept], dtype=np.int64)
        held_out = is_validation(self.seed, index, self.fraction)
        splits: list[Split] = [chunk.split or ("val" if out else "train") for out in held_out]
        return [(split, text) for split, (_, text) in zip(splits, kept, strict=True)]

    def _cut(self, text: str) -> list[tuple[Split, str]]:
        place = cut_place(text, self.fraction)
        head: list[tuple[Split, str]] = [("train", text[:place])]
        return head + [("val", text[place:])] * (place < len(text))


def why_not_by_document(chunks: Iterable[Chunk], splitter: Splitter, *, strict: bool) -> str | None:
    """What is wrong with a split by document: a side would be empty or tiny. Reads only until both
    sides have enough."""
    documents: dict[Split, int] = {"train": 0, "val": 0}
    text: dict[Split, int] = {"train": 0, "val": 0}
    for chunk in chunks:
        for split, document in splitter.parts(chunk, ChunkReader(strict=strict).documents(chunk)):
            documents[split] += 1
            text[split] += len(document)
        if min(documents.values()) >= ENOUGH and not _tiny(text, splitter.fraction):
            return None
    names: dict[Split, str] = {"train": "training", "val": "validation"}
    tiny = _tiny(text, splitter.fraction)
    if tiny is None:
        return None
    if not documents[tiny]:
        return f"by document, the {names[tiny]} side would be empty"
    share = 100 * text[tiny] / sum(text.values())
    return f"by document, the {names[tiny]} side would have only {share:.2g} % of the text"


def _tiny(text: dict[Split, int], fraction: float) -> Split | None:
    """A side that gets much less text than it was meant to get."""
    whole = sum(text.values())
    if text["val"] < TINY * fraction * whole:
        return "val"
    return "train" if text["train"] < TINY * (1 - fraction) * whole else None
