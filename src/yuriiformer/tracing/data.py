"""Traces as plain data: what ``trace.json`` holds and pages draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from yuriiformer.model.loss import IGNORE
from yuriiformer.model.model import YuriiFormer
from yuriiformer.tracing.recorder import Trace

KIND, VERSION = "yurii trace", 1
DIGITS = 6  # significant ones

Piece = Callable[[int], str]


def numbers(tensor: Tensor) -> Any:
    """Nested lists, rounded; None where a number is not finite."""
    if tensor.ndim > 1:
        return [numbers(part) for part in tensor]
    return [_round(value) for value in tensor.tolist()]


def _round(value: float) -> float | int | None:
    if isinstance(value, int):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def text_data(name: str, trace: Trace, piece: Piece) -> dict[str, Any]:
    """One text. ``piece`` gives the text of a token."""
    targets = [None if t == IGNORE else t for t in trace.targets.tolist()]
    heads = {
        quantity: [None if value is None else value.mean(-1) for value in values]
        for quantity, values in trace.heads.items()
    }
    depths = trace.lens.effective_depth.tolist()
    return {
        "name": name,
        "tokens": trace.tokens.tolist(),
        "pieces": [piece(token) for token in trace.tokens.tolist()],
        "targets": targets,
        "target_pieces": [None if t is None else piece(t) for t in targets],
        "by_step": _known(trace.by_step),
        "heads": _known(heads),
        "by_layer": {name: numbers(value) for name, value in trace.by_layer.items()},
        "whole": {name: numbers(value) for name, value in trace.whole.items()},
        "top": _top(trace, piece),
        "path": {name: numbers(value) for name, value in trace.path.items()},
        "effective_depth": [None if math.isnan(d) else int(d) for d in depths],
        "pca": {
            kind: {
                "points": numbers(found.points),
                "explained": numbers(found.explained),
                "places": [{"row": _round(row), "step": step} for row, step in trace.places],
            }
            for kind, found in trace.principal.items()
        },
    }


def _known(quantities: dict[str, list[Tensor | None]]) -> dict[str, Any]:
    """Those that have a meaning for some step."""
    return {
        name: [None if value is None else numbers(value) for value in values]
        for name, values in quantities.items()
        if any(value is not None for value in values)
    }


def _top(trace: Trace, piece: Piece) -> list[list[list[tuple[str, float]]]]:
    ids, shares = trace.lens.top.tolist(), numbers(trace.lens.top_probability)
    return [
        [
            [(piece(token), share) for token, share in zip(*both, strict=True) if share is not None]
            for both in zip(row, row_shares, strict=True)
        ]
        for row, row_shares in zip(ids, shares, strict=True)
    ]


def run_data(
    model: YuriiFormer, traces: Iterable[tuple[str, Trace]], piece: Piece
) -> dict[str, Any]:
    """All texts of one model, at least one, and the facts about the model. Only one
    trace is in memory at a time."""
    config, first, texts = model.config, None, []
    for name, trace in traces:
        first = first or replace(trace, by_step={}, heads={})
        texts.append(text_data(name, trace, piece))
    assert first is not None
    return {
        "rule": config.rule.to_dict(),
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "d_model": config.d_model,
        "context": config.context,
        "oracles": config.oracles,
        "streams": list(model.streams),
        "coefficients": {
            name: numbers(torch.tensor([c[name] for c in first.coefficients], dtype=torch.float64))
            for name in config.rule.coefficients
        },
        "steps": [asdict(step) for step in first.steps],
        "texts": texts,
    }
