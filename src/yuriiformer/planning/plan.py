"""What a run costs before it starts: parameters, work, memory, hours, traffic, disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.flops import model_work
from yuriiformer.costs.run import count_parameters, stored_bytes
from yuriiformer.data.order import BatchOrder
from yuriiformer.errors import ConfigError
from yuriiformer.planning.devices import Device, Timing
from yuriiformer.planning.hours import (
    Against,
    Hours,
    Pace,
    against_baseline,
    baseline,
    hours,
    validations,
)
from yuriiformer.training.estimate import MemoryEstimate, fits_whole, smallest
from yuriiformer.training.memory import StepMemory

MFU = 0.4  # of the peak rate: an assumption, what well-tuned training of this size reaches
TOKEN = 2  # bytes of a token on disk
SLACK = 2**20  # of a checkpoint, as it is reserved: headers and small files


@dataclass(frozen=True)
class Circumstances:
    """What a run is planned for. ``tokens`` of the data, those to train on and all, where they are
    known; ``timing`` is of a real step of this model on the device, where one was taken."""

    device: Device
    gpus: int = 1
    mfu: float = MFU
    tokens: tuple[int, int] | None = None
    timing: Timing | None = None

    def check(self, config: TrainConfig) -> None:
        sequences = config.recipe.sequences
        if self.gpus < 1:
            raise ConfigError(f"gpus must be at least 1, not {self.gpus}")
        group = config.machine.shard_group
        if group is not None and self.gpus > 1 and self.gpus % group:
            raise ConfigError(f"--shard-group {group} does not divide {self.gpus} GPUs")
        if self.gpus > sequences:
            raise ConfigError(
                f"{self.gpus} GPUs for {sequences} sequences per step: some would have none; "
                f"take --gpus {sequences} or fewer, or more --sequences"
            )
        if not 0 < self.mfu <= 1:
            raise ConfigError(f"mfu must be above 0 and at most 1, not {self.mfu:g}")


@dataclass(frozen=True)
class DeviceFit:
    """Whether a step's memory fits on the device, and which micro-batches would."""

    fits: bool
    largest_micro_batch: int
    largest_with_recompute: int | None  # where it does not fit and nothing is recomputed yet
    fewest: int | None = None  # devices that have room for the step if they share the model


@dataclass(frozen=True)
class Disk:
    """Bytes. Kept: two checkpoints to resume from, two models; while one is written, one more of
    each (as a run makes sure of before it starts)."""

    checkpoint: float
    model: float
    tokens: int | None

    @property
    def kept(self) -> float:
        return 2 * self.checkpoint + 2 * self.model

    @property
    def needed(self) -> float:
        return 3 * self.checkpoint + 3 * self.model

    @property
    def data(self) -> int | None:
        return None if self.tokens is None else TOKEN * self.tokens


