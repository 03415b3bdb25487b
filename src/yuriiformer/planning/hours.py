"""How long a run takes, and what a rule costs beside gradient descent.

A device is assumed to reach one share of its peak rate, the same for every rule. The work includes
what is recomputed and Muon's products. The bytes that a rule moves beyond gradient descent are
given separately, at the device's bandwidth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.flops import ModelWork, model_work, muon_work
from yuriiformer.costs.run import Parameters
from yuriiformer.costs.traffic import traffic
from yuriiformer.methods.catalog import BASELINE
from yuriiformer.model.config import ModelConfig
from yuriiformer.planning.devices import Device, Timing
from yuriiformer.training.estimate import muon_sent


@dataclass(frozen=True)
class Pace:
    """A run on ``gpus`` devices. The process with the largest share of the sequences is slowest."""

    config: TrainConfig
    work: ModelWork
    parameters: Parameters
    device: Device
    dtype: torch.dtype
    gpus: int
    micro_batch: int
    shards: int  # GPUs that hold one copy of the model between them

    @property
    def own(self) -> int:
        """Sequences per step of the process that has most."""
        return -(-self.config.recipe.sequences // self.gpus)

    @property
    def muon_flops(self) -> float:
        """Muon's products in one step."""
        recipe = self.config.recipe
        return muon_work(list(self.parameters.matrices), recipe.muon_steps) * recipe.uses_muon

    @property
    def computed(self) -> float:
        """FLOPs of such a process in the whole run."""
        steps, work = self.config.recipe.steps, self.work
        tokens = self.own * self.config.model.context * steps
        return (work.total.both + work.recomputed) * tokens + self.muon_flops * steps / self.gpus

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
        a_step = timing.passes * self.own / self.micro_batch + timing.update
        forward = self.work.total.forward / (self.work.total.both + self.work.recomputed)
        validate = timing.passes * forward * self.validated / self.micro_batch
        return self.config.recipe.steps * a_step, validate


def validations(config: TrainConfig) -> int:
    """Sequences of all validations of a run: before the first step, on the way, at the end."""
    every, steps = config.validation.eval_every, config.recipe.steps
    times = steps // every + 1 + (steps % every > 0) if every else 0
    return times * config.validation.eval_sequences


@dataclass(frozen=True)
class MoreSeconds:
    """Seconds that the bytes which a rule moves beyond gradient descent add to a run."""

    as_it_is: float
    fused: float


@dataclass(frozen=True)
class Hours:
    """A run's seconds; what a device sends to others in bytes."""

    mfu: float
    measured: bool
    training_seconds: float
    validation_seconds: float
    more_seconds: MoreSeconds | None  # None where it is in what was measured
    tokens_a_second: float
    uneven: bool
    reduced_a_step: float  # gradients
    gathered_a_step: float  # by Muon
    weights_a_step: float = 0.0  # of a sharded model

    @property
    def seconds(self) -> float:
        return self.training_seconds + self.validation_seconds


@dataclass(frozen=True)
class BlockCosts:
    """All blocks, one micro-batch, forward and backward. What recomputing adds is left out."""

    flops: float
    products_bytes: float
    other_bytes: float
    fused_bytes: float
    eager_seconds: float
    fused_seconds: float


@dataclass(frozen=True)
class Against:
    """A rule's blocks beside gradient descent's."""

    name: str
    rule: BlockCosts
    baseline: BlockCosts
    extra_flops: float  # shares that the rule has more of
    extra_bytes_eager: float
    extra_bytes_fused: float
    extra_seconds_eager: float
    extra_seconds_fused: float


