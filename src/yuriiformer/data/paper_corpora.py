"""The paper's two corpora: how they are read from the hub, what the paper counts in them, and
whether prepared data are the same.

Data are the ``same`` if they come from the corpus and every count is the paper's as it is printed;
``near`` if it is the whole corpus with another split (the paper's own cannot be recovered), or if
only the counts are known; else ``other``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

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


Grade = Literal["same", "near", "other"]
WHOLE = 0.02  # a corpus whose size is within this part of the paper's is the whole corpus
TOKENIZER = "gpt2"
WORDS = {
    "train_documents": "training documents",
    "val_documents": "validation documents",
    "train_tokens": "training tokens",
    "val_tokens": "validation tokens",
}


@dataclass(frozen=True)
class Printed:
    """A count as the paper prints it; ``rounded`` is the unit it is rounded to."""

    value: int
    rounded: int
    text: str

    def fits(self, count: int) -> bool:
        return 2 * abs(count - self.value) <= self.rounded


@dataclass(frozen=True)
class PaperCorpus:
    """``tokens`` is the size of both splits together."""

    name: str
    title: str
    hub: str
    tokens: int
    counts: Mapping[str, Printed]


CORPORA = {
    each.name: each
    for each in (
        PaperCorpus(
            "tinystories",
            "TinyStories",
            TINYSTORIES,
            473_992_236,  # counted: GPT-2's tokens of the training split with an end mark per story
            {
                "train_tokens": Printed(471_600_000, 100_000, "471.6 M"),
                "val_tokens": Printed(2_370_000, 10_000, "2.37 M"),
            },
        ),
        PaperCorpus(
            "openwebtext",
            "OpenWebText",
            OPENWEBTEXT,
            9_050_000_000,
            {
                "train_documents": Printed(7_630_278, 1, "7,630,278"),
                "val_documents": Printed(383_491, 1, "383,491"),
                "train_tokens": Printed(8_620_000_000, 10_000_000, "8.62 B"),
                "val_tokens": Printed(432_000_000, 1_000_000, "432 M"),
            },
        ),
    )
}


def source_name(source: Mapping[str, Any]) -> str:
    """A corpus of the paper by its name, else the kind of the source that ``meta.json`` tells."""
    for each in CORPORA.values():
        if source.get("name") == each.hub or source.get("corpus") == each.name:
            return each.name
    return str(source["kind"])


@dataclass(frozen=True)
class DataMatch:
    """How far data are the paper's, and in words what is not."""

    grade: Grade
    said: str = ""


def match_data(corpus: PaperCorpus, facts: Mapping[str, Any]) -> DataMatch:
    """``facts`` are what a run or a store tells of its data: ``source``, ``tokenizer`` and counts
    of tokens and documents."""
    source, tokenizer = facts.get("source"), facts.get("tokenizer")
    if source not in (None, corpus.name):
        return DataMatch("other", f"the data are not {corpus.title} (source: {source})")
    if tokenizer not in (None, TOKENIZER):
        return DataMatch("other", f"the tokeniser is {tokenizer}, and the paper's {TOKENIZER}")
    differ = [
        f"{facts[key]:,} {WORDS[key]} (paper {printed.text})"
        for key, printed in corpus.counts.items()
        if key in facts and not printed.fits(facts[key])
    ]
    size = facts.get("train_tokens", 0) + facts.get("val_tokens", 0)
    if source is None:
        if differ:
            return DataMatch("other", "the data have " + ", ".join(differ))
        return DataMatch("near", "the source of the data is not recorded, only their counts fit")
    if not differ:
        return DataMatch("same")
    if abs(size - corpus.tokens) > WHOLE * corpus.tokens:
        return DataMatch("other", f"the data are a part of {corpus.title}: " + ", ".join(differ))
    return DataMatch("near", f"{corpus.title} is split otherwise: " + ", ".join(differ))


def beside_the_paper(facts: Mapping[str, Any]) -> str | None:
    """A line for data that are prepared from one of the two; None for others."""
    corpus = CORPORA.get(str(facts.get("source")))
    if corpus is None:
        return None
    found = match_data(corpus, facts)
    counts = ", ".join(f"{each.text} {WORDS[key]}" for key, each in corpus.counts.items())
    if found.grade == "same":
        return f"these are the paper's counts of {corpus.title}: {counts}"
    verdict = "nearly the paper's data" if found.grade == "near" else "not the paper's data"
    return f"{verdict}: {found.said}. The paper's {corpus.title} has {counts}"
