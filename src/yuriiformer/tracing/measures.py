"""What is measured of a model: X's trajectory through depth, the logit lens, the learned maps.

A trajectory has a length, turns, and a plane to draw it in. The lens shows what the model would
predict if it ended after a layer. The maps are those of each layer's heads and MLP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yuriiformer.model.block import Block
from yuriiformer.model.loss import CHUNK_ELEMENTS, IGNORE
from yuriiformer.model.maps import LinearMap, alignment
from yuriiformer.model.model import YuriiFormer

MEASURES = ("attraction", "symmetric", "norm")


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
    """Measure X after each of its updates (place, token, d), made in these ``layers`` (the start's
    is -1), and of X before and after each layer (row, token, d).

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


@dataclass(frozen=True)
class Lens:
    """Rows are layers, from before the first block to after the last.

    Args:
        loss: nats of the true next token (row, token); NaN where it is not known.
        rank: its rank among the real tokens, 1 being the likeliest.
        probability: of the true token.
        kl: divergence of the row's distribution from the last row's, KL(last | row), nats.
        top: ids of the likeliest real tokens (row, token, k), and their ``top_probability``; where
            that is NaN (a model that has diverged) the ids mean nothing.
        effective_depth: (token,): the first row from which the likeliest token is the final one;
            NaN where there is none.
    """

    loss: Tensor
    rank: Tensor
    probability: Tensor
    kl: Tensor
    top: Tensor
    top_probability: Tensor
    effective_depth: Tensor

    def by_layer(self) -> dict[str, Tensor]:
        return {
            "lens_loss": self.loss,
            "lens_rank": self.rank,
            "lens_probability": self.probability,
            "lens_kl": self.kl,
        }


def logit_lens(model: YuriiFormer, rows: Sequence[Tensor], targets: Tensor, top: int = 5) -> Lens:
    """Each row of X (token, d) through the final norm and the output projection.

    Probabilities are those of training (a padded vocabulary has its share, tiny in a trained
    model); ranks and the likeliest tokens are among the real ids.
    """
    chunk = max(1, CHUNK_ELEMENTS // model.config.vocab_size)
    starts = range(0, len(targets), chunk)
    spans = [slice(start, start + chunk) for start in starts]
    parts = [_look(model, [row[s] for row in rows], targets[s].cpu(), top) for s in spans]
    along = {"effective_depth": 0}  # the others are (row, token, ...)

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts], along.get(name, 1))

    return Lens(**{each.name: joined(each.name) for each in fields(Lens)})


def _look(model: YuriiFormer, rows: Sequence[Tensor], targets: Tensor, top: int) -> Lens:
    """The lens for few enough tokens that their probabilities fit into memory."""
    real = model.config.real_vocab
    known = targets != IGNORE
    safe = targets.where(known, 0)
    final = _log_probabilities(model, rows[-1])
    found: dict[str, list[Tensor]] = {key: [] for key in ("loss", "rank", "kl", "top", "share")}
    for row in rows:
        log_p = _log_probabilities(model, row)
        own = log_p.gather(-1, safe[:, None])
        found["loss"].append(-own[:, 0])
        found["rank"].append(1.0 + (log_p[:, :real] > own).sum(-1, dtype=torch.float64))
        found["kl"].append((final.exp() * (final - log_p)).sum(-1))
        share, ids = log_p[:, :real].topk(min(top, real))
        found["share"].append(share.exp())
        found["top"].append(ids)
    stacked = {key: torch.stack(values) for key, values in found.items()}
    loss = stacked["loss"].masked_fill(~known, torch.nan)
    broken = stacked["share"][..., 0].isnan()  # a model that has diverged has no likeliest token
    depth = _settled(stacked["top"][..., 0]).double()
    return Lens(
        loss=loss,
        rank=stacked["rank"].masked_fill(~known | broken, torch.nan),
        probability=(-loss).exp(),
        kl=stacked["kl"],
        top=stacked["top"],
        top_probability=stacked["share"],
        effective_depth=depth.masked_fill(broken[-1], torch.nan),
    )


def _log_probabilities(model: YuriiFormer, X: Tensor) -> Tensor:
    """In the model's precision up to the logits, as it computes them itself, then in float64."""
    return F.linear(normed(model, X), model.token_table).cpu().double().log_softmax(-1)


def normed(model: YuriiFormer, X: Tensor) -> Tensor:
    """After the final norm, as the output projection gets it."""
    table = model.token_table
    result: Tensor = model.norm(X.to(table.device, table.dtype))
    return result


def _settled(best: Tensor) -> Tensor:
    """(row, token) -> the first row after which the token no longer changes."""
    differs = best != best[-1]
    rows = torch.arange(1, len(best) + 1, device=best.device)[:, None]
    return (rows * differs).amax(0)


def learned_maps(model: YuriiFormer) -> dict[str, Any]:
    """By layer and head: what `LinearMap` says of the value–output and the query–key maps, the
    cosine between the two, and by layer the cosine between the MLP's W and the transpose of its A.
    Oracles without a method ``maps`` are left out."""
    found: dict[str, Any] = {}
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    heads = _each(block.attn for block in blocks)
    if heads:
        for name in ("value_output", "query_key"):
            found[name] = _measures([getattr(each, name) for each in heads])
        found["alignment"] = torch.stack(
            [alignment(each.value_output, each.query_key) for each in heads]
        )
    pairs = _each(block.mlp for block in blocks)
    if pairs:
        cosines = [torch.cosine_similarity(*_flat(A, W), dim=0) for A, W in pairs]
        found["mlp_alignment"] = torch.stack(cosines)[:, None]
    return found


def _each(oracles: Iterable[Any]) -> list[Any]:
    """The maps of all of them, or none."""
    asked = list(oracles)
    return [each.maps() for each in asked] if all(hasattr(e, "maps") for e in asked) else []


def _measures(maps: list[LinearMap]) -> dict[str, Any]:
    values = torch.stack([each.eigenvalues for each in maps])
    kept: dict[str, Any] = {
        name: torch.stack([getattr(each, name) for each in maps]) for name in MEASURES
    }
    return {**kept, "eigenvalues": torch.view_as_real(values)}


def _flat(A: torch.Tensor, W: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return A.detach().double().ravel(), W.detach().double().mT.ravel()
