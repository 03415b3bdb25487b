"""A training step (loss and backward pass, no optimiser): what momentum costs in time and memory,
and how much of a step is matrix products.

`matmuls alone` are the very products of the gradient-descent step, by shape and layout, with
nothing between them: the time of a step if all else were free. FlopCounterMode is not used for
them because it knows neither `addmm_` nor a CPU's attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import yuriiformer as yf
from benchmarks.measuring import Rounds, Row, subject, take_turns, threads
from yuriiformer.costs.op_counter import Watcher
from yuriiformer.model.device import keep_freed_memory

Loss = Callable[[Tensor, Tensor], Tensor]
GD, NESTEROV, MATMULS = "gd-lie-trotter", "nesterov-lie-trotter", "matmuls alone"


@dataclass(frozen=True)
class Size:
    """Of a model and its batch."""

    vocab: int = 4096
    layers: int = 6
    heads: int = 6
    width: int = 384
    context: int = 256
    batch: int = 8

    def tokens(self) -> tuple[Tensor, Tensor]:
        shape = (self.batch, self.context)
        return torch.randint(self.vocab, shape), torch.randint(self.vocab, shape)

    def model(self, rule: str) -> yf.YuriiFormer:
        sizes = {"n_layer": self.layers, "n_head": self.heads, "d_model": self.width}
        config = yf.ModelConfig(rule, **sizes, vocab_size=self.vocab, context=self.context)
        return yf.YuriiFormer(config)

    def __str__(self) -> str:
        shape = f"{self.layers} layers, d {self.width}, {self.batch}×{self.context} tokens"
        return f"{shape}, vocabulary {self.vocab:,}"


WIDE = Size()
NARROW = Size(heads=4, width=96)
TINY = Size(64, layers=2, heads=2, width=32, context=16, batch=2)


def step(model: nn.Module, loss: Loss, batch: tuple[Tensor, Tensor]) -> Callable[[], None]:
    def run() -> None:
        model.zero_grad(set_to_none=True)
        loss(*batch).backward()

    return run


def steps_of(size: Size, rules: tuple[str, ...] = (GD, NESTEROV)) -> dict[str, Callable[[], None]]:
    torch.manual_seed(0)
    batch = size.tokens()
    models = {rule: size.model(rule) for rule in rules}
    return {rule: step(model, model, batch) for rule, model in models.items()}


def momentum(size: Size, count: int, *, quick: bool) -> Rounds:
    keep_freed_memory()  # as every training process does
    rounds = 3 if quick else 15 if size.width > 200 else 60
    with threads(1 if quick else count):
        return take_turns(steps_of(TINY if quick else size), rounds, warm=2)


for each, number in product((WIDE, NARROW), (1, 2)):
    subject(
        f"momentum-{each.width}-{number}",
        Row(
            f"Time of a Nesterov step: {each}, {number} thread{'s' * (number > 1)}",
            "gradient descent",
            (NESTEROV, GD),
            "≤ 1.03" if each is WIDE else "≤ 1.06",
        ),
    )(partial(momentum, each, number))


def saved_bytes(model: nn.Module, tokens: Tensor, targets: Tensor) -> int:
    """What a forward pass leaves for the backward pass."""
    with Watcher() as watcher:
        loss = model(tokens, targets)
        return watcher.alive if loss is not None else 0


@subject(
    "kept",
    Row(
        f"Bytes that a Nesterov step keeps for the backward pass: {WIDE}",
        "gradient descent",
        (NESTEROV, GD),
        "≤ 1.10",
    ),
)
def kept(*, quick: bool) -> Rounds:
    size = TINY if quick else WIDE
    batch = size.tokens()
    return {rule: [saved_bytes(size.model(rule), *batch)] for rule in (GD, NESTEROV)}


class Matmuls(TorchDispatchMode):
    """Remembers the matrix products of what runs under it: shapes and strides, how often."""

    OPS = ("mm", "addmm", "addmm_", "bmm")

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.OPS:
            a, b = args[-2:]
            self.found[tuple(a.shape), a.stride(), tuple(b.shape), b.stride()] += 1
        return func(*args, **(kwargs or {}))

    def flops(self) -> float:
        shapes = ((a, b, times) for (a, _, b, _), times in self.found.items())
        return float(sum(2 * times * torch.Size(a).numel() * b[-1] for a, b, times in shapes))

    def alone(self) -> Callable[[], None]:
        """The same products on operands of their own, into memory that is there already."""
        work = []
        for (a, a_stride, b, b_stride), times in self.found.items():
            one = torch.empty_strided(a, a_stride).normal_()
            two = torch.empty_strided(b, b_stride).normal_()
            work.append((one, two, torch.matmul(one, two), times))

        def run() -> None:
            for one, two, out, times in work:
                for _ in range(times):
                    torch.matmul(one, two, out=out)

        return run


@subject(
    "matmuls",
    Row(f"Time of the matrix products alone: {WIDE}", "the whole step", (MATMULS, GD)),
    Row("Speed of the matrix products alone", "the machine's limit", ("GFLOP/s",), unit="GFLOP/s"),
)
def matmuls(*, quick: bool) -> Rounds:
    steps = steps_of(TINY if quick else WIDE, (GD,))
    recorder = Matmuls()
    with recorder:
        steps[GD]()
    rounds = take_turns(steps | {MATMULS: recorder.alone()}, 3 if quick else 9)
    return rounds | {"GFLOP/s": [recorder.flops() / 1e9 / seconds for seconds in rounds[MATMULS]]}
