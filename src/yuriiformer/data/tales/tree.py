"""The words of the tales, and the tree that a tale is a walk through, from their texts.

A word has all the forms that the grammar asks for, so that a character keeps the right pronoun and
a dish the right filling wherever they are mentioned. No word of a pool is the beginning of another
one, in any form that a story may introduce it by: that is how a reader knows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple, TypeAlias

Word: TypeAlias = tuple[str, ...]  # a word in all its forms
Bound: TypeAlias = dict[str, Word]  # what each slot of the story stands for


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


def _text(name: str) -> str:
    """A file of this folder, comments left out."""
    text = resources.files("yuriiformer.data.tales").joinpath(name).read_text("utf-8")
    return "\n".join(line.rstrip() for line in text.split("\n") if not line.startswith("#"))


def _read() -> dict[str, Pool]:
    found = {}
    for block in _text("words.txt").strip().split("\n\n"):
        head, _, words = block.partition("\n")
        name, kind, *forms = head.split()
        found[name] = _pool(kind, tuple(forms), words.replace("|\n", "|").strip())
    return found


POOLS = _read()


class Use(NamedTuple):
    """A slot mentioned again."""

    slot: str
    form: int


class Weighted:
    """Things in order of frequency, the r-th (from 0) with probability ~ 1 / (r + 4)."""

    def __init__(self, count: int) -> None:
        weights = [1.0 / (rank + 4) for rank in range(count)]
        total = math.fsum(weights)
        self.chances = [weight / total for weight in weights]
        self.nats = [-math.log(chance) for chance in self.chances]
        self.cumulative = [math.fsum(weights[: i + 1]) / total for i in range(count)]
        self.cumulative[-1] = 1.0

    def entropy(self) -> float:
        return math.fsum(p * nats for p, nats in zip(self.chances, self.nats, strict=True))


class Choice(Weighted):
    """Several ways to continue."""

    def __init__(self, name: str, options: Sequence[Parts]) -> None:
        super().__init__(len(options))
        self.name, self.options = name, options


class Draw(Weighted):
    """The first mention of a slot: its word is drawn, and differs from those of ``apart``."""

    def __init__(self, slot: str, pool: str, form: int, apart: tuple[str, ...]) -> None:
        self.words = POOLS[pool].words
        super().__init__(len(self.words))
        self.name, self.pool, self.form, self.apart = slot, pool, form, apart
        self.rank = {word: i for i, word in enumerate(self.words)}

    def taken(self, bound: Bound) -> list[int]:
        return [self.rank[bound[slot]] for slot in self.apart]


Part: TypeAlias = "str | Use | Choice | Draw"
Parts: TypeAlias = "tuple[Part, ...]"

_TOKEN = re.compile(r"(\{[^{}]*\}|<\w+>|[\[\]|])")
_SLOT = re.compile(r"\{(\+?)(\w+)(?:=(\w+))?(?:\.(\w+))?(?:!([\w,]+))?\}")


class _Compiler:
    """From the text of the grammar to the tree that is walked."""

    def __init__(self, source: str) -> None:
        self.rules: dict[str, list[str]] = {}
        for block in source.strip().split("\n\n"):
            name, *lines = block.split("\n")
            options = " ".join(line.strip() for line in lines).removeprefix("- ").split(" - ")
            self.rules[name.removesuffix(":")] = [text.replace(" // ", "\n") for text in options]
        self.pool_of = dict(re.findall(r"\{\+(\w+)=(\w+)", source))  # a slot has one pool
        self.choices: dict[str, Choice] = {}

    def rule(self, name: str) -> Choice:
        if name not in self.choices:
            options = [self.parts(_TOKEN.split(text), name) for text in self.rules[name]]
            self.choices[name] = Choice(name, options)
        return self.choices[name]

    def parts(self, tokens: list[str], name: str) -> Parts:
        """The parts of one template; ``[a|b]`` in it is a choice without a name of its own."""
        out: list[Part] = []
        tokens = tokens[::-1]
        while tokens:
            token = tokens.pop()
            if token == "[":
                options, inner = [], list[str]()
                while (token := tokens.pop()) != "]":
                    if token == "|":
                        options.append(self.parts(inner, name))
                        inner = []
                    else:
                        inner.append(token)
                out.append(Choice(name, [*options, self.parts(inner, name)]))
            elif token.startswith("{"):
                out.append(self.slot(token))
            elif token.startswith("<"):
                out.append(self.rule(token[1:-1]))
            elif token:
                out.append(token)
        return tuple(out)

    def slot(self, token: str) -> Use | Draw:
        match = _SLOT.fullmatch(token)
        if match is None:
            raise ValueError(f"no slot: {token}")
        first, slot, _, form, apart = match.groups()
        pool = self.pool_of[slot]
        place = POOLS[pool].forms.index(form or "it")
        if not first:
            return Use(slot, place)
        return Draw(slot, pool, place, tuple(apart.split(",")) if apart else ())


@cache
def root() -> Choice:
    """The grammar, compiled when the first story is told or read."""
    return _Compiler(_text("grammar.txt")).rule("story")
