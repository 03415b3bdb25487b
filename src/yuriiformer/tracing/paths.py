"""The trajectory of a token through depth: its length, its turns, and a plane to draw it in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Principal:
    """Points (place, token, 3) along the principal components of all of them, and each
    component's share of the variance."""

    points: Tensor
    explained: Tensor


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Over the last dimension; NaN where a vector is zero, which has no direction."""
    result: Tensor = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))
    return result


def angle(a: Tensor, b: Tensor) -> Tensor:
    """In degrees, 0 to 180; NaN where a vector is zero."""
    return cosine(a, b).clamp(-1.0, 1.0).arccos().rad2deg()


def travel(
    trajectories: Tensor, layers: Tensor, rows: Tensor
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Of X after each of its updates (place, token, d), made in these ``layers`` (the start's is
    -1), and of X before and after each layer (row, token, d).

    Whole paths: length, net distance, and net/length (1 is straight). By row: the length within
    each layer, and the turn between what the layer did to X and what the one before did.
    """
    steps = (trajectories[1:] - trajectories[:-1]).norm(dim=-1)  # (place - 1, token)
    length, net = steps.sum(0), (trajectories[-1] - trajectories[0]).norm(dim=-1)
    within = torch.full(rows.shape[:2], torch.nan, dtype=trajectories.dtype)
    for row in range(1, len(rows)):
        within[row] = steps[layers[1:] == row - 1].sum(0)
    turning = torch.full(rows.shape[:2], torch.nan, dtype=trajectories.dtype)
    moved = rows[1:] - rows[:-1]
    turning[2:] = angle(moved[:-1], moved[1:])
    path = {"length": length, "net": net, "straightness": net / length}
    return path, {"step_length": within, "turning": turning}


def principal(trajectories: Tensor, components: int = 3) -> Principal:
    """Along the directions in which the points of all tokens and places differ most. Each
    direction is turned so that its largest entry is positive: the same points, the same picture."""
    if not trajectories.isfinite().all():  # a model that has diverged
        return Principal(
            trajectories.new_full((*trajectories.shape[:2], components), torch.nan),
            trajectories.new_full((components,), torch.nan),
        )
    points = trajectories.flatten(0, 1)
    centred = points - points.mean(0)
    values, vectors = torch.linalg.eigh(centred.mT @ centred)
    values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
    kept = vectors[:, :components]
    largest = kept.gather(0, kept.abs().argmax(0, keepdim=True))
    projected = centred @ (kept * largest.sign())
    missing = components - projected.shape[1]
    projected = torch.nn.functional.pad(projected, (0, missing))
    shares = torch.nn.functional.pad(values[:components] / values.sum(), (0, missing))
    return Principal(projected.view(*trajectories.shape[:2], components), shares)
