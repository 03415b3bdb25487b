"""HellaSwag and ARC-Easy: the real ones, where they are at hand, and small made-up ones."""

from __future__ import annotations

import json
import random
from itertools import islice
from pathlib import Path

import pytest

import yuriiformer as yf
from tests.data.shared import SHARED
from tests.model.tiny import tiny, unsettle

HELLASWAG = "hellaswag/hellaswag_val.jsonl"
ARC = tuple(f"arc_easy/ARC-Easy-{split}.jsonl" for split in ("train", "validation", "test"))

needs_tasks = pytest.mark.skipif(
    not all((SHARED / name).exists() for name in (HELLASWAG, *ARC)),
    reason="no HellaSwag and ARC-Easy files here",
)
WORDS = (
    "a",
    "the",
    "cat",
    "dog",
    "tree",
    "river",
    "child",
    "runs",
    "sleeps",
    "under",
    "over",
    "red",
)


def real(folder: Path, items: int) -> Path:
    """The first items of each real file, laid out the same way."""
    for name in (HELLASWAG, *ARC):
        with (SHARED / name).open(encoding="utf-8") as file:
            _write(folder / name, "".join(islice(file, items)))
    return folder


def made_up(folder: Path, items: int = 6, *, train: bool = False) -> Path:
    """So many items in each file; HellaSwag has a train file only if asked."""
    draw = random.Random(0)
    names = [HELLASWAG] + ["hellaswag/hellaswag_train.jsonl"] * train
    for name in names:
        lines = [json.dumps(hellaswag(draw, f"{name[10]}{i}")) for i in range(items)]
        _write(folder / name, "\n".join(lines) + "\n")
    for name in ARC:
        lines = [json.dumps(arc(draw, f"{name[18:20]}{i}")) for i in range(items)]
        _write(folder / name, "\n".join(lines) + "\n")
    return folder


def some(draw: random.Random, least: int, most: int) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(least, most)))


def hellaswag(draw: random.Random, mark: str) -> dict:
    return {
        "activity_label": f"Number {mark}",
        "ctx_a": f"[header] {some(draw, 2, 4)} [title]  {some(draw, 1, 3)}.",
        "ctx_b": draw.choice(["", "she"]),
        "endings": [some(draw, 1, 6) for _ in range(4)],
        "label": draw.randrange(4),
    }


def arc(draw: random.Random, mark: str) -> dict:
    choices = draw.choice([3, 4, 5])
    labels = list(draw.choice(["ABCDE", "12345"]))[:choices]
    texts = [some(draw, 1, 5) for _ in labels]
    return {
        "question": f"Which is number {mark}?",
        "choices": {"text": texts, "label": labels},
        "answerKey": draw.choice(labels),
    }


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def byte_model(rule: str = "nesterov-lie-trotter", *, context: int = 160) -> yf.YuriiFormer:
    """A model of bytes with weights that tell tokens apart."""
    model = tiny(rule, n_layer=2, vocab_size=320, valid_vocab=257, context=context)
    return unsettle(model)
