"""Hashes of integers: the source of every seeded decision about data.

Written here because the result must never change: numpy's generators may differ between versions.
The order of training data and the split of documents are fixed by golden values.
The mixing function is SplitMix64's (Steele, Lea, Flood 2014), on numpy's unsigned 64-bit integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mix(words: Words) -> Words:
    """Every bit of the result depends on every bit of the word."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2**64 is meant
        words = words + _GOLDEN
        words = (words ^ (words >> np.uint64(30))) * _FIRST
        words = (words ^ (words >> np.uint64(27))) * _SECOND
        return words ^ (words >> np.uint64(31))


def hash_words(seed: int, *parts: Any) -> Words:
    """A 64-bit hash of a seed and integers; arrays among the parts are hashed elementwise."""
    state: Words = mix(np.asarray(int(seed) % 2**64, dtype=np.uint64))
    for part in parts:
        state = mix(state ^ mix(np.asarray(part).astype(np.uint64)))
    return state


def uniform(words: Words) -> NDArray[np.float64]:
    """Hashes as numbers in [0, 1), from their upper 53 bits."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
