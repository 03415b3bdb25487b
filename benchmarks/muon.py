"""One step of Muon over stacked float32 matrices, against `torch.optim.Muon`.

Both start from the same weights and gradients, those of a model's matrices. torch's works one
matrix at a time in bfloat16, which this project does not need on a CPU that only emulates it; so
the two updates are also compared, with each other and with the same step in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

import yuriiformer as yf
from benchmarks.measuring import Rounds, Row, subject, timed
from yuriiformer.model.parameters import MATRICES, named_groups
from yuriiformer.training.muon import Muon

LR, MOMENTUM, STEPS = 0.02, 0.95, 5


def matrices(layers: int, width: int) -> list[Tensor]:
    """The weights that Muon trains in a model of this size."""
    config = yf.ModelConfig(n_layer=layers, n_head=2, d_model=width, vocab_size=64, context=8)
    model = yf.YuriiFormer(config)
    groups = [g for g in named_groups(model) if g.kind == MATRICES]
    return [model.get_parameter(name).detach() for g in groups for name in g.names]


def copies(weights: list[Tensor], gradients: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    params = [w.to(dtype, copy=True) for w in weights]
    for p, gradient in zip(params, gradients, strict=True):
        p.grad = gradient.to(dtype, copy=True)
    return params


def difference(weights: list[Tensor], one: list[Tensor], two: list[Tensor]) -> float:
    """Of two updates, relative, in the matrix where it is largest."""
    found = []
    for w, p, q in zip(weights, one, two, strict=True):
        a, b = (p - w).double(), (q - w).double()
        found.append(float((a - b).norm() / b.norm()))
    return max(found)


@subject(
    "muon",
    Row(
        "Speed of a step of Muon: 6 layers, d 384, 24 matrices",
        "`torch.optim.Muon`, bfloat16",
        ("torch", "ours"),
    ),
    Row("Relative difference of our update", "the same in float64", ("ours / float64",), unit=""),
    Row("Relative difference of torch's", "the same in float64", ("torch / float64",), unit=""),
)
def muon(*, quick: bool) -> Rounds:
    torch.manual_seed(0)
    weights = matrices(*((2, 32) if quick else (6, 384)))
    gradients = [torch.randn_like(w) for w in weights]
    ours, theirs = (copies(weights, gradients, torch.float32) for _ in range(2))
    exact = copies(weights, gradients, torch.float64)
    Muon(exact, LR, momentum=MOMENTUM, steps=STEPS).step()
    one = Muon(ours, LR, momentum=MOMENTUM, steps=STEPS)
    two = torch.optim.Muon(
        theirs, LR, weight_decay=0.0, momentum=MOMENTUM, nesterov=True, ns_steps=STEPS
    )
    one.step()
    rounds: Rounds = {"torch": [timed(two.step)], "ours": []}  # too long to be made twice
    near = {
        "ours / float64": [difference(weights, ours, exact)],
        "torch / float64": [difference(weights, theirs, exact)],
    }
    rounds["ours"].append(timed(one.step))
    for _ in range(2):
        rounds["torch"].append(timed(two.step))
        rounds["ours"].append(timed(one.step))
    return rounds | near
