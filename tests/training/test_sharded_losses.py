"""The losses of a divided model are those of one process, whatever the rule and the division."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.training.runs import small, tales
from tests.training.teams import bare_losses, bare_steps, divided, parts_of, take_place, team
from yuriiformer.config import TrainConfig
from yuriiformer.methods.catalog import standard
from yuriiformer.training.step import train_step

PANEL = [
    (rule, oracles)
    for rule in (*standard, "gd-table", "nesterov-fixed")
    for oracles in ("paper", "modern")
]
STEPS = 50


def panel(rule: str, oracles: str) -> TrainConfig:
    """Clipping is active at every step, and so is weight decay.

    With seed 0, one of these models has a step that nearly divides by zero: if one process begins
    with weights that are a rounding apart, that step's loss differs by 1.4e-5. So it has seed 1.
    """
    base = small(rule, steps=STEPS, seed=int((rule, oracles) == ("polyak-lie-trotter", "modern")))
    return base.with_(oracles=oracles, clip=0.3, weight_decay=0.1, context=16, micro_batch=2)


def train_panel(rank: int, size: int, port: int, data: Path, home: Path, kinds: list) -> None:
    take_place(rank, size, port)
    found = {}
    for parallel, group in kinds:
        for rule, oracles in PANEL:
            config = divided(panel(rule, oracles), parallel, group)
            found[f"{parallel} {group} {rule} {oracles}"] = bare_steps(config, data, STEPS)
    if rank == 0:
        home.write_text(json.dumps(found))


@pytest.fixture(scope="module")
def alone() -> dict[str, list[tuple[float, float]]]:
    """Losses and norms of one process."""
    torch.set_num_threads(1)
    return {f"{r} {o}": bare_steps(panel(r, o), tales(), STEPS) for r, o in PANEL}


@pytest.mark.slow
@pytest.mark.timeout(3600)  # on a machine that others use
@pytest.mark.parametrize(
    ("size", "kinds"),
    [
        (2, [("ddp", None), ("fsdp", None)]),
        (3, [("fsdp", None)]),
        (4, [("ddp", None), ("fsdp", None), ("fsdp", 2)]),
    ],
)
def test_losses_do_not_depend_on_how_the_model_is_divided(tmp_path, alone, size, kinds):
    """Three processes do not divide the eight sequences, nor the rows of most matrices. The norms
    are compared too: losses hardly depend on the gradient's size, which both optimisers divide
    by."""
    team(size, train_panel, tales(), tmp_path / "found", kinds)
    found = json.loads((tmp_path / "found").read_text())
    assert len(found) == len(kinds) * len(PANEL)
    for key, steps in found.items():
        expected, expected_norms = zip(*alone[key.split(" ", 2)[2]], strict=True)
        values, norms = zip(*steps, strict=True)
        assert values == pytest.approx(expected, abs=1e-5), key
        assert norms == pytest.approx(expected_norms, rel=1e-3), key
        assert min(norms) > 0.3, key  # so every step was clipped
        assert expected[-1] < expected[0] - 0.5


# --- other ways of computing ---


def train_variants(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    take_place(rank, size, port)
    found = {name: bare_losses(config, data, 6) for name, config in variants("fsdp").items()}
    if rank == 0:
        home.write_text(json.dumps(found))


def variants(parallel: str) -> dict[str, TrainConfig]:
    base = small("nesterov-lie-trotter", steps=6).with_(parallel=parallel)
    low = base.with_(precision="bfloat16")
    return {
        "recompute": base.with_(recompute=True),
        "adamw": base.with_(matrices="adamw"),
        "split": base.with_(split_fused=True),
        "bfloat16": low,
        "bfloat16 recompute": low.with_(recompute=True),
    }


@pytest.mark.slow
def test_recomputing_low_precision_and_other_optimisers(tmp_path):
    """In bfloat16 the matrices travel in it: the products are those of autocast."""
    team(3, train_variants, tales(), tmp_path / "found")
    found = json.loads((tmp_path / "found").read_text())
    for name, config in variants("auto").items():
        close = 5e-3 if "bfloat16" in name else 1e-5
        assert found[name] == pytest.approx(bare_losses(config, tales(), 6), abs=close), name


def train_compiled(rank: int, size: int, port: int, data: Path, home: Path) -> None:
    take_place(rank, size, port)
    found = {}
    for precision in ("float32", "bfloat16"):
        config = divided(small(), "fsdp")
        config = config.with_(precision=precision, recompute=precision == "float32")
        plain = bare_losses(config, data, 3)
        here, model, module, optimizer = parts_of(config, data)
        model.compile_blocks()
        compiled = []
        for step in range(3):
            batches = here.batches.training(step)
            done = train_step(module, batches, optimizer, here.processes, here.dtype, step)
            compiled.append(done.loss)
        found[precision] = [plain, compiled]
    if rank == 0:
        home.write_text(json.dumps(found))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # each process compiles: 400 s on a machine that was very busy
def test_compiled_blocks_of_a_divided_model(tmp_path):
    team(2, train_compiled, tales(), tmp_path / "found")
    found = json.loads((tmp_path / "found").read_text())
    assert found["float32"][1] == pytest.approx(found["float32"][0], abs=1e-5)
    assert found["bfloat16"][1] == pytest.approx(found["bfloat16"][0], abs=5e-3)
