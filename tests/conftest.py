"""What all tests share."""

from __future__ import annotations

import os
import shutil

import pytest
import torch
from hypothesis import settings

# Workers share few cores; one thread each, and the same examples every time.
torch.set_num_threads(1)
settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")


@pytest.fixture
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
