"""A run from its configuration: begun or resumed, put together, carried through."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.costs.plan import Plan, make_plan
from yuriiformer.data.store import TokenStore
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.precision import compute_dtype
from yuriiformer.runs.checkpoint import Checkpoint
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import MetricsFile, cut_metrics
from yuriiformer.training import rng
from yuriiformer.training.batches import Batches
from yuriiformer.training.coefficients import saturated
from yuriiformer.training.compiling import compile_model, compiles
from yuriiformer.training.corpus import data_identity, fill_vocabulary
from yuriiformer.training.listeners import Listener, Say, check_listeners, listeners
from yuriiformer.training.loop import Loop, Outcome
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes, find_processes, job, restarted
from yuriiformer.training.resume import check_changed, open_run
from yuriiformer.training.state import Saver, State, check_space, restore
from yuriiformer.training.stop import Stopper

MakeListener = Callable[[TrainConfig, Plan, State], Listener]


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    outcome: Outcome
    state: State
    saturated: list[str]
    leads: bool  # whether this process is the one that speaks


def train(
    config: TrainConfig,
    data: str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    allow_changed: Sequence[str] = (),
    listener: MakeListener | None = None,
    say: Say = lambda text: None,
) -> Result:
    """Train, from the beginning or (``resume``) from the newest whole checkpoint in ``out``.

    Args:
        config: the vocabulary is taken from the data.
        data: a prepared corpus.
        out: the run's folder.
        resume: resume the run in ``out``; if there is none, begin it.
        allow_changed: fields that may differ from those the run was begun with.
        listener: makes one more listener to the run's records (the leading process only).
        say: where remarks go (the leading process only).
    """
    store = TokenStore.open(data)
    config = fill_vocabulary(config, store)
    folder = RunFolder(out)
    check_changed(allow_changed)
    check_listeners(config)
    resume = resume or (restarted() and folder.begun_by(job()))
    processes = find_processes(config.machine.device)
    speak = say if processes.leads else _quiet
    with Stopper(speak) as stopper, _settled(config, processes):
        batches = Batches(store, config, processes)
        dtype = compute_dtype(config.machine.precision, processes.device)
        plan = make_plan(config, store, processes.size, dtype)
        resolved = _resolve(config, processes, dtype, plan)
        loop = None

        def find() -> Checkpoint | None:
            folder.take(resume=resume, job=job())
            check_space(folder.checkpoints, plan.weights + plan.optimizer, plan.weights)
            identity = {**data_identity(store), "folder": os.path.abspath(data)}
            return open_run(folder, config, identity, resolved, asdict(plan), allow_changed, speak)

        try:
            checkpoint = processes.led(find)
            goes_on = processes.share(checkpoint is not None)
            loop = _build(config, batches, processes, dtype, folder, stopper, resolved, speak)
            if goes_on:
                loop.state = restore(
                    checkpoint, loop.model, loop.optimizer, processes, config.recipe.seed
                )
                speak(f"resuming from step {loop.state.step}")
            if resolved["compiled"]:
                compile_model(loop.model)
            processes.led(lambda: _open_metrics(loop, listener, plan))
            outcome = loop.run()
            return Result(outcome, loop.state, saturated(loop.model), processes.leads)
        finally:
            if loop is not None:
                loop.close()
            folder.release()


def _resolve(
    config: TrainConfig, processes: Processes, dtype: torch.dtype, plan: Plan
) -> dict[str, Any]:
    """What the configuration comes to on this machine."""
    return {
        "device": processes.device.type,
        "dtype": str(dtype).removeprefix("torch."),
        "compiled": compiles(config.machine.compile, processes.device, plan.flops),
        "threads": torch.get_num_threads(),
        "processes": processes.size,
    }


def _quiet(text: str) -> None:
    """What a process says that does not lead."""


@contextmanager
def _settled(config: TrainConfig, processes: Processes) -> Iterator[None]:
    """Switches of torch for the run, put back after it; the generators at their start."""
    precision = torch.get_float32_matmul_precision()
    fixed = torch.are_deterministic_algorithms_enabled()
    threads = torch.get_num_threads()
    if config.machine.threads is not None:
        torch.set_num_threads(config.machine.threads)
    if processes.device.type == "cuda":
        # What is left of float32 beside bfloat16 may be TF32; what was asked to be float32 is.
        low = compute_dtype(config.machine.precision, processes.device) == torch.bfloat16
        torch.set_float32_matmul_precision("high" if low else "highest")
        if config.machine.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True, warn_only=True)
    rng.seed_all(config.recipe.seed, processes.rank)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(fixed)
        torch.set_num_threads(threads)


def _build(
    config: TrainConfig,
    batches: Batches,
    processes: Processes,
    dtype: torch.dtype,
    folder: RunFolder,
    stopper: Stopper,
    resolved: dict[str, Any],
    say: Say,
) -> Loop:
    """A run at its beginning."""
    model = YuriiFormer(config.model, seed=config.recipe.seed).to(processes.device)
    model.recompute = config.machine.recompute
    if config.machine.stream_precision == "bfloat16":
        model.stream_dtype = torch.bfloat16
    optimizer = Optimizer(model, config.recipe, dtype, processes.group)
    saver = Saver(folder.checkpoints, model, optimizer, processes, {**config.to_dict(), **resolved})
    return Loop(config, model, optimizer, batches, processes, dtype, folder, saver, stopper, say)


def _open_metrics(loop: Loop, make: MakeListener | None, plan: Plan) -> None:
    """Records from where the run stands; those of steps that will be done again are dropped."""
    state = loop.state
    listener = None if make is None else make(loop.config, plan, state)
    begun = state.step > 0 or state.pending is not None
    # The record of a step whose validation was cut short has not been written.
    cut_metrics(loop.folder.metrics_file, state.step - (state.pending is not None) if begun else -1)
    loop.metrics = MetricsFile(loop.folder.metrics_file)
    found = listeners(loop.folder, loop.config, state.step, loop.say)
    loop.listeners = [*found, listener] if listener is not None else found


def dry_run(config: TrainConfig, data: str | Path) -> tuple[TrainConfig, Plan, dict[str, Any]]:
    """The configuration with its vocabulary, the plan, and what ``auto`` comes to here."""
    store = TokenStore.open(data)
    config = fill_vocabulary(config, store)
    processes = find_processes(config.machine.device)
    Batches(store, config, processes)
    dtype = compute_dtype(config.machine.precision, processes.device)
    plan = make_plan(config, store, processes.size, dtype)
    return config, plan, _resolve(config, processes, dtype, plan)
