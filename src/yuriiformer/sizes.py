"""The one place where sizes are judged, before anything is allocated or counted up to."""

from __future__ import annotations

import os

from yuriiformer.errors import LARGEST, ConfigError, YuriiError, whole_number

MOST = {  # far beyond what anybody trains, and small enough to be computed with
    "n_layer": 4096,
    "n_head": 2**16,
    "n_kv_head": 2**16,
    "d_model": 2**18,
    "vocab_size": 2**24,
    "valid_vocab": 2**24,
    "context": 2**24,
    "steps": 10**12,
    "warmup": 10**12,
    "sequences": 2**24,
    "eval_sequences": 2**31,
    "micro_batch": 2**24,
    "muon_steps": 1000,
    "threads": 1024,
}


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def size(
    name: str, value: object, least: int | None = 1, error: type[YuriiError] = ConfigError
) -> int:
    """A size by its name, as a whole number within its limits."""
    number = whole_number(name, value, least, error)
    most = MOST.get(name, LARGEST)
    if number > most:
        raise error(f"{name} must be at most {most:,}, not {number:,}")
    return number


def check_memory(needed: int, what: str) -> None:
    """Check that something could ever fit into this machine's memory."""
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > have:
        raise ConfigError(
            f"{what} needs at least {needed / 2**30:,.0f} GiB, but this machine has "
            f"{have / 2**30:,.0f} GiB of memory: choose smaller sizes"
        )
