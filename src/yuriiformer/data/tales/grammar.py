"""Tales: an endless corpus of children's stories whose log-probability is known exactly.

A story is a walk through a small grammar (``grammar.txt``, ``words.txt``). Every choice on
the way has a known probability, and the text determines the choices: wherever the walk may go
several ways, no beginning of one way is a beginning of another (the tests prove it of the whole
grammar).
So the entropy of the choices is the entropy of the text, and no model's expected loss on whole
stories can be below it.

One routine walks the grammar, for writing (choices are random numbers) and for reading (choices are
taken from a text), so writer and reader cannot disagree.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from random import Random
from typing import NamedTuple

from yuriiformer.data.tales.tree import POOLS, Bound, Choice, Draw, Parts, Use, Weighted, root
from yuriiformer.errors import YuriiError


class Pick(NamedTuple):
    """One choice made: of a way to continue, or (``word`` not empty) of the word for a slot."""

    of: str
    way: int
    word: str


def _walk(
    parts: Parts,
    bound: Bound,
    pick: Callable[[Choice | Draw, Bound], int],
    say: Callable[[str], object],
) -> None:
    """Go through ``parts``: ``pick`` decides where there is a choice, ``say`` takes the words."""
    for part in parts:
        if type(part) is str:
            say(part)
        elif type(part) is Use:
            say(bound[part.slot][part.form])
        elif type(part) is Choice:
            _walk(part.options[pick(part, bound)], bound, pick, say)
        elif type(part) is Draw:
            word = part.words[pick(part, bound)]
            bound[part.name] = word
            say(word[part.form])


def _cost(part: Choice | Draw, index: int, bound: Bound) -> float:
    """-log of the probability of this choice, given the ones before it."""
    if type(part) is Draw and part.apart:
        left = 1.0 - math.fsum(part.chances[i] for i in part.taken(bound))
        return part.nats[index] + math.log(left)
    return part.nats[index]


def _record(part: Choice | Draw, index: int) -> Pick:
    return Pick(part.name, index, part.words[index][0] if type(part) is Draw else "")


@dataclass
class _Writer:
    """Chooses by random numbers; the same (seed, index) gives the same story for ever."""

    random: Callable[[], float]
    costs: list[float]
    picks: list[Pick] | None = None

    def __call__(self, part: Choice | Draw, bound: Bound) -> int:
        index = bisect_right(part.cumulative, self.random())
        if type(part) is Draw and part.apart:
            taken = part.taken(bound)
            while index in taken:
                index = bisect_right(part.cumulative, self.random())
        self.costs.append(_cost(part, index, bound))
        if self.picks is not None:
            self.picks.append(_record(part, index))
        return index


class _Reader:
    """Chooses what the text contains."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.costs: list[float] = []
        self.picks: list[Pick] = []

    def say(self, words: str) -> None:
        if not self.text.startswith(words, self.at):
            raise self.lost()
        self.at += len(words)

    def lost(self) -> YuriiError:
        seen = self.text[self.at : self.at + 30]
        return YuriiError(f"no tale: character {self.at} on, {seen!r}; only whole tales are read")

    def __call__(self, part: Choice | Draw, bound: Bound) -> int:
        if type(part) is Draw:
            taken = part.taken(bound)
            fits = [
                i
                for i, word in enumerate(part.words)
                if self.text.startswith(word[part.form], self.at) and i not in taken
            ]
        else:
            assert type(part) is Choice
            fits = [i for i, way in enumerate(part.options) if self.begins(way, bound)]
        if not fits:
            raise self.lost()
        (index,) = fits  # more than one there cannot be; see the proof in the tests
        self.costs.append(_cost(part, index, bound))
        self.picks.append(_record(part, index))
        return index

    def begins(self, parts: Parts, bound: Bound) -> bool:
        """Whether the text continues as ``parts`` do, up to and with the next choice in them."""
        at = self.at
        for part in parts:
            if isinstance(part, Choice):
                here, self.at = self.at, at
                found = any(self.begins(way, bound) for way in part.options)
                self.at = here
                return found
            if isinstance(part, Draw):
                return any(self.text.startswith(word[part.form], at) for word in part.words)
            words = bound[part.slot][part.form] if isinstance(part, Use) else part
            if not self.text.startswith(words, at):
                return False
            at += len(words)
        return True


def story_and_nats(seed: int, index: int, picks: list[Pick] | None = None) -> tuple[str, float]:
    """A story and -log of its probability, in nats; the choices made are added to ``picks``."""
    digest = sha256(f"tale {seed} {index}".encode()).digest()
    writer = _Writer(Random(int.from_bytes(digest[:8], "big")).random, [], picks)
    said: list[str] = []
    _walk((root(),), {}, writer, said.append)
    return "".join(said), math.fsum(writer.costs)


def _read(text: str) -> _Reader:
    reader = _Reader(text)
    _walk((root(),), {}, reader, reader.say)
    if reader.at != len(text):
        raise reader.lost()
    return reader


def story(seed: int, index: int) -> str:
    """The ``index``-th story of ``seed``: plain ASCII, paragraphs separated by a newline."""
    return story_and_nats(seed, index)[0]


def stories(seed: int = 0, start: int = 0) -> Iterator[str]:
    """The stories of ``seed`` from the ``start``-th on, without end."""
    while True:
        yield story(seed, start)
        start += 1


def choices(text: str) -> list[Pick]:
    """The choices that a story was written by, read off its text."""
    return _read(text).picks


def nats(text: str) -> float:
    """-log of the probability of a whole story, in nats, by reading it."""
    return math.fsum(_read(text).costs)


@cache
def _entropy_of_draw(pool: str, taken: int) -> float:
    """Entropy of the draw after ``taken`` others without replacement, averaged over those."""
    chances = Weighted(len(POOLS[pool].words)).chances

    def mean(left: list[float], taken: int) -> float:
        total = math.fsum(left)
        if not taken:
            return -math.fsum(p / total * math.log(p / total) for p in left)
        return math.fsum(
            p / total * mean(left[:i] + left[i + 1 :], taken - 1) for i, p in enumerate(left)
        )

    return mean(chances, taken)


@cache
def entropy_per_story() -> float:
    """The entropy of a story in nats, exactly (to rounding), by recursion over the grammar.

    A choice adds its own entropy and the mean of its ways'. That is exact because probabilities
    depend on earlier choices in one way only: a word drawn apart from others of its pool, which
    is a draw without replacement.
    """

    @cache
    def of(part: Choice) -> float:
        ways = zip(part.chances, part.options, strict=True)
        return part.entropy() + math.fsum(p * along(parts) for p, parts in ways)

    def along(parts: Parts) -> float:
        total = 0.0
        for part in parts:
            if type(part) is Choice:
                total += of(part)
            elif type(part) is Draw:
                total += _entropy_of_draw(part.pool, len(part.apart))
        return total

    return of(root())
