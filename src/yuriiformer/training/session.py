"""A run from its configuration: begun or resumed, put together, carried through."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from yuriiformer.config import Compile, TrainConfig
from yuriiformer.costs.run import RunCosts, run_costs
from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import Tokenizer
from yuriiformer.errors import ConfigError
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.device import compute_dtype, keep_freed_memory
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.takeover import check_fits
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.loading import LoadedModel
from yuriiformer.training.initial import (
    INIT,
    Initial,
    Jump,
    begin_from,
    check_vocabulary,
    fill_vocabulary,
    find_source,
    vocabulary_of,
)
from yuriiformer.training.journal import Journal, Listener, Say, open_journal, saturated
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes, find_processes, job, restarted
from yuriiformer.training.resume import ResumePoint, check_changed, open_run
from yuriiformer.training.saving import Saver, check_space
from yuriiformer.training.sharding import divide, make_model, undivided
from yuriiformer.training.state import State, restore, seed_generators
from yuriiformer.training.step import Batches
from yuriiformer.training.stop import Stopper
from yuriiformer.training.trainer import Ending, Trainer

# Compilation takes about half a minute on a CPU and gains some 5 %: it pays for runs of more than
# some ten minutes at 100 GFLOP/s.
WORTH_IT = 1e14

MakeListener = Callable[[TrainConfig, RunCosts, State], Listener]


@dataclass(frozen=True)
class ResolvedRun:
    """What a configuration comes to with its data, on this machine."""

    config: TrainConfig  # with the data's vocabulary
    store: TokenStore
    processes: Processes
    batches: Batches
    dtype: torch.dtype

    @cached_property
    def costs(self) -> RunCosts:
        return run_costs(self.config, len(self.store.train))

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Saved with the model, so that it can be used without the data."""
        try:
            return None if self.store.meta is None else self.store.tokenizer()
        except ModuleNotFoundError:  # the library of trained ones is not needed to train
            return None

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the data, and of the other texts that are evaluated."""
        texts = {name: each.identity for name, each in self.batches.texts.items()}
        return {**self.store.facts, **({"texts": texts} if texts else {})}

    @property
    def resolved(self) -> dict[str, Any]:
        """What is not in the configuration and may still change a number's last digits."""
        device, processes = self.processes.device, self.processes
        divided = {"parallel": f"fsdp {processes.copies} x {processes.shards}"}
        return {
            **(divided if processes.sharded else {}),
            "device": device.type,
            "dtype": str(self.dtype).removeprefix("torch."),
            "compiled": compiles(self.config.machine.compile, device, self.costs.flops),
            "threads": torch.get_num_threads(),
            "processes": self.processes.size,
        }


def resolve_run(
    config: TrainConfig, data: str | Path, like: ModelConfig | None = None
) -> ResolvedRun:
    """Open the data, find the processes and the device. Whatever cannot work is an error here.

    ``like`` is the model whose vocabulary the run keeps; if not given, it is the data's.
    """
    store = TokenStore.open(data)
    if like is None:
        config = fill_vocabulary(config, store)
    else:
        config = config.with_(vocab_size=like.vocab_size, valid_vocab=like.valid_vocab)
    processes = divide(config, find_processes(config.machine.device))
    batches = Batches(store, config, processes)
    dtype = compute_dtype(config.machine.precision, processes.device)
    return ResolvedRun(config, store, processes, batches, dtype)


def compiles(choice: Compile, device: torch.device, flops: float) -> bool:
    """Whether to compile; ``auto`` depends on the run's floating-point operations."""
    if choice == "off":
        return False
    if device.type != "cpu":
        return choice == "on" or device.type == "cuda"
    compiler = shutil.which("g++") or shutil.which("clang++")
    if choice == "on" and compiler is None:
        raise ConfigError("--compile on needs a C++ compiler (g++ or clang++) on the path")
    return choice == "on" or (compiler is not None and flops > WORTH_IT)


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    outcome: Ending
    state: State
    saturated: list[str]
    leads: bool  # whether this process is the one that speaks
    initial: Initial | None = None  # what came over from the model that the run began from


