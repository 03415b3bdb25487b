"""What a run takes from its data: the vocabulary, and what tells them from other data."""

from __future__ import annotations

from typing import Any

from yuriiformer.config import TrainConfig
from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import GPT2, padded

LOOK = 1_000_000  # tokens of a file that does not say its vocabulary
CHARACTERS = 1024  # more ids than a vocabulary of characters has


def fill_vocabulary(config: TrainConfig, store: TokenStore) -> TrainConfig:
    """The data's vocabulary. nanoGPT's files do not say theirs: GPT-2's, unless only few ids occur
    in a part that is quick to read (characters)."""
    if store.meta is not None:
        return config.with_vocabulary(store.padded_vocab_size, store.vocab_size)
    parts = [store.val[:LOOK], store.train[:LOOK]]
    used = max((int(part.max()) + 1 for part in parts if len(part)), default=1)
    if used <= CHARACTERS:  # then all must be read: a rare one may come late
        used = store.used_vocab_size
    size = used if used <= CHARACTERS else GPT2.vocab_size
    return config.with_vocabulary(padded(size), size)


def data_identity(store: TokenStore) -> dict[str, Any]:
    """What tells one corpus from another, wherever its folder stands."""
    known = {"train_tokens": len(store.train), "val_tokens": len(store.val)}
    if store.meta is None:
        return known
    splits = store.meta["splits"]
    hashes = {f"{split}_sha256": splits[split]["sha256"] for split in ("train", "val")}
    return {**known, **hashes, "tokenizer": store.meta["tokenizer"]["name"]}
