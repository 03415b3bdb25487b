"""Which optimiser and which options each parameter gets: every one in exactly one group."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from yuriiformer.model.coefficients import Coefficients

MATRICES = "matrices"


@dataclass(frozen=True)
class Group:
    """Parameters, by name, that are treated alike. ``parts``: maps fused in each matrix."""

    kind: str
    names: tuple[str, ...]
    parts: int = 1


def parameter_groups(model: nn.Module, *, split_fused: bool = False) -> list[Group]:
    """Matrices (those of a fused projection apart, where they are to be split), embeddings, norms
    (with biases and other vectors) and update-rule coefficients.

    Frozen parameters, which can never reach the logits, are in none.
    """
    found: dict[tuple[str, int], list[str]] = {}
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad:
                kind = _kind(module, parameter)
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
    if isinstance(module, nn.Embedding):
        return "embeddings"
    return MATRICES if parameter.ndim == 2 else "norms"
