"""Products with weight matrices on a CPU, where oneDNN's are faster than torch's own (MKL's).

In the loss at a large vocabulary oneDNN is used on processors with AVX-512, which MKL uses on
Intel's alone. 667 rows by 50,304 tokens, d = 384, two threads: 118 ms become 87.

oneDNN sums in another order. So training takes it only where the configuration says so
(``products``). The linear layers of 6 layers, d = 384, 8×256 tokens then take half the time,
forward and backward, on an AMD processor with AVX-512.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ONEDNN = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")
_AVX512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")


class Linear(nn.Linear):
    """A linear map whose start is drawn by the model, not here (see `parameters`).

    ``init_scale`` multiplies the standard deviation of that start; output projections of oracles
    set it to 1/sqrt(2L). ``parts`` is the number of maps of equal size that are stacked in it: an
    optimiser may treat them separately. ``onednn`` is on where the configuration asks for oneDNN's
    products.
    """

    def __init__(
        self, d_in: int, d_out: int, *, bias: bool = False, init_scale: float = 1.0, parts: int = 1
    ):
        self.init_scale, self.parts = init_scale, parts
        self.onednn = False
        super().__init__(d_in, d_out, bias=bias)

    def reset_parameters(self) -> None:
        """Nothing: PyTorch's own values would be overwritten, and would advance the global RNG."""

    def forward(self, x: Tensor) -> Tensor:
        if self.onednn:
            return linear(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    """``x @ weight.T`` by oneDNN, and its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return onednn(x, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        rows, columns = gradient.flatten(0, -2), x.flatten(0, -2)
        return (
            onednn(gradient, weight.mT) if wants_x else None,
            onednn(rows.mT, columns.mT) if wants_weight else None,
        )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `F.linear`, with oneDNN's products where they are possible."""
    plain = _ONEDNN and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    busy = torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    if not plain or busy or type(x) is not Tensor:  # fake tensors have torch's own ops
        return F.linear(x, weight, bias)
    result: Tensor = _Linear.apply(x, weight)  # type: ignore[no-untyped-call]
    return result if bias is None else result + bias


def use_onednn(model: nn.Module) -> None:
    """Let a model's linear layers and its output projection use oneDNN's products in training."""
    for each in model.modules():
        if hasattr(each, "onednn"):
            each.onednn = True  # type: ignore[assignment]


def onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` by oneDNN."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return result


def product(a: Tensor, b: Tensor, room: Tensor) -> Tensor:
    """``a @ b.T`` without a gradient; ``room`` for the result, if it is needed."""
    return onednn(a, b) if _is_faster(a) else torch.mm(a, b.mT, out=room)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """``total += a.T @ b`` without a gradient."""
    if _is_faster(a):
        total.mT.add_(onednn(b.mT, a.mT))
    elif a.dtype == total.dtype:
        total.addmm_(a.mT, b)
    else:
        total += a.mT @ b


def _is_faster(a: Tensor) -> bool:
    """Whether oneDNN is the faster one for large matrices. Fake tensors have torch's own ops."""
    on_cpu = type(a) is Tensor and a.device.type == "cpu"
    return bool(_ONEDNN and _AVX512 and on_cpu and a.dtype == torch.float32)
