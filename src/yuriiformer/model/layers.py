"""Small layers that the oracles and the model share."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from yuriiformer.model.context import Context


class Linear(nn.Linear):
    """A linear map whose start is drawn by the model, not here (see `init`).

    ``init_scale`` multiplies the standard deviation of that start; output projections of oracles
    set it to 1/sqrt(2L). ``parts`` is the number of maps of equal size that are stacked in it: an
    optimiser may treat them separately.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        bias: bool = False,
        init_scale: float = 1.0,
        parts: int = 1,
    ):
        self.init_scale, self.parts = init_scale, parts
        super().__init__(d_in, d_out, bias=bias)

    def reset_parameters(self) -> None:
        """Nothing: PyTorch's own values would be overwritten, and would advance the global RNG."""


def attend(q: Tensor, k: Tensor, v: Tensor, context: Context, **options: Any) -> Tensor:
    """Attention over (batch, head, token, d_head), including cached keys and values."""
    if context.kv_cache is not None:
        k, v = context.kv_cache.extend(k, v)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=context.mask, is_causal=context.causal, **options
    )


def attention_scores(q: Tensor, k: Tensor, context: Context) -> Tensor:
    """What `attend` takes the softmax of: (batch, head, token, key), -inf where a token may not
    look. Groups of query heads may share a key head. For analysis, not for speed."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    token, key = scores.shape[-2:]
    seen = torch.ones(token, key, dtype=torch.bool, device=q.device)
    seen = seen.tril() if context.causal else seen
    seen = seen if context.mask is None else seen & context.mask
    result: Tensor = scores.masked_fill(~seen, -torch.inf)
    return result


class Table(nn.Embedding):
    """An embedding table whose start is drawn by the model, not here."""

    def reset_parameters(self) -> None:
        """Nothing, as in `Linear`."""
