"""Mean cross-entropy of a tied output projection, without the full logits in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yuriiformer.model.products import add_product, linear, product

IGNORE = -100  # a target that does not count, as everywhere in PyTorch
CHUNK_ELEMENTS = 2**25  # logits held at a time: 128 MiB of float32


def mean_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    chunk_elements: int = CHUNK_ELEMENTS,
    *,
    onednn: bool = False,
) -> Tensor:
    """Nats per token of ``targets`` (any shape) under ``softmax(hidden @ weight.T)``.

    Under autocast the matrix products run in its dtype; the softmax, the loss and the sums over
    chunks are float32. Logits that fit into one chunk, and compiled code, use plain cross-entropy;
    ``onednn``: with oneDNN's product.
    """
    hidden = hidden.reshape(-1, hidden.shape[-1])
    targets = targets.reshape(-1)
    rows, vocab = hidden.shape[0], weight.shape[0]
    device = hidden.device.type
    cast = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if cast else weight.dtype
    with torch.autocast(device, enabled=False):
        if rows * vocab <= chunk_elements or torch.compiler.is_compiling():
            logits = (linear if onednn else F.linear)(hidden.to(dtype), weight.to(dtype))
            return F.cross_entropy(_at_least_float(logits), targets, ignore_index=IGNORE)
        chunk = max(1, chunk_elements // vocab)
        if not torch.is_grad_enabled():  # a Function sees requires_grad even without grad mode
            hidden, weight = hidden.detach(), weight.detach()
        loss: Tensor = _Chunked.apply(hidden, weight, targets, chunk, dtype)  # type: ignore[no-untyped-call]
        return loss


def chunk_starts(rows: int, chunk: int) -> Sequence[int]:
    """The start of each chunk. A separate function, so that a memory simulation can skip most
    chunks."""
    return range(0, rows, chunk)


def _at_least_float(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype.itemsize < torch.float32.itemsize else tensor


class _Chunked(torch.autograd.Function):
    """The loss chunk by chunk; gradients are computed with each chunk, while its logits exist.

    Written here because `F.linear_cross_entropy` sums chunks in bfloat16 (4.06 instead of 8.5 with
    chunks of 8 rows at vocabulary 5,000, on CPU).
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, chunk: int, dtype: torch.dtype
    ) -> Tensor:
        counts = targets != IGNORE
        table = weight.to(dtype)
        exact = _at_least_float(table[:0]).dtype
        scale = counts.sum(dtype=exact).reciprocal()
        total = torch.zeros_like(scale)
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(_at_least_float(weight)) if wants_weight else None
        # Allocated once: fresh memory for each chunk costs as much as the softmax.
        logits = table.new_empty(min(chunk, len(hidden)), len(table))
        softmax = torch.empty_like(logits, dtype=exact)
        minus_one = softmax.new_full((len(softmax), 1), -1.0)
        for start in chunk_starts(len(hidden), chunk):
            part = slice(start, start + chunk)
            h, counted = hidden[part].to(dtype), counts[part][:, None]
            target = targets[part][:, None].where(counted, 0)
            rows = len(h)
            grad = torch.empty_like(h)
            scores = product(h, table, room=logits[:rows])
            log_p = torch.log_softmax(scores, -1, dtype=exact, out=softmax[:rows])
            total -= (log_p.gather(-1, target) * counted).sum()
            # d loss / d logits: softmax minus one at the target. The mask and the mean are applied
            # to tensors of width d, not to tensors as wide as the vocabulary.
            if wants_hidden or wants_weight:
                error = log_p.exp_().scatter_add_(-1, target, minus_one[:rows])
                error = error if dtype == exact else logits[:rows].copy_(error)
            if grad_hidden is not None:
                torch.mul(product(error, table.mT, room=grad), counted, out=grad_hidden[part])
            if grad_weight is not None:
                add_product(grad_weight, error, h * counted)
        ctx.save_for_backward(grad_hidden, grad_weight, scale)
        ctx.weight_dtype = weight.dtype
        return total * scale

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, scale = ctx.saved_tensors
        if grad_hidden is not None:
            grad_hidden = grad_hidden * (upstream * scale).to(grad_hidden.dtype)
        if grad_weight is not None:
            grad_weight = (grad_weight * (upstream * scale)).to(ctx.weight_dtype)
        return grad_hidden, grad_weight, None, None, None