@dataclass(frozen=True)
class Plan(Pace):
    """A run on its devices, and what that comes to in bytes, FLOPs and seconds."""

    epochs: float | None
    extra_parameters: int  # parameters beyond gradient descent
    memory: StepMemory
    fit: DeviceFit
    time: Hours
    against: Against
    disk: Disk

    @property
    def precision(self) -> str:
        return str(self.dtype).removeprefix("torch.")

    @property
    def tokens(self) -> int:
        return self.config.tokens_per_step * self.config.recipe.steps

    @property
    def training_flops(self) -> float:
        return (self.work.total.both + self.work.recomputed) * self.tokens

    @property
    def validation_flops(self) -> float:
        context = self.config.model.context
        return validations(self.config) * context * self.work.total.forward

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "rule": self.config.model.rule.name,
            "label": self.config.model.rule.label,
            "model": _fields(
                self.config.model, "n_layer n_head d_model context vocab_size oracles"
            ),
            "run": {
                **_fields(self.config.recipe, "steps sequences"),
                "tokens_a_step": self.config.tokens_per_step,
                "recompute": self.config.machine.recompute,
                **_fields(self, "tokens epochs gpus shards micro_batch precision"),
            },
            "device": {
                **_fields(self.device, "name label memory usable bandwidth float32 bfloat16"),
                "reserve": {"share": Device.SHARE, "fixed": Device.FIXED},
            },
            "parameters": {
                **_fields(self.parameters, "token_table positions start_tables attention mlp"),
                **_fields(self.parameters, "norms coefficients frozen paper all"),
                "extra": self.extra_parameters,
            },
            "flops": {
                **{
                    part: asdict(getattr(self.work, part))
                    for part in ("projections", "scores", "mlp", "output", "total")
                },
                **_fields(self.work, "recomputed elementwise"),
                "optimizer_a_step": self.muon_flops,
                "training": self.training_flops,
                "validation": self.validation_flops,
            },
            "memory": {
                "micro_batch": self.micro_batch,
                **_fields(self.memory.update, "weights gradients optimizer"),
                "gradients_at_peak": self.memory.gradients,
                "kept": self.memory.passes.kept,
                **_fields(self.memory, "temporary peak in_passes"),
                **asdict(self.fit),
            },
            "time": {**asdict(self.time), "seconds": self.time.seconds},
            "against": asdict(self.against),
            "disk": _fields(self.disk, "checkpoint model kept needed tokens data"),
        }


def _fields(source: object, names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names.split()}


def make_plan(config: TrainConfig, where: Circumstances) -> Plan:
    """The plan of a run under these circumstances."""
    where.check(config)
    try:
        return _plan(config, where)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise ConfigError("the model is too large to be counted: take smaller numbers") from None


def _plan(config: TrainConfig, where: Circumstances) -> Plan:
    dtype = where.device.dtype(config.machine.precision)
    parameters = count_parameters(config.model, split_fused=config.recipe.split_fused)
    work = model_work(config.model, recompute=config.machine.recompute)
    shards = _shards(config, where, dtype)
    estimate = MemoryEstimate(config, dtype, where.gpus, shards)
    micro = min(config.machine.micro_batch, estimate.own)
    memory = estimate.at(micro)
    pace = Pace(config, work, parameters, where.device, dtype, where.gpus, micro, shards)
    against = against_baseline(pace)
    stored = stored_bytes(config)
    model = stored.weights + SLACK
    return Plan(
        **vars(pace),
        epochs=_epochs(config, where.tokens[0]) if where.tokens else None,
        extra_parameters=parameters.beyond(count_parameters(baseline(config.model))),
        memory=memory,
        fit=_fit(estimate, memory, micro, where.device.usable),
        time=hours(pace, where.mfu, where.timing, against),
        against=against,
        disk=Disk(model + stored.optimizer, model, where.tokens and where.tokens[1]),
    )


def _shards(config: TrainConfig, where: Circumstances, dtype: torch.dtype) -> int:
    """How many devices share a copy of the model; where the choice is left to us, 1 if that fits,
    as a run would choose."""
    machine, room = config.machine, where.device.usable
    whole = machine.parallel == "auto" and fits_whole(config, dtype, where.gpus, room)
    if where.gpus == 1 or machine.parallel == "ddp" or whole:
        return 1
    return machine.shard_group or where.gpus


def _epochs(config: TrainConfig, tokens: int) -> float:
    """As the order of batches counts them: a partial block is not in one."""
    recipe = config.recipe
    order = BatchOrder(tokens, config.model.context, recipe.sequences, recipe.seed)
    return recipe.steps / order.steps_per_epoch


def _fit(estimate: MemoryEstimate, memory: StepMemory, micro: int, room: float) -> DeviceFit:
    config, most, again = estimate.config, estimate.largest(room), None
    if most < micro and not config.machine.recompute:
        other = replace(config, machine=replace(config.machine, recompute=True))
        again = MemoryEstimate(other, estimate.dtype, estimate.processes, estimate.shards).largest(
            room
        )
    return DeviceFit(
        memory.peak <= room, most, again, smallest(config, estimate.dtype, micro, room)
    )
