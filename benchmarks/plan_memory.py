"""Memory of training steps: as `yurii plan` predicts it, and as the process takes it.

Each size trains a few real steps on random tokens in a process of its own.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import torch

from benchmarks.measuring import Rounds, Row, fresh, rise, subject
from benchmarks.training_step import NESTEROV
from yuriiformer.config import Machine, Recipe, TrainConfig
from yuriiformer.model.config import ModelConfig
from yuriiformer.training.estimate import MemoryEstimate

SIZES = {  # layers, heads, width, vocabulary, context, micro-batch
    "small": (6, 4, 128, 4096, 256, 8),
    "middle": (6, 6, 384, 8192, 256, 8),
    "large": (8, 8, 512, 16384, 256, 6),
}
# The allocator gives back what is freed.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}


def configuration(size: str, rule: str, *, recompute: bool) -> TrainConfig:
    layers, heads, width, vocabulary, context, micro = SIZES[size]
    model = ModelConfig(rule, layers, heads, width, vocabulary, context=context)
    machine = Machine(micro_batch=micro, recompute=recompute, precision="float32")
    return TrainConfig(model, Recipe(steps=10, sequences=2 * micro), machine=machine)


def steps(config: TrainConfig, count: int) -> None:
    """Real ones, through the package's own step."""
    from yuriiformer.training.optimizer import Optimizer
    from yuriiformer.training.processes import Processes
    from yuriiformer.training.step import MicroBatch, build_model, train_step

    team = Processes(0, 1, torch.device("cpu"))
    model = build_model(config, seed=0)
    optimizer = Optimizer(model, config.recipe, torch.float32)
    for step in range(count):
        micro, shape = [], (config.machine.micro_batch, config.model.context)
        for _ in range(2):
            tokens = torch.randint(config.model.vocab_size, shape)
            micro.append(MicroBatch((tokens, tokens), 0.5))
        train_step(model, micro, optimizer, team, torch.float32, step)


def peak(size: str, rule: str, recompute: bool) -> int:
    config = configuration(size, rule, recompute=recompute)
    small = replace(config.model, n_layer=2, n_head=2, d_model=64, vocab_size=128, context=64)
    steps(replace(config, model=small), 1)  # whatever is loaded on first use
    return rise(lambda: steps(config, 2))


def measured(size: str, rule: str, *, recompute: bool) -> float:
    """Bytes of a training step, in a process of its own."""
    return float(fresh(peak, size, rule, recompute, **ALLOCATOR))


@subject(
    "plan-memory",
    Row(
        "Memory of a training step as `yurii plan` predicts it: 3 sizes, with and without "
        "recomputing",
        "of the process",
        ("predicted", "measured"),
    ),
)
def plan_memory(*, quick: bool) -> Rounds:
    found: Rounds = {"predicted": [], "measured": []}
    for size, recompute in [("small", False)] if quick else product(SIZES, (False, True)):
        config = configuration(size, NESTEROV, recompute=recompute)
        estimate = MemoryEstimate(config, torch.float32).at(config.machine.micro_batch)
        found["predicted"].append(float(estimate.peak))
        found["measured"].append(measured(size, NESTEROV, recompute=recompute))
    return found
