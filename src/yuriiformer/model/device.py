"""Devices and precisions: what their names mean on this machine; memory, and how it is kept."""

from __future__ import annotations

import ctypes
import os
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

import torch

from yuriiformer.errors import ConfigError
from yuriiformer.model.config import Precision

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
# Of a device's memory set aside: a share for fragmentation, and the context of the driver.
SHARE, FIXED = 0.08, 1e9
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
LARGEST_INT = 2**31 - 1


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device that a name means on this machine."""
    if name == "auto":
        if torch.cuda.is_available():
            return _gpu(local_rank)
        return torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"unknown device {name!r}: use auto, cpu, cuda, cuda:N or mps") from None
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(device.type, False):
        raise ConfigError(f"device {name!r} is not there on this machine: use --device cpu")
    if device.type != "cuda":
        return device
    if name != "cuda" and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        raise ConfigError(f"--device {name} is one GPU: with several processes use --device cuda")
    return _gpu(local_rank if name == "cuda" else device.index)


def _gpu(index: int) -> torch.device:
    count = torch.cuda.device_count()
    if index >= count:
        raise ConfigError(f"GPU {index} is not there: this machine has {count} (one per process)")
    return torch.device("cuda", index)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware multiplies bfloat16 matrices itself (emulated they are slow)."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        # The public API has no word for it; without these instructions bfloat16 is emulated.
        checks = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
        return any(bool(getattr(torch.cpu, check, lambda: False)()) for check in checks)
    return False


def compute_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The dtype of oracles, output projection and Newton–Schulz."""
    if precision == "auto":
        return torch.bfloat16 if has_bfloat16(device) else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """The context that a forward pass runs in."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def device_memory(device: torch.device) -> int:
    """Bytes of a device; of the CPU, those of the machine."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    return machine_memory()


def usable(memory: float) -> float:
    """The part of the memory that a run may fill: the rest is assumed to be lost."""
    return memory * (1 - SHARE) - FIXED


def machine_memory(limits: tuple[str, ...] = LIMITS, info: str = "/proc/meminfo") -> int:
    """The memory of the machine, or of the container that this process is in."""
    found = []
    for limit in limits:
        with suppress(OSError, ValueError):  # not there, or "max"
            found.append(int(Path(limit).read_text()))
    with suppress(OSError):
        for line in Path(info).read_text().splitlines():
            if line.startswith("MemTotal:"):
                found.append(int(line.split()[1]) * 1024)
    return min(found, default=8 * 2**30)


def keep_freed_memory() -> bool:
    """Let the C allocator keep freed memory for the next step, for the rest of this process. False
    where the C library is not glibc, or where the environment configures it.

    A step on a CPU allocates and frees the same tensors again and again. By default glibc returns
    large ones to the system, and every page of the next one is a page fault. At 6 layers, d = 384
    and 8×256 tokens that were 28,000 to 45,000 faults per step of Nesterov's rule: 50 to 80 ms of
    system time.
    """
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(option, LARGEST_INT) == 1 for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