def train(
    config: TrainConfig,
    data: str | Path,
    out: str | Path,
    *,
    resume: bool = False,
    allow_changed: Sequence[str] = (),
    init_from: str | Path | LoadedModel | None = None,
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
        init_from: a model (see `open_model`) whose weights the run begins with, as far as names
            and shapes are the same; the result's ``initial`` tells which.
        listener: makes one more listener to the run's records (the leading process only).
        say: where remarks go (the leading process only).
    """
    check_changed(allow_changed)
    if config.output.wandb is not None and find_spec("wandb") is None:
        raise ConfigError("--wandb needs its package: pip install wandb")
    folder = RunFolder(out)
    resume = resume or (restarted() and folder.begun_by(job()))
    source = find_source(folder, init_from, resume=resume)
    here = resolve_run(config, data, vocabulary_of(folder, source, resume=resume))
    processes = here.processes
    speak = say if processes.leads else lambda text: None
    if (why := undivided(config, processes)) is not None:
        speak(f"note: {why}")
    if source is not None:
        check_vocabulary(here.store, source)
        check_fits(here.config.model, source.model.config)
    with Stopper(speak) as stopper, _settled(here), closing(folder):
        told: dict[str, Any] = {}
        if source is not None:
            named = {"path": source.asked, "model": source.about, "rule": source.rule.to_dict()}
            told = {INIT: named}
        opened = processes.led(lambda: _begin(here, folder, told, resume, allow_changed, speak))
        model = make_model(here.config, processes, here.dtype)
        initial = None if source is None else begin_from(here, folder, model, source, speak)
        trainer = _trainer(here, folder, model, opened or ResumePoint(), stopper, speak, listener)
        with closing(trainer.journal), closing(trainer.saver):
            if initial is not None:
                trainer.journal.told.append(Jump(initial.loss_before, speak))
                trainer.save(hard=True)  # from now on the run does not need the other model
            outcome = trainer.run()
        return Result(outcome, trainer.state, saturated(model), processes.leads, initial)


def _begin(
    here: ResolvedRun,
    folder: RunFolder,
    told: dict[str, Any],
    resume: bool,
    allow_changed: Sequence[str],
    say: Say,
) -> ResumePoint:
    """Take the folder; the checkpoint to resume from, if there is one. ``told`` are further entries
    for the ``config.json`` of a run that begins."""
    here.store.check_unchanged()
    folder.take(resume=resume, job=job())
    costs = here.costs
    check_space(folder.checkpoints, costs.weights + costs.optimizer, costs.weights)
    now = {
        "config": here.config.to_dict(),
        "data": {**here.facts, "folder": os.path.abspath(here.store.folder)},
        "resolved": here.resolved,
        "plan": asdict(costs),
        **told,
    }
    return open_run(folder, now, allow_changed, say)


def _trainer(
    here: ResolvedRun,
    folder: RunFolder,
    model: YuriiFormer,
    opened: ResumePoint,
    stopper: Stopper,
    say: Say,
    make_listener: MakeListener | None,
) -> Trainer:
    """At the beginning of the run, or where the leading process's checkpoint left it."""
    config, processes, resolved = here.config, here.processes, here.resolved
    groups = processes.copy_group, processes.shard_group
    optimizer = Optimizer(model, config.recipe, here.dtype, *groups)
    state = State()
    if processes.share(opened.checkpoint is not None):
        state = restore(opened.checkpoint, model, optimizer, processes, config.recipe.seed)
        say(f"resuming from step {state.step}")
    if resolved["compiled"]:
        model.compile_blocks()

    def journal() -> Journal:
        if opened.config is not None:
            folder.write_config(opened.config)
        extra = [] if make_listener is None else [make_listener(config, here.costs, state)]
        return open_journal(folder, config, state, say, extra)

    return Trainer(
        config,
        model,
        optimizer,
        here.batches,
        processes,
        here.dtype,
        folder,
        Saver(
            folder.checkpoints,
            model,
            optimizer,
            processes,
            {**config.to_dict(), **resolved},
            here.tokenizer,
            config.output.save_beside,
        ),
        stopper,
        processes.led(journal) or Journal(say),
        state,
    )


@contextmanager
def _settled(here: ResolvedRun) -> Iterator[None]:
    """Switches of torch for the run, put back after it; the generators at their start."""
    config, processes = here.config, here.processes
    precision = torch.get_float32_matmul_precision()
    fixed = torch.are_deterministic_algorithms_enabled()
    threads = torch.get_num_threads()
    if config.machine.threads is not None:
        torch.set_num_threads(config.machine.threads)
    if processes.device.type == "cpu":
        keep_freed_memory()
    if processes.device.type == "cuda":
        # What is left of float32 beside bfloat16 may be TF32; what was asked to be float32 is.
        low = here.dtype == torch.bfloat16
        torch.set_float32_matmul_precision("high" if low else "highest")
        if config.machine.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True, warn_only=True)
    seed_generators(config.recipe.seed, processes.rank)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.use_deterministic_algorithms(fixed)
        torch.set_num_threads(threads)
