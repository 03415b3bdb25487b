"""This machine's own figures: how fast it multiplies and copies, how much memory it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.model.precision import has_bfloat16
from yuriiformer.planning.devices import HERE, Device
from yuriiformer.planning.memory import build
from yuriiformer.training.batches import MicroBatch
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import accumulate

CPU = torch.device("cpu")
SIDE = 1536  # of the matrices that are multiplied
COPIED = 2**26  # floats: beyond any cache
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def this_machine(threads: int | None = None) -> Device:
    """Takes about a second."""
    with _threads(threads):
        rates = {dtype: _product_rate(dtype) for dtype in _dtypes()}
        bandwidth = _bandwidth()
    return Device(
        HERE,
        f"this machine's CPU, {threads or torch.get_num_threads()} threads (measured)",
        float(memory()),
        bandwidth,
        rates[torch.float32],
        rates.get(torch.bfloat16),
    )


def memory(limits: tuple[str, ...] = LIMITS, info: str = "/proc/meminfo") -> int:
    """Of the machine, or of the container that this process is in."""
    found = []
    for limit in limits:
        with suppress(OSError, ValueError):  # not there, or "max"
            found.append(int(Path(limit).read_text()))
    with suppress(OSError):
        for line in Path(info).read_text().splitlines():
            if line.startswith("MemTotal:"):
                found.append(int(line.split()[1]) * 1024)
    return min(found, default=8 * 2**30)


@dataclass(frozen=True)
class Timing:
    """Seconds of a micro-batch's forward and backward pass, and of the optimisers' step."""

    passes: float
    update: float


def time_step(config: TrainConfig, micro_batch: int, dtype: torch.dtype) -> Timing:
    """Of this very model, really trained on random tokens; the better of two."""
    with _threads(config.machine.threads):
        model = build(config, seed=0)
        optimizer = Optimizer(model, config.recipe, dtype)
        generator = torch.Generator().manual_seed(0)
        shape = (micro_batch, config.model.context)
        tokens = torch.randint(config.model.vocab_size, shape, generator=generator)
        micro = [MicroBatch((tokens, tokens), 1.0)]
        processes = Processes(0, 1, CPU)

        def update() -> None:
            optimizer.clip(optimizer.norm())
            optimizer.step()

        times = [
            (_seconds(lambda: accumulate(model, micro, processes, dtype)), _seconds(update))
            for _ in range(2)
        ]
    return Timing(*(min(each) for each in zip(*times, strict=True)))


def _dtypes() -> list[torch.dtype]:
    return [torch.float32] + ([torch.bfloat16] if has_bfloat16(CPU) else [])


def _product_rate(dtype: torch.dtype) -> float:
    one = torch.ones(SIDE, SIDE, dtype=dtype)
    best = min(_seconds(lambda: one @ one) for _ in range(4))
    return 2 * SIDE**3 / best


def _bandwidth() -> float:
    """Read once and written once."""
    source, target = torch.ones(COPIED), torch.empty(COPIED)
    best = min(_seconds(lambda: target.copy_(source)) for _ in range(4))
    return 2 * source.nbytes / best


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Torch's threads for a while, as a run would set them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
