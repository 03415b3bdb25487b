"""The words of the tales, by pool: ``words.txt``, read.

A word has all the forms that the grammar asks for, so that a character keeps the right pronoun and
a dish the right filling wherever they are mentioned. No word of a pool is the beginning of another
one, in any form that a story may introduce it by: that is how a reader knows it.
"""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

_HE = ("he", "him", "his", "He", "His", "boy")
_SHE = ("she", "her", "her", "She", "Her", "girl")
_PRONOUNS = ("it", "he", "him", "his", "He", "His")


class Pool(NamedTuple):
    """Words with the same forms; the first form is called ``it``."""

    forms: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]


def with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _pool(kind: str, forms: tuple[str, ...], text: str) -> Pool:
    if kind == "table":
        rows = [[cell.strip() for cell in line.split("|")] for line in text.split("\n")]
        if "a" in forms:
            rows = [[first, with_article(first), *rest] for first, *rest in rows]
        return Pool(forms, tuple(map(tuple, rows)))
    if kind == "people":
        names = [(name, _SHE if i % 2 else _HE) for i, name in enumerate(text.split())]
        words = [(name, *own, f"{own[-1]} named {name}") for name, own in names]
        return Pool((*_PRONOUNS, "boy", "born"), tuple(words))
    listed = [" ".join(word.split()) for word in text.split(",")]
    if kind == "kin":
        kin = [(name, *(_HE if i % 2 else _SHE)[:-1]) for i, name in enumerate(listed)]
        return Pool(_PRONOUNS, tuple(kin))
    if kind == "nouns":
        return Pool(("it", "a"), tuple((word, with_article(word)) for word in listed))
    return Pool(("it",), tuple((word,) for word in listed))


def _read() -> dict[str, Pool]:
    text = resources.files("yuriiformer.data.tales").joinpath("words.txt").read_text("utf-8")
    lines = [line.rstrip() for line in text.split("\n") if not line.startswith("#")]
    found = {}
    for block in "\n".join(lines).strip().split("\n\n"):
        head, _, words = block.partition("\n")
        name, kind, *forms = head.split()
        found[name] = _pool(kind, tuple(forms), words.replace("|\n", "|").strip())
    return found


POOLS = _read()
