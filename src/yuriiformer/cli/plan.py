"""``yurii plan ...``: what a run costs before it starts, on any device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

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
)
from yuriiformer.config import Parallel, Recipe, TrainConfig, Validation
from yuriiformer.data.paper_corpora import CORPORA
from yuriiformer.errors import ConfigError
from yuriiformer.methods.catalog import rules as catalogue
from yuriiformer.model.config import Precision

if TYPE_CHECKING:
    from yuriiformer.planning.plan import Circumstances

PRESET, DEVICE = "tinystories-small", "h200"
MOST_TOKENS = 2**16  # ids that fit into a token file


@dataclass(frozen=True)
class PlannedMachine:
    """What of the machine matters to a plan."""

    micro_batch: int = 30
    """Sequences in memory at a time."""
    precision: Precision = "auto"
    """Precision of oracles and output projection: auto is bfloat16 where the device has it."""
    stream_precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of X and V between blocks."""
    recompute: bool = False
    """Keep only the streams between blocks and recompute the rest in the backward pass."""
    threads: int | None = None
    """CPU threads, with --device cpu."""
    parallel: Parallel = "auto"
    """Several GPUs: ddp holds the whole model on each, fsdp divides it; auto: ddp if it fits."""
    shard_group: int | None = None
    """With fsdp: so many GPUs hold one copy of the model between them; all if not given."""


@dataclass(frozen=True)
class Flags:
    """What a run costs before it starts: parameters, work, memory, the largest micro-batch that
    fits, hours, disk, and what a rule's step costs beyond gradient descent's. Every field of
    the preset can be set by its flag. Nothing is trained, except a step with --device cpu."""

    preset: str = PRESET
    """A complete configuration to start from: tinystories-small, openwebtext-small,
    openwebtext-medium (the paper's), cpu-tinystories, tales-tiny, 1b, 7b."""
    config: Path | None = None
    """A configuration file: a run's config.json, or some fields (TOML, YAML, JSON) that are changed
    in the preset."""
    rule: str = RULE
    """The update rule: a name, a TOML file, or either with variations."""
    rules: tuple[str, ...] = ()
    """Several, in a table."""
    all_rules: bool = False
    """The whole catalogue, in a table."""
    device: str = DEVICE
    """A device of the table (see --devices), or cpu: this machine, which is measured."""
    devices: bool = False
    """List the devices that are known, and plan nothing."""
    gpus: int = 1
    """How many of the device, a process each."""
    mfu: float | None = None
    """Share of the peak rate that is reached: 0.4 is assumed; on this machine it is measured."""
    data: Path | None = None
    """Folder of prepared data, for its vocabulary and its size."""
    tokens: int | None = None
    """Tokens of the data, where no folder tells; known for TinyStories and OpenWebText."""
    vocab_size: int | None = None
    """Rows of the token table; the data's, or GPT-2's 50,304."""
    json: bool = False
    """Print everything as JSON, in bytes, FLOPs and seconds."""
    recipe: tyro.conf.OmitArgPrefixes[Recipe] = field(default_factory=Recipe)
    validation: tyro.conf.OmitArgPrefixes[Validation] = field(default_factory=Validation)
    machine: tyro.conf.OmitArgPrefixes[PlannedMachine] = field(default_factory=PlannedMachine)
    model: tyro.conf.OmitArgPrefixes[Model] = field(default_factory=Model)


def run(arguments: list[str]) -> int:
    first = parse_known("yurii plan", First(), arguments)
    base = base_config(first, PRESET)
    machine = {each.name: getattr(base.machine, each.name) for each in fields(PlannedMachine)}
    empty = Flags(**default_flags(base, first, PRESET), machine=PlannedMachine(**machine))
    flags = parse_flags("yurii plan", empty, arguments)

    from yuriiformer.planning.devices import HERE, known_devices, time_steps
    from yuriiformer.planning.plan import make_plan
    from yuriiformer.planning.text import device_table, plan_page, plan_table

    if flags.devices:
        known = known_devices().values()
        shown = [asdict(device) for device in known]
        print(json.dumps(shown, indent=2) if flags.json else device_table(known))
        return 0
    configs = [_to_config(flags, base, rule) for rule in _chosen(flags, first)]
    where = _circumstances(flags, configs[0])
    timed = flags.device == HERE and flags.mfu is None
    timings = time_steps(configs, where.device) if timed else [None] * len(configs)
    plans = [
        make_plan(config, replace(where, timing=timing))
        for config, timing in zip(configs, timings, strict=True)
    ]
    many = flags.all_rules or bool(flags.rules)
    if flags.json:
        found = [plan.to_dict() for plan in plans]
        print(json.dumps(found if many else found[0], indent=2, ensure_ascii=False))
    else:
        print(plan_table(plans) if many else plan_page(plans[0]))
    return 0


def _chosen(flags: Flags, first: First) -> Sequence[str | None]:
    """The rules to plan; None is the configuration's own."""
    if sum((first.rule is not None, bool(flags.rules), flags.all_rules)) > 1:
        raise ConfigError("--rule, --rules and --all-rules each say which rules: choose one")
    if flags.all_rules:
        return tuple(catalogue)
    return tuple(dict.fromkeys(flags.rules)) or (first.rule,)


def _to_config(flags: Flags, base: TrainConfig, rule: str | None) -> TrainConfig:
    machine = replace(base.machine, **vars(flags.machine))
    model = model_config(flags.model, base.model, rule)
    config = TrainConfig(model, flags.recipe, flags.validation, machine, base.output)
    if flags.data is not None:
        from yuriiformer.data.store import TokenStore
        from yuriiformer.training.initial import fill_vocabulary

        if flags.vocab_size is not None or flags.tokens is not None:
            raise ConfigError("--data tells the vocabulary and the tokens: leave those flags out")
        return fill_vocabulary(config, TokenStore.open(flags.data))
    if flags.vocab_size is not None:
        if flags.vocab_size > MOST_TOKENS:
            raise ConfigError(
                f"vocab_size={flags.vocab_size} is more than token files can hold: at most "
                f"{MOST_TOKENS}"
            )
        return config.with_(vocab_size=flags.vocab_size, valid_vocab=None)
    return config


def _circumstances(flags: Flags, config: TrainConfig) -> Circumstances:
    from yuriiformer.planning.devices import HERE, Device, find_device, this_machine
    from yuriiformer.planning.plan import MFU, Circumstances

    if flags.tokens is not None and flags.tokens < 1:
        raise ConfigError(f"tokens must be at least 1, not {flags.tokens}")
    mfu = MFU if flags.mfu is None else flags.mfu
    device = Device(HERE, "", 1.0, 1.0, 1.0) if flags.device == HERE else find_device(flags.device)
    where = Circumstances(device, flags.gpus, mfu, _tokens(flags))
    where.check(config)
    if flags.device != HERE:
        return where
    if flags.gpus != 1:
        raise ConfigError("--device cpu is this one machine: leave --gpus out")
    return replace(where, device=this_machine(config.machine.threads))


def _tokens(flags: Flags) -> tuple[int, int] | None:
    """To train on, and in all."""
    if flags.data is not None:
        from yuriiformer.data.store import TokenStore

        store = TokenStore.open(flags.data)
        return len(store.train), len(store.train) + len(store.val)
    if flags.tokens is not None:
        return flags.tokens, flags.tokens
    if flags.config is not None or flags.vocab_size is not None:  # another tokeniser's count
        return None
    corpus = CORPORA.get(flags.preset.split("-")[0])
    return None if corpus is None else (corpus.counts["train_tokens"].value, corpus.tokens)
