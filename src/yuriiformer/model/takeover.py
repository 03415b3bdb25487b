"""Weights of one model taken over by another, by name and shape: what came, what is new, what was
left behind.

Two things are not plain copying. A table of positions of another length gives the rows that both
have. And if the new rule contains the old one (see `methods.containing`), its coefficients start
there: the new model then computes what the old one did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from yuriiformer.errors import ConfigError
from yuriiformer.methods.coefficients import Coefficient
from yuriiformer.methods.containing import coefficients_of_equality
from yuriiformer.methods.rule import Rule
from yuriiformer.model.block import STORE, Block
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.shards import local, local_rows

POSITIONS = ".positions.weight"


@dataclass(frozen=True)
class TakenOver:
    """Names of tensors. ``partly`` tells how many rows came over, ``coefficients`` where the
    rule's coefficients were put so that it does what the old rule did."""

    taken: list[str] = field(default_factory=list)
    partly: dict[str, int] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    coefficients: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """In words."""
        came = len(self.taken) + len(self.partly)
        lines = [f"{came} tensors came over, {len(self.new)} are new, {len(self.left)} were left"]
        lines += [f"  {rows} rows of {name} came over" for name, rows in self.partly.items()]
        for what, names in (("new", self.new), ("left", self.left)):
            if names:
                lines.append(f"  {what}: {', '.join(_grouped(names))}")
        return lines + [f"  {remark}" for remark in self.remarks]


def _grouped(names: Iterable[str]) -> list[str]:
    """Tensors that every layer has, once."""
    return list(dict.fromkeys(re.sub(r"^blocks\.\d+\.", "blocks.*.", name) for name in names))


@torch.no_grad()
def take_over(model: YuriiFormer, source: YuriiFormer) -> TakenOver:
    """Copy what fits from the source into the model; the rest stays as it was drawn."""
    check_fits(model.config, source.config)
    ours, theirs = model.state_dict(), source.state_dict()
    kept = _other_coefficients(model.config.rule, source.config.rule)
    found = TakenOver()
    for name, tensor in ours.items():
        old = theirs.get(name)
        if old is None or name.rpartition(".raw_")[2] in kept:
            found.new.append(name)
        elif old.shape == tensor.shape:
            _copy_rows(old, tensor)
            found.taken.append(name)
        elif name.endswith(POSITIONS):
            _copy_rows(old, tensor)
            found.partly[name] = min(len(old), len(tensor))
        else:
            found.new.append(name)
    came = {*found.taken, *found.partly}
    found.left.extend(name for name in theirs if name not in came)
    _remark_sizes(model.config, source.config, found.remarks)
    _start_at_equality(model, source.config.rule, found)
    return found


def _copy_rows(old: Tensor, tensor: Tensor) -> None:
    """The rows that both have, as far as they belong to this process."""
    start, end = local_rows(tensor)
    end = min(end, len(old))
    if start < end:
        local(tensor)[: end - start].copy_(old[start:end])


def check_fits(config: ModelConfig, old: ModelConfig) -> None:
    """Nothing of a model fits one of another width or vocabulary."""
    for name in ("d_model", "vocab_size"):
        wanted, has = getattr(config, name), getattr(old, name)
        if wanted != has:
            raise ConfigError(
                f"{name}={wanted:,}, but the model to begin from has {has:,}: give it the same"
            )


def _remark_sizes(config: ModelConfig, old: ModelConfig, remarks: list[str]) -> None:
    if config.n_layer > old.n_layer:
        remarks.append(f"the model had {old.n_layer} layers: those after them are untrained")
    if config.n_head != old.n_head:
        remarks.append(f"{old.n_head} heads are now {config.n_head}: the loss will jump")
    if config.context > old.context:
        remarks.append(
            f"the context grows from {old.context}, with which the loss before is measured, to "
            f"{config.context}: later positions are untrained"
        )


def _other_coefficients(rule: Rule, old: Rule) -> set[str]:
    """Coefficients whose stored number means another value than in the old rule."""

    def kind(each: Coefficient) -> tuple[object, ...]:
        return each.range, each.shape, each.learned

    both = rule.coefficients.keys() & old.coefficients.keys()
    return {
        name
        for name in both
        if not rule.coefficients[name].learned
        or kind(rule.coefficients[name]) != kind(old.coefficients[name])
    }


def _start_at_equality(model: YuriiFormer, old: Rule, found: TakenOver) -> None:
    """Put the coefficients where the rule is the old one, if it is somewhere."""
    rule = model.config.rule
    if rule.equations == old.equations and rule.streams == old.streams:
        return
    if old.coefficients:  # trained by now: where they ended is no place of the new rule's
        found.remarks.append(f"{old.name} has coefficients of its own: the loss may jump")
        return
    values = coefficients_of_equality(rule, old)
    if values is None:
        found.remarks.append(f"{rule.name} does not contain {old.name}: the loss will jump")
        return
    ends = [f"{name} = {value:g}" for name, value in values.items() if _at_end(rule, name, value)]
    if ends:
        found.remarks.append(
            f"{rule.name} contains {old.name} only at {', '.join(ends)}, an end of the range that "
            "learning cannot reach: the loss will jump"
        )
        return
    for block in model.blocks:
        assert isinstance(block, Block)
        for name, value in values.items():
            spec = rule.coefficients[name]
            if spec.learned:
                raw = block.get_parameter(f"coefficients.raw_{name}")
                raw.fill_(STORE[spec.range](value))
    found.coefficients.update(values)
    words = ", ".join(f"{name} = {value:g}" for name, value in values.items())
    found.remarks.append(f"{rule.name} is {old.name} at {words}: it starts there")


def _at_end(rule: Rule, name: str, value: float) -> bool:
    spec = rule.coefficients[name]
    ends = {"unit": (0.0, 1.0), "positive": (0.0,), "real": ()}[spec.range]
    return spec.learned and value in ends
