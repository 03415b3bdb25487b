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
processes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from yuriiformer.config import Scale
from yuriiformer.errors import ConfigError

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
        group: processes that share the work: each orthogonalises its part, and all gather.
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
        self.dtype, self.group = dtype, group
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
        for options in self.param_groups:
            alike: dict[Any, list[Tensor]] = defaultdict(list)
            for p in options["params"]:
                if p.grad is not None:
                    alike[p.shape, p.dtype, p.device].append(p)
            for params in alike.values():
                self._update(params, options)
        return loss

    def _update(self, params: list[Tensor], options: dict[str, Any]) -> None:
        """One step of matrices of one shape."""
        updates = []
        for p in params:
            assert p.grad is not None
            state = self.state[p]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(p)
            mean = state["momentum"].lerp_(p.grad, 1.0 - options["momentum"])
            updates.append(p.grad.lerp(mean, options["momentum"]) if options["nesterov"] else mean)
        first, *others = params[0].shape
        rows, cols = first // options["parts"], math.prod(others)
        stack = torch.stack(updates).view(-1, rows, cols)
        directions = self._orthogonalize(stack, options["steps"]).view(-1, first, *others)
        lr = options["lr"]
        size = lr * update_scale(rows, cols, options["scale"])
        for p, direction in zip(params, directions.unbind(), strict=True):
            if options["weight_decay"]:
                p.mul_(1.0 - lr * options["weight_decay"])
            p.sub_(direction, alpha=size)

    def _orthogonalize(self, stack: Tensor, steps: int) -> Tensor:
        """The whole stack's result; with several processes each does its share."""
        if self.group is None or self.group.size() == 1:
            return orthogonalize(stack, steps, self.dtype)
        processes, process = self.group.size(), self.group.rank()
        share = -(-len(stack) // processes)
        own = stack[process * share : (process + 1) * share]
        done = stack.new_zeros(share, *stack.shape[1:])
        if len(own):
            done[: len(own)] = orthogonalize(own, steps, self.dtype)
        gathered = stack.new_empty(processes * share, *stack.shape[1:])
        dist.all_gather_single(gathered, done, group=self.group)
        return gathered[: len(stack)]
