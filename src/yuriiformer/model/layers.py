"""Small layers that the oracles and the model share."""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """A linear map whose start is drawn by the model, not here (see `init`).

    ``init_scale`` multiplies the standard deviation of that start; output projections of oracles
    set it to 1/sqrt(2L). ``parts`` says how many maps of equal size are fused in it, one below the
    other: an optimiser may treat them apart.
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
        """Nothing: PyTorch's own start would be overwritten, and would move the global RNG."""


class Table(nn.Embedding):
    """An embedding table whose start is drawn by the model, not here."""

    def reset_parameters(self) -> None:
        """Nothing, as in `Linear`."""
