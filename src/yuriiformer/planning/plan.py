"""What a run costs before it starts: parameters, work, memory, hours, traffic, disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.flops import ModelWork, Work, model_work, muon_work
from yuriiformer.costs.parameters import Parameters, count_parameters
from yuriiformer.data.order import BatchOrder
from yuriiformer.errors import ConfigError
from yuriiformer.model.config import ModelConfig
from yuriiformer.planning.devices import FIXED, SHARE, Device
from yuriiformer.planning.hours import Pace, baseline, beside_baseline, hours, validations
from yuriiformer.planning.measure import Timing
from yuriiformer.planning.memory import Estimate, StepMemory

MFU = 0.4  # of the peak rate: an assumption, what well-tuned training of this size reaches
TOKEN = 2  # bytes of a token on disk
SLACK = 2**20  # of a checkpoint, as it is reserved: headers and small files

Data = dict[str, Any]


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
        if self.gpus > sequences:
            raise ConfigError(
                f"{self.gpus} GPUs for {sequences} sequences per step: some would have none; "
                f"take --gpus {sequences} or fewer, or more --sequences"
            )
        if not 0 < self.mfu <= 1:
            raise ConfigError(f"mfu must be above 0 and at most 1, not {self.mfu:g}")


def make_plan(config: TrainConfig, where: Circumstances) -> Data:
    """Everything as plain data, in bytes, FLOPs and seconds."""
    where.check(config)
    try:
        return _plan(config, where)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise ConfigError("the model is too large to be counted: take smaller numbers") from None


def _plan(config: TrainConfig, where: Circumstances) -> Data:
    dtype = where.device.dtype(config.machine.precision)
    parameters = count_parameters(config.model, split_fused=config.recipe.split_fused)
    work = model_work(config.model, recompute=config.machine.recompute)
    estimate = Estimate(config, dtype, where.gpus)
    micro = min(config.machine.micro_batch, estimate.own)
    memory = estimate.at(micro)
    pace = Pace(config, work, parameters, where.device, dtype, where.gpus, micro)
    against = beside_baseline(pace)
    return {
        "rule": config.model.rule.name,
        "label": config.model.rule.label,
        "model": _sizes(config.model),
        "run": _run(config, where, dtype, micro),
        "device": _device(where.device),
        "parameters": _parameters(parameters, config.model),
        "flops": _flops(config, work, parameters),
        "memory": _memory(config, where, estimate, memory, micro),
        "time": hours(pace, where.mfu, where.timing, against),
        "against": against,
        "disk": _disk(memory, where.tokens and where.tokens[1]),
    }


def _sizes(model: ModelConfig) -> Data:
    names = ("n_layer", "n_head", "d_model", "context", "vocab_size", "oracles")
    return {name: getattr(model, name) for name in names}


def _run(config: TrainConfig, where: Circumstances, dtype: torch.dtype, micro: int) -> Data:
    tokens = config.recipe.sequences * config.model.context
    return {
        "steps": config.recipe.steps,
        "sequences": config.recipe.sequences,
        "tokens_a_step": tokens,
        "tokens": tokens * config.recipe.steps,
        "epochs": _epochs(config, where.tokens[0]) if where.tokens else None,
        "gpus": where.gpus,
        "micro_batch": micro,
        "precision": str(dtype).removeprefix("torch."),
        "recompute": config.machine.recompute,
    }


def _epochs(config: TrainConfig, tokens: int) -> float:
    """As the order of batches counts them: a partial block is not in one."""
    recipe = config.recipe
    order = BatchOrder(tokens, config.model.context, recipe.sequences, recipe.seed)
    return recipe.steps / order.steps_per_epoch


def _device(device: Device) -> Data:
    return {
        "name": device.name,
        "label": device.label,
        "memory": device.memory,
        "usable": device.usable,
        "reserve": {"share": SHARE, "fixed": FIXED},
        "bandwidth": device.bandwidth,
        "float32": device.float32,
        "bfloat16": device.bfloat16,
    }


def _parameters(found: Parameters, model: ModelConfig) -> Data:
    plain = count_parameters(baseline(model))
    names = ("token_table", "positions", "start_tables", "attention", "mlp", "norms",
             "coefficients", "frozen", "paper", "all")  # fmt: skip
    return {**{name: getattr(found, name) for name in names}, "extra": found.all - plain.all}


def _flops(config: TrainConfig, work: ModelWork, parameters: Parameters) -> Data:
    parts: dict[str, Work] = {
        "projections": work.projections,
        "scores": work.scores,
        "mlp": work.mlp,
        "output": work.output,
        "total": work.total,
    }
    return {
        **{name: {"forward": w.forward, "backward": w.backward} for name, w in parts.items()},
        "recomputed": work.recomputed,
        "elementwise": work.elementwise,
        "optimizer_a_step": muon_work(list(parameters.matrices), config.recipe.muon_steps)
        * config.recipe.uses_muon,
        "training": (work.total.both + work.recomputed) * _tokens(config),
        "validation": _validation(config, work),
    }


def _tokens(config: TrainConfig) -> int:
    return config.recipe.sequences * config.model.context * config.recipe.steps


def _validation(config: TrainConfig, work: ModelWork) -> float:
    return validations(config) * config.model.context * work.total.forward


def _memory(
    config: TrainConfig,
    where: Circumstances,
    estimate: Estimate,
    memory: StepMemory,
    micro: int,
) -> Data:
    room = where.device.usable
    most = estimate.largest(room)
    found = {
        "micro_batch": micro,
        "weights": memory.update.weights,
        "gradients": memory.update.gradients,
        "gradients_at_peak": memory.gradients,
        "optimizer": memory.update.optimizer,
        "kept": memory.passes.kept,
        "temporary": memory.temporary,
        "peak": memory.peak,
        "in_passes": memory.in_passes,
        "fits": memory.peak <= room,
        "largest_micro_batch": most,
        "largest_with_recompute": None,
    }
    if most < micro and not config.machine.recompute:
        again = replace(config, machine=replace(config.machine, recompute=True))
        found["largest_with_recompute"] = Estimate(again, estimate.dtype, where.gpus).largest(room)
    return found


def _disk(memory: StepMemory, tokens: int | None) -> Data:
    """Kept: two checkpoints to resume from, two models; while one is written, one more of each (as
    a run makes sure of before it starts)."""
    model = memory.update.weights + SLACK
    whole = model + memory.update.optimizer
    return {
        "checkpoint": whole,
        "model": model,
        "kept": 2 * whole + 2 * model,
        "needed": 3 * whole + 3 * model,
        "tokens": tokens,
        "data": None if tokens is None else TOKEN * tokens,
    }
