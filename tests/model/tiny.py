"""Models small enough to take apart."""

from __future__ import annotations

from itertools import product

import pytest
import torch

import yuriiformer as yf

PAIRS = ("paper", "modern")
BOTH = ("gd-lie-trotter", "nesterov-lie-trotter", "hamiltonian", "verlet-ama")


def _speed(number: int, rule: str, oracles: str) -> tuple[pytest.MarkDecorator, ...]:
    fast = rule in BOTH or oracles == PAIRS[number % 2]
    return () if fast else (pytest.mark.slow,)


# Every rule with both pairs of oracles. A rule's equations know nothing of its oracles, so the fast
# tests take both pairs with a few rules, and with the others one pair or the other in turn.
EVERY = [
    pytest.param(rule, oracles, marks=_speed(number, rule, oracles), id=f"{rule}-{oracles}")
    for (number, rule), oracles in product(enumerate(yf.rules), PAIRS)
]

# One rule of each kind, for tests of what is around a model, not of the rule's own arithmetic: no
# velocity, velocity, a call that reaches nothing, two calls of either oracle, tables besides.
KINDS = "gd-lie-trotter nesterov-lie-trotter hamiltonian verlet-ama imex2-attn-mlp gd-tied".split()
OF_EACH_KIND = [
    each
    if each.values[0] in KINDS
    else pytest.param(*each.values, marks=pytest.mark.slow, id=each.id)
    for each in EVERY
]


def tiny(rule: str | yf.Rule = "nesterov-lie-trotter", oracles: str = "paper", **options):
    sizes = {"n_layer": 3, "n_head": 4, "d_model": 16, "vocab_size": 29, "context": 12}
    seed = options.pop("seed", 0)
    return yf.YuriiFormer(yf.ModelConfig(rule, oracles=oracles, **{**sizes, **options}), seed=seed)


def tokens(model: yf.YuriiFormer, batch: int = 2, length: int | None = None, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, length or model.config.context)
    return torch.randint(model.config.vocab_size, shape, generator=generator)


def unsettle(model: yf.YuriiFormer, seed: int = 1) -> yf.YuriiFormer:
    """Move every parameter off its start: no gain of exactly 1, no weight that hides a path."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * noise.to(parameter.dtype))
    return model


def memorise(model: yf.YuriiFormer, steps: int) -> list[float]:
    """Losses while one small batch is learnt by heart."""
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    ids = tokens(model, batch=4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
