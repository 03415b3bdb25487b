"""Devices that a run can be planned for: a table of data sheets (`devices.toml`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import ClassVar

import torch

from yuriiformer.errors import ConfigError, did_you_mean
from yuriiformer.model.config import Precision

HERE = "cpu"  # this machine, which is measured


@dataclass(frozen=True)
class Device:
    """Bytes, bytes per second, FLOP/s."""

    # What is set aside: a share for fragmentation, and the context of the driver.
    SHARE: ClassVar[float] = 0.08
    FIXED: ClassVar[float] = 1e9

    name: str
    label: str
    memory: float
    bandwidth: float
    float32: float
    bfloat16: float | None = None

    @property
    def usable(self) -> float:
        """What a run may fill: the rest is assumed to be lost."""
        return self.memory * (1 - self.SHARE) - self.FIXED

    def dtype(self, precision: Precision) -> torch.dtype:
        """As `precision.compute_dtype` would choose on the device."""
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
def table() -> dict[str, Device]:
    """All of them by name."""
    text = resources.files("yuriiformer.planning").joinpath("devices.toml").read_text("utf-8")
    return {name: Device(name, **values) for name, values in tomllib.loads(text).items()}


def find_device(name: str) -> Device:
    """One of the table."""
    known = table()
    if name not in known:
        hint = did_you_mean(name, [*known, HERE]) or f"; known are {', '.join([*known, HERE])}"
        raise ConfigError(f"unknown device {name!r}{hint}")
    return known[name]
