"""Whether to compile the blocks, and doing it."""

from __future__ import annotations

import shutil

import torch

from yuriiformer.config import Compile
from yuriiformer.errors import ConfigError
from yuriiformer.model.model import YuriiFormer

# Compilation takes about half a minute on a CPU and gains some 5 %: it pays for runs of more than
# some ten minutes at 100 GFLOP/s (benchmarks/training_step.py measures both).
WORTH_IT = 1e14


def compiles(choice: Compile, device: torch.device, flops: float) -> bool:
    """What ``auto`` means for a run of so many floating-point operations."""
    if choice == "off":
        return False
    if device.type != "cpu":
        return choice == "on" or device.type == "cuda"
    compiler = shutil.which("g++") or shutil.which("clang++")
    if choice == "on" and compiler is None:
        raise ConfigError("--compile on needs a C++ compiler (g++ or clang++) on the path")
    return choice == "on" or (compiler is not None and flops > WORTH_IT)


def compile_model(model: YuriiFormer) -> None:
    """Blocks with the same program share one graph; the loss stays outside."""
    model.compile_blocks()
