"""Products with weight matrices while text is generated, on a CPU.

Every new token reads all weights once, and torch's own product (MKL's) is then slow: for the 25
matrices of 6 layers, d = 384, vocabulary 4,096 and one thread it takes 2.4 ms with one row and
4.4 ms with eight, oneDNN's 1.7 and 3.0 (with AVX2 alone: 1.7 and 4.3). oneDNN's has no gradient and
another order of summation; so it is used for this alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 64  # texts that are generated together
_ONEDNN = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class Linear(nn.Linear):
    """A linear map whose start is drawn by the model, not here (see `parameters`).

    ``init_scale`` multiplies the standard deviation of that start; output projections of oracles
    set it to 1/sqrt(2L). ``parts`` is the number of maps of equal size that are stacked in it: an
    optimiser may treat them separately. ``generates`` is on while text is generated.
    """

    def __init__(
        self, d_in: int, d_out: int, *, bias: bool = False, init_scale: float = 1.0, parts: int = 1
    ):
        self.init_scale, self.parts = init_scale, parts
        self.generates = False
        super().__init__(d_in, d_out, bias=bias)

    def reset_parameters(self) -> None:
        """Nothing: PyTorch's own values would be overwritten, and would advance the global RNG."""

    def forward(self, x: Tensor) -> Tensor:
        if self.generates and x.shape[-2] == 1 and not torch.is_grad_enabled():
            return one_token(x, self.weight, self.bias)
        return F.linear(x, self.weight, self.bias)


def one_token(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` by oneDNN."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, weight, bias, "none", [], "")
    return result


def can_use_onednn(weight: Tensor, rows: int) -> bool:
    return (
        _ONEDNN
        and rows <= ROWS
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
    )


@contextmanager
def generating(model: nn.Module) -> Iterator[None]:
    """Within it, the model's linear maps of one token per text are oneDNN's."""
    maps = [each for each in model.modules() if isinstance(each, Linear)]
    try:
        for each in maps:
            each.generates = True
        yield
    finally:
        for each in maps:
            each.generates = False
