"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil

# Threads of child processes sleep while they wait: the cores are shared, and spinning costs others.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
from hypothesis import settings

# A run asks some seventy times that the disk has its files. In memory that is no wait.
MEMORY = "/dev/shm"
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2**31:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)

# The same examples every time.
settings.register_profile("fast", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=200)
settings.load_profile("fast")  # 'make test-slow' asks for the thorough one


# Each worker starts with a part of the list. What imports transformers and the harness stands at
# its beginning, and what needs warm processes at its end, so that one worker alone pays for either.
FIRST = ("huggingface/", "model/test_gpt2", "evaluation/", "cli/test_evaluate")
LAST = ("runs/", "comparison/", "training/")


def _place(item) -> int:
    name = item.nodeid.removeprefix("tests/")
    return -name.startswith(FIRST) + name.startswith(LAST)


def pytest_collection_modifyitems(items):
    """Not reached by the process that only hands out tests, which so needs no torch."""
    import torch

    torch.set_num_threads(1)  # workers share few cores
    gc.freeze()  # else every collection of garbage looks through all of torch again
    gc.set_threshold(50_000, 20, 20)  # and through all that tests import later
    items.sort(key=_place)
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("drawn")


@pytest.fixture(scope="session")
def need_tool():
    """A program of the system: skipped where it is missing, but never in CI."""

    def need(name: str) -> str:
        path = shutil.which(name)
        if path is None and os.environ.get("CI"):
            pytest.fail(f"{name} is not installed, and in CI nothing is skipped")
        if path is None:
            pytest.skip(f"{name} is not installed")
        return path

    return need