def hours(pace: Pace, mfu: float, timing: Timing | None, against: Against) -> Hours:
    """How long the run takes, at a share of the peak rate or by a step that was timed."""
    train, validate = pace.assumed(mfu) if timing is None else pace.measured(timing)
    reached = mfu if timing is None else pace.computed / (train * pace.device.rate(pace.dtype))
    config, recipe = pace.config, pace.config.recipe
    times = recipe.steps * pace.own / pace.micro_batch
    rule, base, bandwidth = against.rule, against.baseline, pace.device.bandwidth
    more = MoreSeconds(
        as_it_is=times * (rule.other_bytes - base.other_bytes) / bandwidth,
        fused=times * (rule.fused_bytes - base.fused_bytes) / bandwidth,
    )
    return Hours(
        mfu=reached,
        measured=timing is not None,
        training_seconds=train,
        validation_seconds=validate,
        more_seconds=None if timing is not None else more,
        tokens_a_second=config.tokens_per_step * recipe.steps / train,
        uneven=recipe.sequences % pace.gpus > 0,
        **_sent(pace),
    )


def _sent(pace: Pace) -> dict[str, float]:
    """Bytes that a device sends in a step, by what they are.

    Gathering and scattering among n devices sends (n - 1)/n of the whole, summing twice as much. A
    sharded model gathers its blocks twice per micro-batch and its tables once, and scatters its
    gradients."""
    parts, shards = pace.parameters, pace.shards
    copies, times = pace.gpus // shards, math.ceil(pace.own / pace.micro_batch)
    trained = FLOAT * (parts.all - parts.frozen)
    muon = muon_sent(pace.config, pace.dtype, pace.gpus, shards)
    if shards == 1:
        return {
            "reduced_a_step": 2 * _others(copies) * trained,
            "gathered_a_step": muon,
            "weights_a_step": 0.0,
        }
    vectors = FLOAT * (parts.norms + parts.coefficients)
    blocks = pace.dtype.itemsize * (parts.attention + parts.mlp)
    tables = FLOAT * (parts.token_table + parts.positions + parts.start_tables)
    divided = trained - vectors
    scattered = _others(shards) * divided + 2 * _others(copies) * divided / shards
    return {
        "reduced_a_step": times * scattered + 2 * _others(pace.gpus) * vectors,
        "gathered_a_step": muon,
        "weights_a_step": times * _others(shards) * (2 * blocks + tables),
    }


FLOAT = 4  # bytes


def _others(count: int) -> float:
    return (count - 1) / count


def against_baseline(pace: Pace) -> Against:
    """Work and traffic of both, and the time that they come to."""
    plain = baseline(pace.config.model)
    rule = _blocks(pace, pace.config.model, pace.work)
    base = _blocks(pace, plain, model_work(plain))

    def extra(*names: str) -> float:
        both = [sum(getattr(each, name) for name in names) for each in (rule, base)]
        return float(both[0] / both[1] - 1)

    return Against(
        BASELINE,
        rule,
        base,
        extra_flops=extra("flops"),
        extra_bytes_eager=extra("products_bytes", "other_bytes"),
        extra_bytes_fused=extra("products_bytes", "fused_bytes"),
        extra_seconds_eager=extra("eager_seconds"),
        extra_seconds_fused=extra("fused_seconds"),
    )


def _blocks(pace: Pace, model: ModelConfig, work: ModelWork) -> BlockCosts:
    low = pace.config.machine.stream_precision == "bfloat16"
    stream = torch.bfloat16 if low else torch.float32
    moved = traffic(model, pace.micro_batch, pace.dtype, stream)
    flops = (work.total.both - work.output.both) * pace.micro_batch * model.context
    bandwidth = pace.device.bandwidth
    # Products at the peak rate or at the bandwidth, whichever takes longer; the rest at the
    # bandwidth.
    products = max(flops / pace.device.rate(pace.dtype), moved.products / bandwidth)
    return BlockCosts(
        flops=flops,
        products_bytes=moved.products,
        other_bytes=moved.other,
        fused_bytes=moved.fused,
        eager_seconds=products + moved.other / bandwidth,
        fused_seconds=products + moved.fused / bandwidth,
    )


def baseline(model: ModelConfig) -> ModelConfig:
    """The same model of gradient descent."""
    return replace(model, rule=BASELINE)
