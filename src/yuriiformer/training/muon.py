"""Muon: momentum whose update is made (nearly) orthogonal, batched over matrices of equal shape.

For each matrix W with gradient G, following Jordan et al. (2024):

    B <- B + (1 - momentum) (G - B)                   running mean of gradients
    U <- G + momentum (B - G)    with Nesterov, else B
    O <- NS(U)                                        singular values of U -> about 1
    W <- W (1 - lr * weight_decay) - lr * scale * O

A tensor of more than two dimensions is a matrix of its first dimension by all others, as in Jordan
et al.'s own implementation.

`torch.optim.Muon` does the same, one matrix at a time in bfloat16. Written here because on a CPU
without bfloat16 that took 36 s per step at 6 layers of width 384, where float32 over stacked
matrices takes under a second (benchmarks/muon.py), and because here the work is shared by
processes, which may hold only some rows of each matrix (`owners`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from yuriiformer.config import Scale
from yuriiformer.errors import ConfigError
from yuriiformer.model.shards import local
from yuriiformer.training.owners import Exchange, Matrix, Turn, alike, share_out

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic; steepest at 0 that still converges
EPS = 1e-7


def orthogonalize(matrices: Tensor, steps: int = 5, dtype: torch.dtype | None = None) -> Tensor:
    """Newton–Schulz on a stack (n, rows, cols): U S Vᵀ -> U S' Vᵀ with S' about 1.

    X <- a X + (b A + c A²) X with A = X Xᵀ, on the smaller side. ``dtype`` is what it computes in
    (None: the matrices' own); the result has the matrices' dtype.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    X = matrices.to(dtype or matrices.dtype)
    X = X.mT if tall else X
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp(min=EPS)
    for _ in range(steps):
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    return (X.mT if tall else X).to(matrices.dtype)


def update_scale(rows: int, cols: int, scale: Scale) -> float:
    """``original``: sqrt(max(1, rows/cols)); ``rms``: AdamW's usual size of update,
    0.2 sqrt(max(rows, cols))."""
    if scale == "original":
        return math.sqrt(max(1.0, rows / cols))
    return 0.2 * math.sqrt(max(rows, cols))


class Muon(torch.optim.Optimizer):
    """Muon for matrices (parameters of two or more dimensions).

    Args:
        params: parameters or groups of them. A group may set ``parts``: how many maps each of its
            matrices holds, one below the other (3 for a fused QKV), to orthogonalise them apart.
        lr, momentum, nesterov, weight_decay, steps, scale: as in the formulas above.
        dtype: what Newton–Schulz computes in; None is the parameters' own.
        group: processes that hold the same parameters and share the work.
        shard_group: processes that hold the rows of each parameter between them.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 0.02,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        steps: int = 5,
        scale: Scale = "original",
        dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
        shard_group: dist.ProcessGroup | None = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "steps": steps,
            "scale": scale,
            "parts": 1,
        }
        super().__init__(params, defaults)
        self.dtype, self.exchange = dtype, Exchange(group, shard_group)
        for options in self.param_groups:
            for p in options["params"]:
                if p.ndim < 2 or p.shape[0] % options["parts"]:
                    raise ConfigError(
                        f"Muon cannot take a parameter of shape {tuple(p.shape)} in "
                        f"{options['parts']} part(s): it is for matrices; give the rest to AdamW"
                    )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:  # the closure's loss
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        stacks: list[tuple[dict[str, Any], list[Matrix]]] = []
        for options in self.param_groups:
            params = [p for p in options["params"] if p.grad is not None]
            for p in params:
                self._average(p, options["momentum"])
            stacks += [(options, matrices) for matrices in alike(params, options["parts"])]
        self._take_turns(stacks)
        return loss

    def _average(self, p: Tensor, momentum: float) -> None:
        """The running mean of the gradients, a step further."""
        assert p.grad is not None
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        local(state["momentum"]).lerp_(local(p.grad), 1.0 - momentum)

    def _take_turns(self, stacks: list[tuple[dict[str, Any], list[Matrix]]]) -> None:
        """Matrices of one shape at a time. With several processes, the rows of the next ones and
        the results of the last ones travel while some are orthogonalised."""
        every = [each for _, matrices in stacks for each in matrices]
        sizes = [(each.rows, each.cols) for each in every]
        owners = dict(zip(every, share_out(sizes, self.exchange.processes), strict=True))
        turns = [
            (turn, options)
            for options, matrices in stacks
            for turn in self.exchange.turns(matrices, owners, self.dtype)
        ]
        ahead = 1 if self.exchange.processes > 1 else 0
        nobody: list[Any] = [None] * ahead
        stages = zip(
            [*turns, *nobody, *nobody],
            [*nobody, *turns, *nobody],
            [*nobody, *nobody, *turns],
            strict=True,
        )
        for collecting, computing, applying in stages:
            if collecting:
                turn, options = collecting
                turn.collect(partial(self._update, options=options))
            if computing:
                turn, options = computing
                turn.give_back(partial(orthogonalize, steps=options["steps"], dtype=self.dtype))
            if applying:
                self._apply(*applying)

    def _update(self, matrix: Matrix, options: dict[str, Any]) -> Tensor:
        """What is to be orthogonalised, as far as its rows are here."""
        p, here = matrix.parameter, matrix.here()
        assert p.grad is not None
        mean, gradient = local(self.state[p]["momentum"])[here], local(p.grad)[here]
        return gradient.lerp(mean, options["momentum"]) if options["nesterov"] else mean

    def _apply(self, turn: Turn, options: dict[str, Any]) -> None:
        lr = options["lr"]
        for matrix, direction in zip(turn.matrices, turn.directions(), strict=True):
            rows = local(matrix.parameter)[matrix.here()]
            if options["weight_decay"]:
                rows.mul_(1.0 - lr * options["weight_decay"])
            size = lr * update_scale(matrix.rows, matrix.cols, options["scale"])
            rows.sub_(direction.reshape(rows.shape).to(rows.dtype), alpha=size)
