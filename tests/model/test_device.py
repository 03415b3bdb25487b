"""Memory that a step frees serves the next one."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, sys
from yuriiformer.model.device import keep_freed_memory
assert keep_freed_memory() == (sys.argv[1] == "kept")
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():
    return [b"x" * 3 * 2**20 for _ in range(8)]
for _ in range(5):
    step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""


def page_faults(kept, environment):
    command = [sys.executable, "-c", STEPS, "kept" if kept else "as it is"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's allocator")
def test_freed_memory_is_kept():
    pages = 5 * 8 * 3 * 2**20 // 4096
    assert page_faults(True, {}) < pages / 20
    # What the user has set in the environment stays.
    assert page_faults(False, {"MALLOC_MMAP_THRESHOLD_": "131072"}) > pages / 2
