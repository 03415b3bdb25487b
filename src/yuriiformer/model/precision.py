"""What the hardware computes in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from yuriiformer.model.config import Precision


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware supports bfloat16 products (emulation is slow)."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        # There is no public API; without these instructions bfloat16 is emulated.
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
