"""Long documents in pieces, for the library that trains and applies a byte-level BPE: it takes a
hundred times the memory of what it is given."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

PIECE = 2**18  # characters
_BEFORE_SPACE = re.compile(r"\S(?=[ \n])")


def is_long(document: str) -> bool:
    """Whether a document is to be cut."""
    return len(document) > PIECE or _has_long_run(document)


def pieces(document: str) -> Iterator[str]:
    """A document in pieces, cut in front of white space. No token of a byte-level BPE spans such a
    place, so the tokens are those of the whole document."""
    start = 0
    while len(document) - start > PIECE:
        match = _BEFORE_SPACE.search(document, start + PIECE)
        if match is None:
            break
        yield document[start : match.end()]
        start = match.end()
    yield document[start:]


LONG_RUN = 4096  # characters of one kind; the library's time grows with the square of a word
_RUNS = re.compile(r"[^\W\d_]++|\d++|(?:[^\w\s]|_)++|\s++")


def short_runs(document: str) -> list[str]:
    """A document in pieces that hold no run of letters, digits, signs or spaces longer than
    `LONG_RUN`: almost always the document itself."""
    if not _has_long_run(document):
        return [document]
    cuts = [0]
    for run in _RUNS.finditer(document):
        cuts += range(run.start() + LONG_RUN, run.end(), LONG_RUN)
    return [document[one:two] for one, two in itertools.pairwise([*cuts, len(document)])]


def _has_long_run(document: str) -> bool:
    """Whether there may be one: it would fill one of these windows."""
    half = LONG_RUN // 2
    for start in range(0, len(document) - half + 1, half):
        match = _RUNS.match(document, start)
        if match is not None and match.end() >= start + half:
            return True
    return False
