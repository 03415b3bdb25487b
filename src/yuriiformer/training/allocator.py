"""The C allocator of a training process.

A step on a CPU allocates and frees the same tensors again and again. By default glibc returns large
ones to the system, and every page of the next one is a page fault. At 6 layers, d = 384 and 8×256
tokens that were 28,000 to 45,000 faults per step of Nesterov's rule: 50 to 80 ms of system time.
"""

from __future__ import annotations

import ctypes
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Keep what is freed for the next step, for the rest of this process. False where the C library
    is not glibc, or where the environment says what it should do."""
    if any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(option, LARGEST) == 1 for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD))
