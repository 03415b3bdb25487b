"""A prepared corpus as text and plots: numbers, samples, token frequencies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from yuriiformer.data.order import BatchOrder
from yuriiformer.data.paper_corpora import beside_the_paper
from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import Tokens
from yuriiformer.errors import DataError

_PIECE = 2**22  # tokens counted at a time


def token_counts(tokens: Tokens, vocab_size: int) -> NDArray[np.int64]:
    """How often each id occurs; the file is read piece by piece."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for start in range(0, len(tokens), _PIECE):
        found = np.bincount(tokens[start : start + _PIECE], minlength=vocab_size)
        if len(found) > vocab_size:
            raise DataError(f"token id {len(found) - 1} occurs, but the vocabulary is {vocab_size}")
        counts += found
    return counts


def unigram_entropy(counts: NDArray[np.int64]) -> float:
    """Nats per token of a model that knows only how frequent tokens are."""
    share = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(share * np.log(share)).sum())


def samples(store: TokenStore, number: int, *, characters: int = 300) -> list[str]:
    """The beginnings of the first documents of the validation split (or of the training split)."""
    tokenizer = store.tokenizer()
    tokens = store.val if len(store.val) else store.train
    head = np.asarray(tokens[: 2000 * number])
    pieces = np.split(head, np.flatnonzero(head == tokenizer.end_of_text) + 1)
    texts = (tokenizer.decode(p[p != tokenizer.end_of_text]) for p in pieces[:number] if len(p))
    return [text[:characters] + ("…" if len(text) > characters else "") for text in texts]


def describe_store(store: TokenStore, *, context: int, sequences: int) -> dict[str, Any]:
    """Everything about a corpus as plain data."""
    vocab = store.used_vocab_size
    counts = token_counts(store.train, vocab)
    enough = len(store.train) > context
    order = BatchOrder(max(len(store.train), context + 1), context, sequences)
    tokenizer = store.tokenizer() if store.meta else None
    return {
        "folder": str(store.folder),
        "meta": store.meta,
        "paper": beside_the_paper(store.facts),
        "tokens": {"train": len(store.train), "val": len(store.val)},
        "vocabulary": {
            "size": vocab,
            "used": int((counts > 0).sum()),
            "unigram_entropy": unigram_entropy(counts),
        },
        "blocks": order.blocks if enough else 0,
        "steps_per_epoch": order.steps_per_epoch if enough else 0.0,
        "most_frequent": [
            {
                "id": int(i),
                "text": tokenizer.decode([int(i)]) if tokenizer else None,
                "share": float(counts[i] / max(counts.sum(), 1)),
            }
            for i in np.argsort(-counts, kind="stable")[:12]
        ],
    }


def tales_floor(meta: dict[str, Any]) -> str | None:
    """The lowest possible loss, where the entropy of the text is known: on generated tales."""
    if meta["source"]["kind"] != "tales" or meta["settings"].get("split") == "tail":
        return None
    documents = sum(split["documents"] for split in meta["splits"].values())
    tokens = sum(split["tokens"] for split in meta["splits"].values()) / max(1, documents)
    if not tokens:
        return None
    from yuriiformer.data.tales.grammar import entropy_per_story  # noqa: PLC0415  reads the grammar

    nats = entropy_per_story()
    return (
        f"a tale's entropy is {nats:.3f} nats, and a tale has {tokens:.1f} tokens here: on whole "
        f"stories no model's expected loss is below {nats / tokens:.4f} nats per token"
    )


def store_text(data: dict[str, Any], shown: list[str], *, context: int, sequences: int) -> str:
    """The same for reading."""
    meta = data["meta"]
    lines = [data["folder"]]
    for split, tokens in data["tokens"].items():
        known = meta["splits"][split] if meta else {}
        extra = f" in {known['documents']:,} documents" if known else ""
        per = f", {known['text_bytes'] / max(tokens, 1):.2f} bytes per token" if known else ""
        lines.append(f"  {split}: {tokens:,} tokens{extra}{per}")
    if meta:
        t, settings = meta["tokenizer"], meta["settings"]
        share = f", validation {100 * settings['val_fraction']:g} %"
        seed = "" if settings.get("split") == "tail" else f", seed {settings['seed']}"
        sizes = f"{t['vocab_size']:,} tokens, padded to {t['padded_vocab_size']:,}"
        lines.append(f"  tokeniser {t['name']}: {sizes}; end of text is {t['end_of_text']}")
        own = meta["split_rule"].startswith("the source's")
        lines.append(f"  split: {meta['split_rule']}{'' if own else seed + share}")
        invalid = f"invalid UTF-8 in {meta['invalid_utf8_documents']:,}"
        empty = f"empty documents {meta['empty_documents']:,}"
        lines.append(f"  source: {meta['source']['kind']}; {empty}, {invalid}")
    else:
        lines.append("  no meta.json (nanoGPT's files): tokeniser and split are not known")
    vocabulary = data["vocabulary"]
    lines.append(f"  {vocabulary['used']:,} of {vocabulary['size']:,} ids occur")
    lines.append(f"  knowing only how often: {vocabulary['unigram_entropy']:.3f} nats per token")
    if data["blocks"]:
        steps = f"{data['steps_per_epoch']:.1f} steps of {sequences} sequences per epoch"
        lines.append(f"  {data['blocks']:,} blocks of {context} tokens; {steps}")
    else:
        lines.append(f"  too short for one block of {context} tokens: take a smaller --context")
    if meta and (said := tales_floor(meta) or data["paper"]):
        lines.append(f"  {said}")
    lines.append("  most frequent:")
    for token in data["most_frequent"]:
        share = token["share"]
        text = repr(token["text"]) if token["text"] is not None else f"id {token['id']}"
        lines.append(f"    {100 * share:5.2f} %  {'█' * max(1, round(400 * share)):<28.28}  {text}")
    for number, text in enumerate(shown, 1):
        lines += [f"  sample {number}:", *(f"    {line}" for line in text.splitlines())]
    return "\n".join(lines)


def plot_counts(store: TokenStore, path: Path) -> None:
    """How often tokens occur, by rank, on logarithmic axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415

    from yuriiformer.display.figures import save_figure  # noqa: PLC0415

    vocab = store.used_vocab_size
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes: Any = figure.add_subplot()
    for split, colour, style in (("train", "#0072B2", "-"), ("val", "#D55E00", "--")):
        counts = np.sort(token_counts(store.train if split == "train" else store.val, vocab))[::-1]
        counts = counts[counts > 0]
        if len(counts):
            ranks = np.arange(1, len(counts) + 1)
            axes.loglog(ranks, counts / counts.sum(), style, color=colour, label=split)
    axes.set_xlabel("rank of the token")
    axes.set_ylabel("share of all tokens")
    axes.set_title(f"Token frequencies in {store.folder.name}")
    axes.legend()
    axes.grid(alpha=0.3)
    save_figure(figure, path, dpi=150)
