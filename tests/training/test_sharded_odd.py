"""Models that are hard to divide: fewer rows than processes, coefficients per channel, further
streams and tables, tied tables, oracles of the user's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.runs import small, tales
from tests.training.teams import bare_losses, divided, take_place, team
from yuriiformer.config import TrainConfig
from yuriiformer.methods import frugal

STEPS = 6


def odd() -> dict[str, TrainConfig]:
    base = small(steps=STEPS).with_(clip=0.3, weight_decay=0.1, warmup=1)
    few = {"n_layer": 2, "context": 3}  # of 4 processes some have no row of a matrix at all
    three, six = {**few, "d_model": 3, "n_head": 1}, {**few, "d_model": 6, "n_head": 3}
    rules = (
        "nesterov-lie-trotter+channel=mu,beta",
        "nesterov-lie-trotter+head=gamma+fixed=beta",
        "nesterov-table",
        "gd-tied",
        "nesterov-table+V=tied",
        "adam-like",
        "adams-bashforth",
    )
    found = {rule: small(rule, steps=STEPS).with_(clip=0.3, context=16) for rule in rules}
    found["few rows"] = base.with_(**three)
    found["few rows, recomputed"] = base.with_(recompute=True, **three)
    found["few rows, modern"] = base.with_(oracles="modern", **six)
    found["biases"] = base.with_(bias=True)
    found["separate norms"] = base.with_(velocity_norm="separate")
    found["grouped keys"] = base.with_(oracles="modern", n_head=4, n_kv_head=1)
    return found


def train_odd(rank: int, size: int, port: int, data: Path, home: Path, kinds: list) -> None:
    take_place(rank, size, port)
    frugal.LARGE = 0  # these streams, too, are made again in the backward pass, as large ones are
    found = {}
    for group in kinds:
        for name, config in odd().items():
            found[f"{group} {name}"] = bare_losses(divided(config, "fsdp", group), data, STEPS)
    if rank == 0:
        home.write_text(json.dumps(found))


@pytest.mark.slow
@pytest.mark.parametrize(("size", "kinds"), [(4, [None, 2]), (3, [None])])
def test_models_that_are_hard_to_divide(tmp_path, size, kinds):
    team(size, train_odd, tales(), tmp_path / "found", kinds)
    found = json.loads((tmp_path / "found").read_text())
    alone = {name: bare_losses(config, tales(), STEPS) for name, config in odd().items()}
    assert len(found) == len(kinds) * len(alone)
    for key, values in found.items():
        assert values == pytest.approx(alone[key.split(" ", 1)[1]], abs=1e-5), key
