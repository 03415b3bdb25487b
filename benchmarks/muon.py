"""One step of Muon over stacked float32 matrices, against `torch.optim.Muon`.

Both start from the same weights and gradients, those of a model's matrices, and take turns in one
process. torch's works one matrix at a time in bfloat16, which this project does not need on a CPU
that only emulates it; so the two updates are also compared, with each other and with the same step
in float64. Usage: python benchmarks/muon.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import yuriiformer as yf
from yuriiformer.model.parameters import MATRICES, named_groups
from yuriiformer.training.muon import Muon

LR, MOMENTUM, STEPS = 0.02, 0.95, 5
OURS, THEIRS, EXACT = "ours, float32", "torch, bfloat16", "ours, float64"


def matrices(layers: int, width: int) -> list[Tensor]:
    """The weights that Muon trains in a model of this size."""
    heads = next(h for h in (6, 4, 2, 1) if width % h == 0)
    config = yf.ModelConfig(n_layer=layers, n_head=heads, d_model=width, vocab_size=64, context=8)
    model = yf.YuriiFormer(config)
    groups = [g for g in named_groups(model) if g.kind == MATRICES]
    return [model.get_parameter(name).detach() for g in groups for name in g.names]


def copies(weights: list[Tensor], gradients: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    params = [w.to(dtype, copy=True) for w in weights]
    for p, gradient in zip(params, gradients, strict=True):
        p.grad = gradient.to(dtype, copy=True)
    return params


def timed(step: Callable[[], Any]) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def compare(weights: list[Tensor], one: list[Tensor], two: list[Tensor]) -> dict[str, float]:
    """How near two updates are: over all matrices, and in the matrix where they are least so."""
    a = [(p - w).double() for p, w in zip(one, weights, strict=True)]
    b = [(p - w).double() for p, w in zip(two, weights, strict=True)]
    pairs = list(zip(a, b, strict=True))
    flat = torch.cat([u.flatten() for u in a]), torch.cat([u.flatten() for u in b])
    cosine = torch.nn.functional.cosine_similarity
    return {
        "cosine": float(cosine(*flat, dim=0)),
        "least_cosine": min(float(cosine(u.flatten(), v.flatten(), dim=0)) for u, v in pairs),
        "largest_relative_difference": max(float((u - v).norm() / v.norm()) for u, v in pairs),
    }


def measure(layers: int, width: int, rounds: int, torch_rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    weights = matrices(layers, width)
    gradients = [torch.randn_like(w) for w in weights]
    params = {
        OURS: copies(weights, gradients, torch.float32),
        THEIRS: copies(weights, gradients, torch.float32),
        EXACT: copies(weights, gradients, torch.float64),
    }
    ways = {
        OURS: Muon(params[OURS], LR, momentum=MOMENTUM, steps=STEPS),
        THEIRS: torch.optim.Muon(
            params[THEIRS], LR, weight_decay=0.0, momentum=MOMENTUM, nesterov=True, ns_steps=STEPS
        ),
    }
    Muon(params[EXACT], LR, momentum=MOMENTUM, steps=STEPS).step()
    times: dict[str, list[float]] = {OURS: [], THEIRS: []}
    ways[OURS].step()  # warms up; torch's step is too long to be made twice for that
    times[THEIRS].append(timed(ways[THEIRS].step))
    near = {
        "ours / torch": compare(weights, params[OURS], params[THEIRS]),
        "ours / float64": compare(weights, params[OURS], params[EXACT]),
        "torch / float64": compare(weights, params[THEIRS], params[EXACT]),
    }
    for turn in range(max(torch_rounds, 1)):
        if turn:
            times[THEIRS].append(timed(ways[THEIRS].step))
        times[OURS] += [timed(ways[OURS].step) for _ in range(-(-rounds // max(torch_rounds, 1)))]
    return {"matrices": [list(w.shape) for w in weights], "near": near, **ratios(times)}


def ratios(times: dict[str, list[float]]) -> dict[str, Any]:
    seconds = {
        name: {"median": statistics.median(values), "best": min(values), "rounds": len(values)}
        for name, values in times.items()
    }
    kinds = ("median", "best")
    return {
        "seconds": seconds,
        "torch / ours": {kind: seconds[THEIRS][kind] / seconds[OURS][kind] for kind in kinds},
    }


def show(found: dict[str, Any], layers: int, width: int) -> None:
    print(f"one step of Muon, {layers} layers, d={width}: {len(found['matrices'])} matrices")
    for name, values in found["seconds"].items():
        print(
            f"  {name:<16} median {values['median'] * 1e3:9.1f} ms   "
            f"best {values['best'] * 1e3:9.1f} ms   ({values['rounds']} rounds)"
        )
    ratio = found["torch / ours"]
    print(f"  torch / ours: {ratio['median']:.2f} of medians, {ratio['best']:.2f} of best times")
    print(f"  {'updates':<16} {'cosine':>9} {'least':>9}   largest relative difference")
    for name, values in found["near"].items():
        print(
            f"  {name:<16} {values['cosine']:9.6f} {values['least_cosine']:9.6f}   "
            f"{values['largest_relative_difference']:.1e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of ours")
    parser.add_argument("--torch-rounds", type=int, default=2, help="of torch's (half a minute)")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if options.quick:
        options.layers, options.width, options.rounds = 2, 32, 4
    found = measure(options.layers, options.width, options.rounds, options.torch_rounds)
    found = {"layers": options.layers, "width": options.width, **found}
    show(found, options.layers, options.width)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
