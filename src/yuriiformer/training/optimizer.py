"""Both optimisers of a model as one: their groups, learning rates and state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from yuriiformer.config import Recipe
from yuriiformer.errors import ConfigError
from yuriiformer.model.parameters import MATRICES, named_groups
from yuriiformer.model.shards import is_sharded, local, local_rows
from yuriiformer.training.muon import Muon

# What each optimiser remembers of a parameter.
KEYS = {"muon": ("momentum",), "adamw": ("step", "exp_avg", "exp_avg_sq")}


class Optimizer:
    """Muon for the matrices (unless the recipe gives them to AdamW), AdamW for the rest, with the
    recipe's rates. Frozen parameters are left alone. ``dtype`` is what Muon's Newton–Schulz
    computes in, ``group`` are the processes that share its work, ``shard_group`` those that hold
    the rows of the matrices and tables between them."""

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        dtype: torch.dtype = torch.float32,
        group: dist.ProcessGroup | None = None,
        shard_group: dist.ProcessGroup | None = None,
    ) -> None:
        self.recipe, self.shard_group = recipe, shard_group
        self.names = {name: p for name, p in model.named_parameters() if p.requires_grad}
        matrices, rest = [], []
        for each in named_groups(model, split_fused=recipe.split_fused):
            params = [self.names[name] for name in each.names]
            if each.kind == MATRICES and recipe.uses_muon:
                matrices.append({"params": params, "parts": each.parts, "peak": recipe.muon_lr})
                continue
            decay = recipe.weight_decay if each.kind in (MATRICES, "embeddings") else 0.0
            rate = recipe.matrix_peak if each.kind == MATRICES else recipe.adamw_lr
            peak = rate * (recipe.coefficient_lr if each.kind == "coefficients" else 1.0)
            rest.append({"params": params, "weight_decay": decay, "peak": peak})
        self.both: dict[str, torch.optim.Optimizer] = {}
        if recipe.uses_muon:
            self.both["muon"] = Muon(
                matrices,
                recipe.muon_lr,
                momentum=recipe.muon_momentum,
                nesterov=recipe.muon_nesterov,
                steps=recipe.muon_steps,
                scale=recipe.muon_scale,
                dtype=dtype,
                group=group,
                shard_group=shard_group,
            )
        self.both["adamw"] = torch.optim.AdamW(
            rest,
            recipe.adamw_lr,
            betas=(recipe.adamw_beta1, recipe.adamw_beta2),
            eps=recipe.adamw_eps,
            fused=True,
        )

    @property
    def parameters(self) -> list[Tensor]:
        return list(self.names.values())

    def set_rates(self, step: int) -> dict[str, float]:
        """The learning rates of a step (counted from 0), which are also returned."""
        recipe = self.recipe
        warmup, final = recipe.warmup_steps, recipe.final_lr
        factor = lr_factor(step, steps=recipe.steps, warmup=warmup, final=final)
        for optimizer in self.both.values():
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
        peaks = {"muon": recipe.muon_lr} if recipe.uses_muon else {"matrices": recipe.matrix_peak}
        peaks["adamw"] = recipe.adamw_lr
        return {name: peak * factor for name, peak in peaks.items()}

    def norm(self) -> Tensor:
        """The norm of the whole gradient."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if self.shard_group is None:
            return torch.nn.utils.get_total_norm(gradients)
        sharded = [local(each) for each in gradients if is_sharded(each)]
        square: Tensor = torch.nn.utils.get_total_norm(sharded) ** 2
        dist.all_reduce(square, group=self.shard_group)
        whole = torch.nn.utils.get_total_norm([g for g in gradients if not is_sharded(g)])
        return (square + whole**2).sqrt()

    def clip(self, norm: Tensor) -> None:
        """Scale the whole gradient, of that norm, down to the largest norm allowed."""
        if self.recipe.clip:
            gradients = [local(p.grad) for p in self.parameters if p.grad is not None]
            share = torch.clamp(self.recipe.clip / (norm + 1e-6), max=1.0)  # torch's own formula
            torch._foreach_mul_(gradients, share)

    def step(self) -> None:
        for optimizer in self.both.values():
            optimizer.step()

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def state_bytes(self) -> int:
        """What the state takes after a step: a moment of Muon's, two of AdamW's."""
        return sum(len(KEYS[label][-2:]) * p.nbytes for label, p in self._owners())

    def state_tensors(self) -> dict[str, Tensor]:
        """All state, as tensors by name: ``adamw/<parameter>/exp_avg`` and so on."""
        found = {}
        for label, optimizer in self.both.items():
            for name, parameter in self.names.items():
                for key, value in optimizer.state.get(parameter, {}).items():
                    found[f"{label}/{name}/{key}"] = value.detach()
        return found

    def local_rows(self, full: str, rows: int) -> tuple[int, int]:
        """Which of a state tensor's rows belong here."""
        _, name, key = full.split("/")
        whole = key == "step" or name not in self.names
        return (0, rows) if whole else local_rows(self.names[name])

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state_tensors` gave, from a model of the same parameters; of what is
        sharded, the rows that are here."""
        own: dict[Tensor, str] = {p: name for name, p in self.names.items()}
        known = {f"{label}/{own[p]}/{key}" for label, p in self._owners() for key in KEYS[label]}
        wrong = tensors.keys() ^ known if tensors else set()  # none before a step
        if wrong:
            raise ConfigError(
                f"the optimiser's state is not of this model: {min(wrong)!r} is in only one of them"
            )
        states: dict[str, dict[Tensor, dict[str, Any]]] = {"muon": {}, "adamw": {}}
        for full, tensor in tensors.items():
            label, name, key = full.split("/")
            parameter = self.names[name]
            value = tensor.to(parameter.device).clone()
            if is_sharded(parameter) and key != "step":
                value, rows = torch.zeros_like(parameter), value
                local(value).copy_(rows)
            states[label].setdefault(parameter, {})[key] = value
        for label, optimizer in self.both.items():
            optimizer.state.clear()
            optimizer.state.update(states[label])

    def _owners(self) -> Iterator[tuple[str, Tensor]]:
        """Each parameter, with the optimiser that has it."""
        for label, optimizer in self.both.items():
            for group in optimizer.param_groups:
                yield from ((label, p) for p in group["params"])


def lr_factor(step: int, *, steps: int, warmup: int, final: float) -> float:
    """Linear warmup, (step + 1) / warmup; then a cosine from 1 down to ``final`` at ``steps``.

    ``step`` counts from 0; the same factor serves both optimisers.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))
