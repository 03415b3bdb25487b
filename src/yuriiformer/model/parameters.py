"""A model's parameters: how each starts, and which of them an optimiser treats alike.

Starts are nanoGPT's distributions, drawn by name: each tensor is drawn on the CPU from a generator
of its own, seeded by (seed, name). So two models of different rules start from the same tensors
where both have them, independent of order and device, and the global RNG is not used.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from yuriiformer.model.block import Coefficients
from yuriiformer.model.shards import local, local_rows

STD = 0.02


def tensor_seed(seed: int, name: str) -> int:
    """64 bits that depend on both."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


@torch.no_grad()
def initialize(model: nn.Module, seed: int) -> None:
    """Initialise every parameter, of a sharded one the rows that are here; those on the meta
    device are skipped."""
    for prefix, module in model.named_modules():
        if isinstance(module, Coefficients):  # those that are fixed
            for name, buffer in module.named_buffers(recurse=False):
                buffer.fill_(module.starts[name.removeprefix("raw_")])
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_meta:
                continue
            full = f"{prefix}.{name}" if prefix else name
            if isinstance(module, Coefficients):
                parameter.fill_(module.starts[name.removeprefix("raw_")])
            elif parameter.ndim >= 2:
                std = STD * getattr(module, "init_scale", 1.0)
                whole = _normal(parameter, std, tensor_seed(seed, full))
                local(parameter).copy_(whole[slice(*local_rows(parameter))])
            elif name == "bias":
                parameter.zero_()
            else:  # the gain of a norm
                parameter.fill_(1.0)


def _normal(like: Tensor, std: float, seed: int) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    return torch.empty(like.shape, dtype=torch.float32).normal_(0.0, std, generator=generator)


MATRICES = "matrices"


@dataclass(frozen=True)
class Group:
    """Parameters, by name, that are treated alike. ``parts``: maps fused in each matrix."""

    kind: str
    names: tuple[str, ...]
    parts: int = 1


def parameter_groups(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The trained parameters of any module, each once, by how the recipe trains them: ``muon``
    (tensors of two or more dimensions that are not embeddings), ``embeddings``, ``norms`` (with
    biases and other vectors), ``coefficients`` (of update rules). Frozen ones are in none."""
    found: dict[str, list[nn.Parameter]]
    found = {kind: [] for kind in ("muon", "embeddings", "norms", "coefficients")}
    for group in named_groups(model):
        kind = "muon" if group.kind == MATRICES else group.kind
        found[kind] += [model.get_parameter(name) for name in group.names]
    return found


def named_groups(model: nn.Module, *, split_fused: bool = False) -> list[Group]:
    """Matrices (those of a fused projection apart, where they are to be split), embeddings, norms
    (with biases and other vectors) and update-rule coefficients.

    Frozen parameters, which can never reach the logits, are in none.
    """
    found: dict[tuple[str, int], list[str]] = {}
    tables = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    seen: set[int] = set()  # a tied parameter belongs to two modules
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in seen:
                seen.add(id(parameter))
                kind = "embeddings" if id(parameter) in tables else _kind(module, parameter)
                parts = getattr(module, "parts", 1) if split_fused and kind == MATRICES else 1
                full = f"{prefix}.{name}" if prefix else name
                found.setdefault((kind, parts), []).append(full)
    order = (MATRICES, "embeddings", "norms", "coefficients")
    return [
        Group(kind, tuple(names), parts)
        for (kind, parts), names in sorted(found.items(), key=lambda item: order.index(item[0][0]))
    ]


def _kind(module: nn.Module, parameter: Tensor) -> str:
    if isinstance(module, Coefficients):
        return "coefficients"
    return MATRICES if parameter.ndim >= 2 else "norms"
