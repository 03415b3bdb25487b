"""Text from a model: token after token, each drawn from what the model predicts next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from yuriiformer.errors import InputError

if TYPE_CHECKING:
    from yuriiformer.model.model import YuriiFormer


@torch.no_grad()
def generate(
    model: YuriiFormer,
    tokens: Tensor,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    end: int | None = None,
) -> Tensor:
    """Continue ``tokens`` (batch, token): the tokens given, and those drawn after them.

    Args:
        temperature: 0 takes the likeliest token each time.
        top_k: draw among that many likeliest.
        seed: the same seed gives the same text.
        end: a row that has drawn this token (end of text) is filled up with it.
    """
    _check(tokens, max_new_tokens, temperature, top_k)
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same draws on any device
    context = model.config.context
    was_training = model.training
    model.eval()
    ended = torch.zeros(len(tokens), dtype=torch.bool)
    try:
        for _ in range(max_new_tokens):
            logits = model(tokens[:, -context:])[:, -1].float().cpu()  # (batch, vocab)
            drawn = _draw(logits[:, : model.config.real_vocab], temperature, top_k, generator)
            if end is not None:
                drawn = torch.where(ended, end, drawn)
                ended |= drawn == end
            tokens = torch.cat([tokens, drawn[:, None].to(tokens)], dim=1)
            if bool(ended.all()):
                break
    finally:
        model.train(was_training)
    return tokens


def _draw(
    logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator
) -> Tensor:
    """One token a row of (batch, vocab)."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0]


def _check(tokens: Tensor, count: int, temperature: float, top_k: int | None) -> None:
    if tokens.ndim != 2 or tokens.shape[1] < 1:
        raise InputError(f"tokens to continue are (batch, token), not {tuple(tokens.shape)}")
    if count < 0:
        raise InputError(f"max_new_tokens must be at least 0, not {count}")
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature must be a number of at least 0, not {temperature}")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k must be at least 1, not {top_k}")
