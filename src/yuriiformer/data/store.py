"""A prepared corpus, memory-mapped; nanoGPT's own folders open too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yuriiformer.data.paper_corpora import source_name
from yuriiformer.data.partial import COUNTS, JOURNAL, META
from yuriiformer.data.prepare import FORMAT
from yuriiformer.data.records import Split
from yuriiformer.data.tokenizers import (
    MAX_VOCABULARY,
    Tokenizer,
    Tokens,
    load_tokenizer,
    padded,
    same_tokens,
)
from yuriiformer.errors import DataError
from yuriiformer.files import sha256
from yuriiformer.reading import count, plain_text, read_object, reason


@dataclass(frozen=True)
class TokenStore:
    """Both splits of a corpus, and what is known of it (``meta`` is None for nanoGPT's files)."""

    folder: Path
    train: Tokens
    val: Tokens
    meta: dict[str, Any] | None

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> TokenStore:
        """Open a folder; sizes are always checked, with ``verify`` also every byte."""
        folder = Path(folder)
        if not folder.is_dir():
            hint = ""
            if folder.with_name(f"{folder.name}.partial").is_dir():
                hint = ": its preparation was stopped; give the same 'yurii prepare' again"
            raise DataError(f"no prepared data in {str(folder)!r}{hint}")
        if (folder / JOURNAL).exists():
            raise DataError(
                f"{folder} is an unfinished preparation: finish it with 'yurii prepare'"
            )
        meta = _read_meta(folder)
        splits: tuple[Split, Split] = ("train", "val")
        arrays = [_map_file(folder, split, meta, verify=verify) for split in splits]
        return cls(folder, arrays[0], arrays[1], meta)

    def check_unchanged(self) -> None:
        """Check that the token files are those that ``meta.json`` describes. A file that was not
        touched since its description was written needs no reading."""
        if self.meta is None:
            return
        try:
            described = (self.folder / META).stat().st_mtime_ns
            for split, known in self.meta["splits"].items():
                path = self.folder / f"{split}.bin"
                if path.stat().st_mtime_ns > described and sha256(path) != known["sha256"]:
                    raise DataError(
                        f"{path} was altered: its SHA-256 is not that of {META}; prepare the data "
                        "again, or put the file back"
                    )
        except OSError as error:
            raise DataError(f"{self.folder} cannot be read: {reason(error)}") from None

    def split(self, name: Split) -> Tokens:
        if name not in ("train", "val"):
            raise DataError(f"there is no split {name!r}: use 'train' or 'val'")
        return self.train if name == "train" else self.val

    @property
    def vocab_size(self) -> int:
        """Ids that can occur."""
        if self.meta is None:
            raise DataError(
                f"{self.folder} has no {META}, as nanoGPT leaves it: say its vocabulary yourself"
            )
        return int(self.meta["tokenizer"]["vocab_size"])

    @property
    def used_vocab_size(self) -> int:
        """The vocabulary, or (where it is not known) the ids that occur."""
        if self.meta is not None:
            return self.vocab_size
        return max(int(tokens.max()) + 1 if len(tokens) else 1 for tokens in (self.train, self.val))

    @property
    def padded_vocab_size(self) -> int:
        return padded(self.vocab_size)

    @property
    def identity(self) -> dict[str, Any]:
        """What tells one corpus from another, wherever its folder stands."""
        known = {"train_tokens": len(self.train), "val_tokens": len(self.val)}
        if self.meta is None:
            return known
        splits = self.meta["splits"]
        hashes = {f"{split}_sha256": splits[split]["sha256"] for split in ("train", "val")}
        return {**known, **hashes, "tokenizer": self.meta["tokenizer"]["name"]}

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the data: their identity, where they come from, how many documents."""
        return {**self.identity, **({} if self.meta is None else facts_of(self.meta))}

    def tokenizer(self) -> Tokenizer:
        if self.meta is None:
            raise DataError(f"{self.folder} has no {META}: its tokeniser is not known")
        known = self.meta["tokenizer"]
        return load_tokenizer(known["name"], self.folder, known["end_of_text"])

    def text_beside(self, name: str) -> TokenStore:
        """Another prepared text, in a folder beside this one; it must have the same tokens."""
        other = TokenStore.open(Path(os.path.abspath(self.folder)).parent / name)
        other.check_unchanged()
        if self.meta is None or other.meta is None:
            raise DataError(f"the tokeniser of {self.folder} or {other.folder} is not known")
        own = self.tokenizer()
        if not same_tokens(own, other.tokenizer()):
            wanted = own.name if own.to_text() is None else f"hf:{self.folder}"
            raise DataError(
                f"{other.folder} has other tokens than {self.folder}: prepare it with --tokenizer "
                f"{wanted}"
            )
        return other

    def sequences(
        self, split: Split, starts: NDArray[np.int64], context: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Inputs and targets that begin at ``starts``: int64, each (sequences, context)."""
        tokens = self.split(split)
        self._check_size(split, len(tokens))
        wrong = (starts < 0) | (starts + context >= len(tokens))
        if wrong.any():
            raise DataError(
                f"a sequence of {context} tokens and its last target cannot begin at "
                f"{starts[wrong][0]}: the {split} split has {len(tokens)} tokens"
            )
        windows = np.stack([tokens[start : start + context + 1] for start in starts.tolist()])
        whole = windows.astype(np.int64)
        return whole[:, :-1], whole[:, 1:]

    def _check_size(self, split: Split, tokens: int) -> None:
        """Check that a file was not cut meanwhile: reading beyond its end would end the process."""
        path = self.folder / f"{split}.bin"
        try:
            size = path.stat().st_size
        except OSError:
            return  # renamed or removed: what is mapped stays readable
        if size < 2 * tokens:
            raise DataError(f"{path} was cut while it was in use: {size // 2} of {tokens} tokens")

    def check_model(self, vocab_size: int, valid_vocab: int | None = None) -> None:
        """Check that a model's vocabulary is this data's."""
        real = valid_vocab if valid_vocab is not None else vocab_size
        if self.meta is not None and real not in (self.vocab_size, self.padded_vocab_size):
            name = self.meta["tokenizer"]["name"]
            raise DataError(
                f"the model has {real} token ids, but {self.folder} was made with tokeniser "
                f"{name}, which has {self.vocab_size}: they do not belong together"
            )


def facts_of(meta: dict[str, Any]) -> dict[str, Any]:
    """The same from ``meta.json``, without the hashes."""
    counts = {
        f"{split}_{what}": meta["splits"][split][what]
        for split in ("train", "val")
        for what in ("tokens", "documents")
    }
    names = {"source": source_name(meta["source"]), "tokenizer": meta["tokenizer"]["name"]}
    return {**counts, **names}


_SPLIT: dict[str, Any] = {**COUNTS, "sha256": str}
_FORM: dict[str, Any] = {  # of meta.json
    "format": int,
    "splits": {"train": _SPLIT, "val": _SPLIT},
    "tokenizer": {
        "name": plain_text,
        "vocab_size": count,
        "padded_vocab_size": count,
        "end_of_text": count,
    },
    "split_rule": plain_text,
    "source": {"kind": plain_text},
    "settings": {"seed": int, "val_fraction": float},
    "empty_documents": count,
    "invalid_utf8_documents": count,
}


def _read_meta(folder: Path) -> dict[str, Any] | None:
    path = folder / META
    if not path.is_file():
        return None
    meta = read_object(path, _FORM, DataError, FORMAT)
    known = meta["tokenizer"]
    if not 0 < known["vocab_size"] <= MAX_VOCABULARY or known["end_of_text"] >= MAX_VOCABULARY:
        raise DataError(f"{path} is damaged: token files hold numbers below {MAX_VOCABULARY:,}")
    return meta


def _map_file(folder: Path, split: Split, meta: dict[str, Any] | None, *, verify: bool) -> Tokens:
    path = folder / f"{split}.bin"
    if not path.is_file():
        raise DataError(f"{folder} holds no prepared data: there is no {path.name}")
    size = path.stat().st_size
    if size % 2:
        raise DataError(f"{path} has an odd number of bytes ({size}): not uint16 tokens")
    if meta is not None:
        known = meta["splits"][split]
        if size != 2 * known["tokens"]:
            raise DataError(
                f"{path} has {size // 2} tokens, but {META} says {known['tokens']}: it was cut or "
                "altered; prepare the data again"
            )
        if verify and sha256(path) != known["sha256"]:
            raise DataError(f"{path} was altered: its SHA-256 is not that of {META}")
    if size == 0:
        return np.zeros(0, dtype=np.uint16)
    return np.memmap(path, dtype="<u2", mode="r")
