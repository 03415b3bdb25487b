"""The device that a word means on this machine."""

from __future__ import annotations

import os

import torch

from yuriiformer.errors import ConfigError


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """The device that a configuration's word means on this machine."""
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
