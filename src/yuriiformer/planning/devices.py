"""Devices that a run can be planned for: a table of data sheets (`devices.toml`), and this machine,
which is measured: how fast it multiplies and copies, how much memory it has, and how long a real
step takes on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.flops import model_work, muon_work
from yuriiformer.costs.run import count_parameters
from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.files import packaged_table
from yuriiformer.model.config import Precision
from yuriiformer.model.device import FIXED, SHARE, device_memory, has_bfloat16, usable
from yuriiformer.training.estimate import MemoryEstimate
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.step import MicroBatch, accumulate, build_model

HERE = "cpu"  # this machine, which is measured
CPU = torch.device("cpu")
PATIENCE = 30.0  # seconds that all timing may be expected to take
EXPECTED = 0.5  # of the device's rate, to tell how long it would
SIDE = 1536  # of the matrices that are multiplied
COPIED = 2**26  # floats: beyond any cache


@dataclass(frozen=True)
class Device:
    """Bytes, bytes per second, FLOP/s."""

    SHARE: ClassVar[float] = SHARE
    FIXED: ClassVar[float] = FIXED

    name: str
    label: str
    memory: float
    bandwidth: float
    float32: float
    bfloat16: float | None = None

    @property
    def usable(self) -> float:
        """What a run may fill: the rest is assumed to be lost."""
        return usable(self.memory)

    def dtype(self, precision: Precision) -> torch.dtype:
        """As `compute_dtype` would choose on the device."""
        if precision == "auto":
            return torch.float32 if self.bfloat16 is None else torch.bfloat16
        if precision == "bfloat16" and self.bfloat16 is None:
            raise ConfigError(
                f"{self.label} has no bfloat16: plan it with --precision float32 (or auto)"
            )
        return torch.bfloat16 if precision == "bfloat16" else torch.float32

    def rate(self, dtype: torch.dtype) -> float:
        if dtype == torch.bfloat16:
            assert self.bfloat16 is not None
            return self.bfloat16
        return self.float32


@cache
def known_devices() -> dict[str, Device]:
    """All of them by name."""
    found = packaged_table("planning/devices.toml").items()
    return {name: Device(name, **values) for name, values in found}


def find_device(name: str) -> Device:
    """One of the table."""
    known = known_devices()
    if name not in known:
        hint = did_you_mean(name, [*known, HERE]) or f"; known are {', '.join([*known, HERE])}"
        raise ConfigError(f"unknown device {name!r}{hint}")
    return known[name]


def this_machine(threads: int | None = None, device: torch.device = CPU) -> Device:
    """Takes about a second, the first time that a process asks."""
    return _measured(threads or torch.get_num_threads(), device)


@cache
def _measured(threads: int, device: torch.device) -> Device:
    with _threads(threads):
        dtypes = [torch.float32, *([torch.bfloat16] if has_bfloat16(device) else [])]
        rates = {dtype: _product_rate(dtype, device) for dtype in dtypes}
        bandwidth = _bandwidth(device)
    label = f"this machine's CPU, {threads} threads (measured)"
    if device.type == "cuda":
        label = f"{torch.cuda.get_device_properties(device).name} (measured)"
    elif device.type == "mps":
        label = "this machine's GPU (measured)"
    low = rates.get(torch.bfloat16)
    return Device(HERE, label, float(device_memory(device)), bandwidth, rates[torch.float32], low)


@dataclass(frozen=True)
class Timing:
    """Seconds of a micro-batch's forward and backward pass, and of the optimisers' step."""

    passes: float
    update: float


def time_steps(
    configs: Sequence[TrainConfig],
    device: Device,
    place: torch.device = CPU,
    patience: float | None = None,
) -> Sequence[Timing | None]:
    """Compute a micro-batch and an update of each model, timed; None for all if they do not fit or
    would take long."""
    most = PATIENCE if patience is None else patience
    dtype = device.dtype(configs[0].machine.precision)
    micro = min(configs[0].machine.micro_batch, configs[0].recipe.sequences)
    long = sum(_expected(config, micro, device.rate(dtype)) for config in configs) > most
    if long or any(
        MemoryEstimate(config, dtype).at(micro).peak > device.usable for config in configs
    ):
        return [None] * len(configs)
    return [time_step(config, micro, dtype, place) for config in configs]


def _expected(config: TrainConfig, micro: int, rate: float) -> float:
    """The seconds that both rounds would take."""
    work = model_work(config.model, recompute=config.machine.recompute)
    matrices = list(count_parameters(config.model).matrices)
    passes = (work.total.both + work.recomputed) * micro * config.model.context
    return 2 * (passes + muon_work(matrices, config.recipe.muon_steps)) / (EXPECTED * rate)


def time_step(
    config: TrainConfig, micro_batch: int, dtype: torch.dtype, device: torch.device = CPU
) -> Timing:
    """Time this model itself, trained on random tokens; the better of two rounds."""
    with _threads(config.machine.threads):
        model = build_model(config, seed=0).to(device)
        optimizer = Optimizer(model, config.recipe, dtype)
        generator = torch.Generator().manual_seed(0)
        shape = (micro_batch, config.model.context)
        tokens = torch.randint(config.model.vocab_size, shape, generator=generator).to(device)
        micro = [MicroBatch((tokens, tokens), 1.0)]
        processes = Processes(0, 1, device)

        def passes() -> None:
            accumulate(model, micro, processes, dtype)

        def update() -> None:
            optimizer.clip(optimizer.norm())
            optimizer.step()

        times = [(_seconds(passes, device), _seconds(update, device)) for _ in range(2)]
    return Timing(*(min(each) for each in zip(*times, strict=True)))


def _product_rate(dtype: torch.dtype, device: torch.device) -> float:
    one = torch.ones(SIDE, SIDE, dtype=dtype, device=device)
    best = min(_seconds(lambda: one @ one, device) for _ in range(4))
    return 2 * SIDE**3 / best


def _bandwidth(device: torch.device) -> float:
    """Read once and written once."""
    source, target = torch.ones(COPIED, device=device), torch.empty(COPIED, device=device)
    best = min(_seconds(lambda: target.copy_(source), device) for _ in range(4))
    return 2 * source.nbytes / best


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    _wait(device)
    began = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - began


def _wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Torch's threads for a while, as a run would set them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
