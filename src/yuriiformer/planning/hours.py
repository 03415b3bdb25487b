"""How long a run takes, and what a rule costs beside gradient descent.

One share of the peak rate stands for everything that keeps a device from it. It is of all that is
computed, what is recomputed and Muon's products included, and the same for every rule; what a rule
moves beyond gradient descent is given apart, at the device's bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.flops import ModelWork, model_work, muon_work
from yuriiformer.costs.parameters import Parameters
from yuriiformer.costs.traffic import Traffic, traffic
from yuriiformer.methods.catalog import BASELINE
from yuriiformer.model.config import ModelConfig
from yuriiformer.planning.devices import Device
from yuriiformer.planning.measure import Timing

Data = dict[str, Any]


@dataclass(frozen=True)
class Pace:
    """A run on so many devices: who has the largest share of the sequences sets the pace."""

    config: TrainConfig
    work: ModelWork
    parameters: Parameters
    device: Device
    dtype: torch.dtype
    gpus: int
    micro: int

    @property
    def own(self) -> int:
        """Sequences per step of the process that has most."""
        return -(-self.config.recipe.sequences // self.gpus)

    @property
    def computed(self) -> float:
        """FLOPs of such a process in the whole run."""
        recipe, work = self.config.recipe, self.work
        tokens = self.own * self.config.model.context * recipe.steps
        muon = muon_work(list(self.parameters.matrices), recipe.muon_steps) * recipe.uses_muon
        return (work.total.both + work.recomputed) * tokens + muon * recipe.steps / self.gpus

    @property
    def validated(self) -> int:
        """Sequences that such a process validates in the whole run."""
        return -(-validations(self.config) // self.gpus)

    def assumed(self, mfu: float) -> tuple[float, float]:
        """Seconds to train and to validate at a share of the peak rate."""
        speed = self.device.rate(self.dtype) * mfu
        forward = self.work.total.forward * self.config.model.context
        return self.computed / speed, self.validated * forward / speed

    def measured(self, timing: Timing) -> tuple[float, float]:
        """The same from a step that was really taken."""
        a_step = timing.passes * self.own / self.micro + timing.update
        forward = self.work.total.forward / (self.work.total.both + self.work.recomputed)
        validate = timing.passes * forward * self.validated / self.micro
        return self.config.recipe.steps * a_step, validate


def validations(config: TrainConfig) -> int:
    """Sequences of all validations of a run: before the first step, on the way, at the end."""
    every, steps = config.validation.eval_every, config.recipe.steps
    times = steps // every + 1 + (steps % every > 0) if every else 0
    return times * config.validation.eval_sequences


def hours(pace: Pace, mfu: float, timing: Timing | None, against: Data) -> Data:
    """In seconds; the exchange between devices in bytes."""
    train, validate = pace.assumed(mfu) if timing is None else pace.measured(timing)
    reached = mfu if timing is None else pace.computed / (train * pace.device.rate(pace.dtype))
    recipe, parameters = pace.config.recipe, pace.parameters
    others = (pace.gpus - 1) / pace.gpus
    matrices = sum(rows * columns for rows, columns in parameters.matrices)
    times = recipe.steps * pace.own / pace.micro
    more = {}
    for name, key in (("as_it_is", "other_bytes"), ("fused", "fused_bytes")):
        extra = against["rule"][key] - against["baseline"][key]
        more[name] = times * extra / pace.device.bandwidth
    return {
        "mfu": reached,
        "measured": timing is not None,
        "training_seconds": train,
        "validation_seconds": validate,
        "seconds": train + validate,
        "more_seconds": None if timing is not None else more,
        "tokens_a_second": recipe.sequences * pace.config.model.context * recipe.steps / train,
        "uneven": recipe.sequences % pace.gpus > 0,
        "reduced_a_step": 2 * others * 4 * (parameters.all - parameters.frozen),
        "gathered_a_step": others * 4 * matrices * recipe.uses_muon,
    }


def beside_baseline(pace: Pace) -> Data:
    """The rule's blocks beside gradient descent's, a micro-batch forward and backward: work,
    traffic, and what both come to. What recomputing adds to both is left out."""
    config = pace.config
    stream = torch.bfloat16 if config.machine.stream_precision == "bfloat16" else torch.float32
    plain = baseline(config.model)
    tokens = pace.micro * config.model.context
    found: dict[str, Data] = {}
    for name, model in (("rule", config.model), ("baseline", plain)):
        work = pace.work if name == "rule" else model_work(plain)
        moved = traffic(model, pace.micro, pace.dtype, stream)
        flops = (work.total.both - work.output.both) * tokens
        found[name] = {
            "flops": flops,
            "products_bytes": moved.products,
            "other_bytes": moved.other,
            "fused_bytes": moved.fused,
            "eager_seconds": _roofline(moved, moved.other, flops, pace),
            "fused_seconds": _roofline(moved, moved.fused, flops, pace),
        }
    rule, base = found["rule"], found["baseline"]

    def extra(*names: str) -> float:
        return float(sum(rule[n] for n in names) / sum(base[n] for n in names) - 1)

    return {
        "name": BASELINE,
        **found,
        "extra_flops": extra("flops"),
        "extra_bytes_eager": extra("products_bytes", "other_bytes"),
        "extra_bytes_fused": extra("products_bytes", "fused_bytes"),
        "extra_seconds_eager": extra("eager_seconds"),
        "extra_seconds_fused": extra("fused_seconds"),
    }


def baseline(model: ModelConfig) -> ModelConfig:
    """The same model of gradient descent."""
    return replace(model, rule=BASELINE)


def _roofline(moved: Traffic, other: float, flops: float, pace: Pace) -> float:
    """Products at the peak rate or at the bandwidth, whichever takes longer; the rest at the
    bandwidth."""
    bandwidth = pace.device.bandwidth
    return max(flops / pace.device.rate(pace.dtype), moved.products / bandwidth) + other / bandwidth
