"""``yurii train``: train a model, from a preset, with every field to be set by a flag."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from yuriiformer.cli.parsing import (
    RULE,
    First,
    Model,
    base_config,
    default_flags,
    model_config,
    parse_flags,
    parse_known,
    print_remarks,
)
from yuriiformer.config import Machine, Output, Recipe, TrainConfig, Validation
from yuriiformer.errors import ConfigError
from yuriiformer.model.config import ModelConfig
from yuriiformer.runs.folder import RunFolder
from yuriiformer.training.stop import EXIT_CODE, stop_with_parent

if TYPE_CHECKING:
    from yuriiformer.costs.run import RunCosts
    from yuriiformer.runs.loading import LoadedModel
    from yuriiformer.training.journal import Display
    from yuriiformer.training.session import ResolvedRun, Result
    from yuriiformer.training.state import State

PRESET = "tales-tiny"
QUICK = 5.0  # seconds that a dry run may take to time a step


@dataclass(frozen=True)
class Flags:
    """Flags of ``yurii train``."""

    data: Path | None = None
    """Folder of prepared data (see 'yurii prepare')."""
    out: Path | None = None
    """Folder of the run."""
    preset: str = PRESET
    """A complete configuration to start from: tinystories-small, openwebtext-small,
    openwebtext-medium (the paper's), cpu-tinystories, tales-tiny, 1b, 7b."""
    config: Path | None = None
    """A configuration file: another run's config.json, or some fields (TOML, YAML, JSON) that are
    changed in the preset."""
    rule: str = RULE
    """The update rule: a name, a TOML file, or either with variations."""
    init_from: str | None = None
    """Begin with the weights of this model: a run, a checkpoint, a model folder, an export, a
    folder of Hugging Face's GPT-2 or its name on the hub. Sizes and rule are the model's, unless
    flags say otherwise; the data must be in its tokens."""
    resume: bool = False
    """Resume the run in --out (begin it, if there is none); other flags need not be given again."""
    allow_changed: tuple[str, ...] = ()
    """With --resume: fields that may differ from those the run was begun with."""
    dry_run: bool = False
    """Print the plan, and train nothing."""
    recipe: tyro.conf.OmitArgPrefixes[Recipe] = field(default_factory=Recipe)
    validation: tyro.conf.OmitArgPrefixes[Validation] = field(default_factory=Validation)
    machine: tyro.conf.OmitArgPrefixes[Machine] = field(default_factory=Machine)
    output: tyro.conf.OmitArgPrefixes[Output] = field(default_factory=Output)
    model: tyro.conf.OmitArgPrefixes[Model] = field(default_factory=Model)


DESCRIPTION = (
    "Train a model. A preset gives the whole configuration, a flag sets any field of it. "
    "Defaults below are those of the preset that is named. Ctrl-C, SIGTERM, SIGUSR1 and SIGUSR2 "
    f"finish the step, save, and exit with code {EXIT_CODE}; --resume then continues to the same "
    "bits. With "
    "several processes: torchrun --nproc-per-node N -m yuriiformer train ..."
)


def run(arguments: list[str]) -> int:
    """``yurii train ...``: 0 when finished, 75 when stopped by a signal."""
    first = parse_known("yurii train", First(), arguments)
    resumes = first.resume and first.out is not None and RunFolder(first.out).exists
    # A run that is resumed has its own weights: the model that it began from may be gone.
    source = None if first.init_from is None or resumes else _open(first.init_from)
    base = _base(first, None if source is None else source.model.config)
    empty = Flags(**default_flags(base, first, PRESET), machine=base.machine, output=base.output)
    flags = parse_flags("yurii train", empty, arguments, DESCRIPTION)
    model = model_config(flags.model, base.model, first.rule)
    config = TrainConfig(model, flags.recipe, flags.validation, flags.machine, flags.output)
    data = flags.data or _data_of(flags.out, resume=flags.resume)
    if flags.dry_run:
        from yuriiformer.training.session import resolve_run

        _print_plan(resolve_run(config, data, None if source is None else source.model.config))
        return 0
    stop_with_parent()
    if flags.out is None:
        raise ConfigError("--out is needed: the folder of the run")
    if source is not None:
        print_remarks(source.remarks)
    return _train(flags, config, data, flags.out, source or flags.init_from)


def _open(model: str) -> LoadedModel:
    from yuriiformer.runs.loading import open_model

    return open_model(model)


def _print_plan(here: ResolvedRun) -> None:
    """What ``yurii plan`` would say of this run with its data, on this machine."""
    from yuriiformer.planning.devices import this_machine, time_steps
    from yuriiformer.planning.plan import Circumstances, make_plan
    from yuriiformer.planning.text import plan_page

    size, place = here.processes.size, here.processes.device
    if not here.processes.leads:
        return
    device = this_machine(here.config.machine.threads, place)
    if place.type == "cpu":  # all processes are on it
        device = replace(device, memory=device.memory / size)
    [timing] = time_steps([here.config], device, place, patience=QUICK)
    train, val = len(here.store.train), len(here.store.val)
    where = Circumstances(device, gpus=size, tokens=(train, train + val), timing=timing)
    print(plan_page(make_plan(here.config, where)))
    compiled = "compiled" if here.resolved["compiled"] else "not compiled"
    processes = "1 process" if size == 1 else f"{size} processes"
    print(f"\nHere: {place.type}, {here.resolved['dtype']}, {compiled}, {processes}")


def _base(first: First, like: ModelConfig | None) -> TrainConfig:
    """The run's own configuration when it is resumed, else the preset's, with the model that the
    run begins from."""
    whole = first.preset is not None or first.config is not None
    if first.resume and first.out is not None and not whole and RunFolder(first.out).exists:
        from yuriiformer.training.resume import stored_config

        return stored_config(first.out)
    return base_config(first, PRESET, like)


def _data_of(out: Path | None, *, resume: bool) -> Path:
    """The data of the run that is resumed."""
    if resume and out is not None and RunFolder(out).exists:
        folder = Path(RunFolder(out).read_config()["data"]["folder"])
        if not folder.is_dir():
            raise ConfigError(f"the run's data are no longer in {folder}: say where with --data")
        return folder
    if resume and out is not None and out.exists():
        raise ConfigError(
            f"{out} holds no run to resume: to begin one, give --data and a new --out"
        )
    raise ConfigError("--data is needed: a folder made by 'yurii prepare'")


def _train(
    flags: Flags, config: TrainConfig, data: Path, out: Path, source: LoadedModel | str | None
) -> int:
    from yuriiformer.training.journal import Display
    from yuriiformer.training.session import train

    shown: list[Display] = []

    def say(text: str) -> None:
        if shown:
            shown[0].say(text)
            return
        with suppress(OSError):  # the reader of a pipe has gone
            print(text, file=sys.stderr, flush=True)

    def display(config: TrainConfig, costs: RunCosts, state: State) -> Display:
        say(
            f"{config.model.rule.name}: {costs.parameters:,} parameters, "
            f"{costs.tokens_a_step:,} tokens per step, {config.recipe.steps:,} steps, into {out}"
        )
        shown.append(Display(config.recipe.steps, state.step, state.best_loss))
        return shown[0]

    try:
        result = train(
            config,
            data,
            out,
            resume=flags.resume,
            allow_changed=flags.allow_changed,
            init_from=source,
            listener=display,
            say=say,
        )
    finally:
        for each in shown:
            each.close()
    return _end(result, out)


def _end(result: Result, out: Path) -> int:
    state = result.state
    lines = [f"saturated: {text}" for text in result.saturated]
    best = ""
    if state.best_loss is not None:
        best = f"; best validation loss {state.best_loss:.4f} at step {state.best_step}"
    skipped = f"; {state.skipped} steps skipped" if state.skipped else ""
    if result.outcome == "finished":
        lines.append(f"finished {state.step} steps{best}{skipped}: {out}")
    else:
        lines.append(
            f"stopped and saved at step {state.step}{best}{skipped}: --resume continues it"
        )
    if result.leads:
        with suppress(OSError):  # the exit code matters even if nobody reads the output
            print("\n".join(lines), flush=True)
    return 0 if result.outcome == "finished" else EXIT_CODE
