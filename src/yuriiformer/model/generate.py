"""Text from a model: token after token, each drawn from what the model predicts next.

A model sees at most ``context`` tokens. A longer text continues from its last half: cached keys and
values would have the wrong positions, so that half is encoded again and grows until the context is
full. The start of the window depends on the length of the text only, so the result is the same with
or without a cache, alone or in a batch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from yuriiformer.errors import InputError, whole_number
from yuriiformer.model.context import Context, KVCache, positions_and_mask
from yuriiformer.model.decode import TOKENS, Decoder, decoder
from yuriiformer.model.oracles import oracle_pair

if TYPE_CHECKING:
    from yuriiformer.model.model import YuriiFormer

Rows = list[list[int]]


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
        if not math.isfinite(logits.sum()) and not torch.isfinite(logits).all():
            raise InputError(
                "the model predicts no finite numbers: its weights are damaged, or training "
                "diverged; take another checkpoint"
            )
        if self.repetition_penalty != 1:
            logits = self._penalise(logits, texts)
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        logits = logits - logits.amax(dim=-1, keepdim=True)  # so that no temperature overflows
        least = torch.finfo(logits.dtype).tiny  # a smaller number would be rounded to 0
        probabilities = torch.softmax(self._cut(logits / max(self.temperature, least)), dim=-1)
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
            beyond = before >= self.top_p
            beyond[:, 0] = False  # the likeliest stays, however small top_p is
            cut = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, beyond)
            logits = logits.masked_fill(cut, -torch.inf)
        return logits


def generators(seed: int, rows: int, first: int = 0) -> list[torch.Generator]:
    """A generator for each row, so that a row's text does not depend on the others. On the CPU: the
    same draws on any device."""
    numbers = range(first, first + rows)
    return [torch.Generator().manual_seed((seed * 1_000_003 + row) % 2**63) for row in numbers]


def window_start(length: int, context: int) -> int:
    """Where the part of a text that the model sees begins, when the text has ``length`` tokens."""
    if length <= context:
        return 0
    half = max(1, context // 2)
    stride = context - half + 1
    return context + 1 - half + (length - context - 1) // stride * stride


class Predictor:
    """The logits of each row's next token, (batch, real vocabulary), as the rows grow."""

    def __init__(self, model: YuriiFormer, *, cached: bool = True) -> None:
        self.model = model
        self.context = model.config.context
        able = cached and oracle_pair(model.config).caches
        self.cache = KVCache(len(model.blocks), self.context) if able else None
        self.decoder: Decoder | None = None  # for tokens after the prompt, where there is one
        self.starts: list[int] = []
        self.pads: Tensor | None = None

    def __call__(self, rows: Rows) -> Tensor:
        starts = [window_start(len(row), self.context) for row in rows]
        if self.cache is None:
            return self._all_anew([row[start:] for row, start in zip(rows, starts, strict=True)])
        if starts == self.starts:  # every row has one token more
            return self._next([row[-1:] for row in rows])
        self.starts = starts
        self.cache.clear()
        windows = [row[start:] for row, start in zip(rows, starts, strict=True)]
        longest = max(map(len, windows))
        missing = [longest - len(window) for window in windows]
        self.pads = torch.tensor(missing, device=self._device) if any(missing) else None
        return self._next([[0] * pad + row for pad, row in zip(missing, windows, strict=True)])

    @property
    def _device(self) -> torch.device:
        return self.model.token_table.device

    def _next(self, rows: Rows) -> Tensor:
        """Encode new tokens after those in the cache."""
        assert self.cache is not None
        tokens = torch.tensor(rows, device=self._device)
        count = tokens.shape[1]
        positions, mask, causal = positions_and_mask(
            self.cache.length, count, self.pads, self._device
        )
        if self.decoder is not None and count == 1 and self.cache.length > 0:
            logits = self.decoder(tokens, positions, self.pads)
            self.cache.length += 1
            return logits
        context = Context(positions, mask=mask, causal=causal)
        if self.cache.blocks[0].coefficients is None:
            for own, block in zip(self.cache.blocks, self.model.blocks, strict=True):
                own.coefficients = block.coefficients()  # type: ignore[operator]
        hidden = self.model.hidden(tokens, context, self.cache.blocks)
        self.cache.length += count
        return self._logits(hidden[:, -1:])

    def _all_anew(self, windows: Rows) -> Tensor:
        """Without a cache; rows of one length together."""
        found: dict[int, Tensor] = {}
        for length in {len(window) for window in windows}:
            which = [i for i, window in enumerate(windows) if len(window) == length]
            tokens = torch.tensor([windows[i] for i in which], device=self._device)
            logits = self._logits(self.model.hidden(tokens)[:, -1:])
            found |= dict(zip(which, logits, strict=True))
        return torch.stack([found[i] for i in range(len(windows))])

    def _logits(self, hidden: Tensor) -> Tensor:
        logits = F.linear(hidden, self.model.token_table)[:, 0]
        return logits[:, : self.model.config.real_vocab].float()  # padded ids are never produced


def stream(
    model: YuriiFormer,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    sampling: Sampling | None = None,
    *,
    seed: int = 0,
    end: int | None = None,
    cached: bool = True,
    first: int = 0,
) -> Iterator[list[int | None]]:
    """The tokens that continue each prompt, one of each at a time; None where a row has ended.

    Args:
        prompts: of any lengths, each at least one token.
        sampling: how tokens are drawn; plain draws by default.
        seed: the same seed gives the same text; each row has draws of its own.
        end: a row that draws this token (end of text) returns it and ends.
        cached: use a key/value cache; False is for comparison.
        first: the number of the first row, where others were made before.
    """
    sampling = sampling or Sampling()
    rows = _check(prompts, max_new_tokens, model.config.vocab_size)
    chances = generators(seed, len(rows), first)
    was_training = model.training
    model.eval()
    try:
        predict = Predictor(model, cached=cached)
        with torch.inference_mode():
            if max_new_tokens >= TOKENS:
                predict.decoder = decoder(model, predict.cache, len(rows))
            over = [False] * len(rows)
            for _ in range(max_new_tokens):
                drawn = sampling.draw(predict(rows).cpu(), rows, chances).tolist()
                yield [None if done else token for done, token in zip(over, drawn, strict=True)]
                for row, token in zip(rows, drawn, strict=True):
                    row.append(token)
                over = [done or token == end for done, token in zip(over, drawn, strict=True)]
                if all(over):
                    return
    finally:
        model.train(was_training)


def _check(prompts: Sequence[Sequence[int]], count: int, vocab_size: int) -> Rows:
    whole_number("max_new_tokens", count, 0, InputError)
    try:
        rows = [[operator.index(token) for token in prompt] for prompt in prompts]
    except TypeError as error:
        raise InputError(f"tokens are whole numbers: {error}") from None
    if not rows:
        raise InputError("there is no prompt to continue")
    for row in rows:
        if not row:
            raise InputError("a prompt has at least one token")
        wrong = [token for token in row if not 0 <= token < vocab_size]
        if wrong:
            raise InputError(f"token {wrong[0]} is not in the vocabulary of {vocab_size}")
    return rows
