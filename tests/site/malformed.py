"""Texts that are no rules: the catalogue's, damaged in as many ways as users find."""

from __future__ import annotations

import random

import yuriiformer as yf
from docs.site.editor import read

PIECES = (
    "( ) + - * / = , . ; : ' \" # @ [ ] { } \\ \t \n\n ** == += //= := -> ½ β é _ 1e999 0x1 1j "
    "True None lambda import if attn mlp norm unit sqrt maximum X V mu gamma beta_half E zeta"
).split(" ")
DECLARED = ("[streams", "G = 3", "[streams]\nG = 'zero'\n", "[coefficients]\nmu = 2.0", "name = ''")


def malformed(count: int) -> list[tuple[str, str]]:
    """(equations, declarations), the same every time."""
    draw, texts = random.Random(0), list(yf.rules.values())
    found: dict[tuple[str, str], None] = {}
    while len(found) < count:
        text, declarations = draw.choice(texts).equations, ""
        for _ in range(draw.randint(1, 2)):
            begin = draw.randrange(len(text) + 1)
            end = min(len(text), begin + draw.choice((0, 0, 1, 1, 2, 8)))
            text = text[:begin] + draw.choice(("", *PIECES)) + text[end:]
        if draw.random() < 0.1:
            declarations = draw.choice(DECLARED)
        try:
            read(text, declarations)
        except yf.YuriiError:
            found[text, declarations] = None
    return list(found)
