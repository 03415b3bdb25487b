"""Checks of a model's input."""

from __future__ import annotations

import torch
from torch import Tensor

from yuriiformer.errors import InputError
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.loss import IGNORE


def check_tokens(
    tokens: Tensor, targets: Tensor | None, config: ModelConfig
) -> tuple[Tensor, Tensor | None]:
    """Token ids (batch, token) and, where given, targets of the same shape, as int64."""
    tokens = _as_ids("tokens", tokens)
    if tokens.ndim != 2:
        shape = tuple(tokens.shape)
        raise InputError(f"tokens must be (batch, token), not of shape {shape}")
    if not 1 <= tokens.shape[1] <= config.context:
        raise InputError(
            f"{tokens.shape[1]} tokens do not fit: this model takes 1 to {config.context} "
            "(its context); cut the sequence, or build the model with a larger context"
        )
    _check_range("token", tokens, config.vocab_size)
    if targets is not None:
        targets = _as_ids("targets", targets)
        if targets.shape != tokens.shape:
            shapes = f"{tuple(targets.shape)}, but tokens {tuple(tokens.shape)}"
            raise InputError(f"targets have shape {shapes}: one target per token")
        _check_range("target", targets, config.vocab_size, ignored=IGNORE)
    return tokens, targets


def _as_ids(what: str, ids: object) -> Tensor:
    """Any kind of integers (token files are uint16) as int64."""
    if not isinstance(ids, Tensor):
        kind = type(ids).__name__
        raise InputError(f"{what} must be a tensor, not {kind}: use torch.as_tensor(...)")
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise InputError(f"{what} must be whole numbers, not {ids.dtype}: use {what}.long()")
    return ids.long()


def _check_range(what: str, ids: Tensor, vocab: int, ignored: int | None = None) -> None:
    # Reading values would stall a GPU and cannot be compiled; there the kernels check. Fake tensors
    # have no values to read.
    if torch.compiler.is_compiling() or ids.device.type != "cpu" or type(ids) is not Tensor:
        return
    wrong = (ids < 0) | (ids >= vocab)
    if ignored is not None:
        wrong &= ids != ignored
    if bool(wrong.any()):
        worst = int(ids[wrong][0])
        raise InputError(
            f"{what} id {worst} is out of range: this model's vocabulary is 0 to {vocab - 1}"
        )
