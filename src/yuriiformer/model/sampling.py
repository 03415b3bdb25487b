"""How the next token is drawn from the logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from yuriiformer.errors import InputError, whole_number


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn.

    Args:
        temperature: what logits are divided by; 0 takes the likeliest token.
        top_k: draw among that many likeliest.
        top_p: draw among the likeliest that together have at least this probability.
        repetition_penalty: above 1, tokens that are already in the text are less likely: their
            logits are divided by it if positive, multiplied if negative.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise InputError(f"temperature must be a number of at least 0, not {self.temperature}")
        if self.top_k is not None:
            whole_number("top_k", self.top_k, 1, InputError)
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p must be above 0 and at most 1, not {self.top_p}")
        if not 0.01 <= self.repetition_penalty <= 100:
            raise InputError(
                f"repetition_penalty must be from 0.01 to 100, not {self.repetition_penalty}"
            )

    def draw(
        self, logits: Tensor, texts: Sequence[Sequence[int]], generators: Sequence[torch.Generator]
    ) -> Tensor:
        """One token per row of (batch, vocab); each row has its text and its own generator."""
        if self.repetition_penalty != 1:
            logits = self._penalise(logits, texts)
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        logits = logits - logits.amax(dim=-1, keepdim=True)  # so that no temperature overflows
        probabilities = torch.softmax(self._cut(logits / self.temperature), dim=-1)
        rows = zip(probabilities, generators, strict=True)
        return torch.cat([torch.multinomial(row, 1, generator=own) for row, own in rows])

    def _penalise(self, logits: Tensor, texts: Sequence[Sequence[int]]) -> Tensor:
        logits = logits.clone()
        for row, text in zip(logits, texts, strict=True):
            seen = torch.tensor(sorted(set(text)))
            seen = seen[seen < len(row)]
            old = row[seen]
            penalty = self.repetition_penalty
            row[seen] = torch.where(old > 0, old / penalty, old * penalty)
        return logits

    def _cut(self, logits: Tensor) -> Tensor:
        """Tokens outside top-k and top-p become impossible."""
        if self.top_k is not None:
            least = logits.topk(min(self.top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        if self.top_p is not None and self.top_p < 1:
            ordered, order = logits.sort(dim=-1, descending=True)
            probabilities = torch.softmax(ordered, dim=-1)
            before = probabilities.cumsum(dim=-1) - probabilities  # of the likelier ones
            cut = torch.zeros_like(logits, dtype=torch.bool).scatter(
                -1, order, before >= self.top_p
            )
            logits = logits.masked_fill(cut, -torch.inf)
        return logits


def generators(seed: int, rows: int) -> list[torch.Generator]:
    """A generator for each row, so that a row's text does not depend on the others. On the CPU: the
    same draws on any device."""
    return [torch.Generator().manual_seed((seed * 1_000_003 + row) % 2**63) for row in range(rows)]
