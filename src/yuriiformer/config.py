"""The configuration of a run: complete, typed, plain data when saved.

Five parts: the model, the recipe (what is optimised and how), validation, the machine, and what the
run writes. All but the last can change the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from yuriiformer.errors import ConfigError, RuleError, brief, did_you_mean
from yuriiformer.model.config import ModelConfig, Precision
from yuriiformer.reading import file_name, problem_of
from yuriiformer.sizes import size

Matrices = Literal["muon", "adamw"]
Scale = Literal["original", "rms"]  # of Muon's updates
Blocks = Literal["first", "spread"]  # of a split, those that a validation reads
LARGEST_RATE = 1e31  # of learning rates and the like, and 1e37 of a product: float32 holds 3e38
Compile = Literal["auto", "on", "off"]
Products = Literal["torch", "onednn"]
Parallel = Literal["auto", "ddp", "fsdp"]


@dataclass(frozen=True)
class Recipe:
    """What is optimised and how. The defaults are the paper's for TinyStories."""

    steps: int = 10_000
    """Optimiser steps."""
    warmup: int | None = None
    """Steps of linear warmup; a tenth of the steps if not given, as in the paper."""
    sequences: int = 480
    """Sequences per step, over all micro-batches and processes."""
    seed: int = 0
    """Seed of the initial weights and of the order of the data."""
    matrices: Matrices = "muon"
    """Optimiser of the matrices that are not embeddings: Muon, or AdamW for everything."""
    muon_lr: float = 0.02
    """Peak learning rate of Muon (matrices)."""
    matrix_lr: float | None = None
    """Peak learning rate of matrices under --matrices adamw; AdamW's if not given."""
    adamw_lr: float = 6e-4
    """Peak learning rate of AdamW (embeddings, norms, coefficients)."""
    coefficient_lr: float = 5.0
    """Learning rate of the rule's coefficients, as a multiple of AdamW's."""
    final_lr: float = 0.1
    """Learning rate at the end of the cosine, as a fraction of the peak."""
    weight_decay: float = 0.1
    """Weight decay of embeddings, and of matrices under --matrices adamw; the rest has none."""
    muon_momentum: float = 0.95
    """Momentum of Muon."""
    muon_nesterov: bool = True
    """Muon's momentum is Nesterov's; without, the plain running mean (the paper does not say)."""
    muon_steps: int = 5
    """Newton-Schulz steps of Muon."""
    muon_scale: Scale = "original"
    """Size of Muon's updates: sqrt(max(1, rows/cols)), or rms: like AdamW's."""
    split_fused: bool = False
    """Let Muon orthogonalise the maps of a fused projection (QKV) one by one."""
    adamw_beta1: float = 0.9
    """AdamW's first decay."""
    adamw_beta2: float = 0.95
    """AdamW's second decay."""
    adamw_eps: float = 1e-8
    """AdamW's epsilon."""
    clip: float = 1.0
    """Largest norm of the whole gradient; 0: no clipping."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """A loss or gradient that is not finite: stop the run, or drop the step and count it."""

    def __post_init__(self) -> None:
        for name in ("steps", "sequences", "muon_steps"):
            _whole(self, name, least=1)
        _whole(self, "seed", least=None)
        if self.warmup is not None:
            _whole(self, "warmup", least=0)
            if self.warmup > self.steps:
                raise ConfigError(f"warmup={self.warmup} is longer than the run of {self.steps}")
        for name in ("muon_lr", "adamw_lr", "coefficient_lr", "final_lr", "weight_decay"):
            _number(self, name, least=0.0)
        for name in ("coefficient_lr", "weight_decay"):
            if self.adamw_lr * getattr(self, name) > 1e37:
                raise ConfigError(f"adamw_lr times {name} is too large a number for float32")
        _number(self, "clip", least=0.0)
        for name in ("muon_momentum", "adamw_beta1", "adamw_beta2"):
            _number(self, name, least=0.0, below=1.0)
        _number(self, "adamw_eps", least=0.0)
        _choices(self)
        if self.matrix_lr is not None:
            _number(self, "matrix_lr", least=0.0)
            if self.uses_muon:
                raise ConfigError("matrix_lr is for matrices=adamw; the rate of Muon is muon_lr")

    @property
    def uses_muon(self) -> bool:
        return self.matrices == "muon"

    @property
    def matrix_peak(self) -> float:
        """Peak learning rate of matrices under AdamW."""
        return self.adamw_lr if self.matrix_lr is None else self.matrix_lr

    @property
    def warmup_steps(self) -> int:
        return self.steps // 10 if self.warmup is None else self.warmup


@dataclass(frozen=True)
class Validation:
    """How a run is validated while it trains."""

    eval_every: int = 100
    """Steps between validations; 0 never validates."""
    eval_sequences: int = 4800
    """Sequences per validation, always the same; a smaller split is read again from its start."""
    eval_blocks: Blocks = "first"
    """Which sequences of the split: the first ones, or spread evenly over it."""
    exact: bool = False
    """After the last step, also the exact loss: every token of the validation split once."""
    texts: str | None = None
    """After the last step, also the exact loss on other texts: folders beside the data's, by their
    names, separated by commas; each prepared with the data's tokeniser."""

    def __post_init__(self) -> None:
        _whole(self, "eval_every", least=0)
        _whole(self, "eval_sequences", least=1)
        _choices(self)
        for name in ("exact", "texts"):
            if getattr(self, name) and not self.eval_every:
                raise ConfigError(f"{name} needs validations: eval_every is 0")
        names = self.text_names
        if len(set(names)) < len(names) or any(problem_of(name, file_name) for name in names):
            raise ConfigError(
                f"texts={brief(self.texts)} must name folders beside the data's, each once, "
                "separated by commas, without a path"
            )

    @property
    def text_names(self) -> list[str]:
        return [] if self.texts is None else [name.strip() for name in self.texts.split(",")]


@dataclass(frozen=True)
class Machine:
    """Where it runs: this changes rounding and speed, not what is computed."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda, cuda:1, mps."""
    micro_batch: int = 30
    """Sequences in memory at a time; gradients are accumulated to the whole step."""
    precision: Precision = "auto"
    """Precision of oracles and output projection: auto is bfloat16 where the hardware has it."""
    stream_precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of X and V between blocks."""
    compile: Compile = "auto"
    """Compile the blocks: auto does on a GPU, and on a CPU with a C++ compiler for long runs."""
    recompute: bool = False
    """Keep only the streams between blocks and recompute the rest in the backward pass: less
    memory, about a third more work."""
    threads: int | None = None
    """CPU threads of each process; torch's own choice if not given."""
    products: Products = "torch"
    """Matrix products on a CPU in float32: torch's own (MKL's), or oneDNN's, up to twice as fast on
    AMD processors with AVX-512 and no slower on others."""
    deterministic: bool = False
    """On a GPU: use deterministic algorithms where they exist (on a CPU they always are)."""
    parallel: Parallel = "auto"
    """Several processes: ddp holds the whole model on each, fsdp divides weights, gradients and
    optimiser among them; auto is ddp where that fits into memory."""
    shard_group: int | None = None
    """With fsdp: so many neighbouring processes hold one copy of the model between them (those of a
    node, say); all processes if not given."""

    def __post_init__(self) -> None:
        _whole(self, "micro_batch", least=1)
        for name in ("threads", "shard_group"):
            if getattr(self, name) is not None:
                _whole(self, name, least=1)
        _choices(self)
        if self.products == "onednn" and self.precision == "bfloat16":
            raise ConfigError("products=onednn are for precision=float32: bfloat16 has its own")
        if self.shard_group is not None and self.parallel == "ddp":
            raise ConfigError("shard_group is for parallel=fsdp: ddp divides no model")


@dataclass(frozen=True)
class Output:
    """What a run writes and when: this changes no result."""

    save_every: int = 100
    """Steps between checkpoints to resume from."""
    save_beside: bool = False
    """Write these checkpoints while the training continues, from a copy in memory."""
    tensorboard: bool = True
    """Also write TensorBoard files, where it is installed."""
    wandb: str | None = None
    """Also log to this Weights & Biases project."""

    def __post_init__(self) -> None:
        _whole(self, "save_every", least=1)
        _choices(self)


@dataclass(frozen=True)
class TrainConfig:
    """Everything about a run except its data and its folder."""

    model: ModelConfig = field(default_factory=ModelConfig)
    recipe: Recipe = field(default_factory=Recipe)
    validation: Validation = field(default_factory=Validation)
    machine: Machine = field(default_factory=Machine)
    output: Output = field(default_factory=Output)

    @property
    def tokens_per_step(self) -> int:
        return self.recipe.sequences * self.model.context

    def with_(self, **values: Any) -> TrainConfig:
        """The same with other values of some fields, each by its own name, whichever part it is
        in: ``config.with_(steps=10, d_model=64)``."""
        parts = {name: getattr(self, name) for name in ("model", *PARTS)}
        homes = {each.name: name for name, part in parts.items() for each in fields(part)}
        changed: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            if name not in homes:
                raise ConfigError(f"unknown field {name!r}{did_you_mean(name, homes)}")
            changed.setdefault(homes[name], {})[name] = value
        return replace(self, **{name: replace(parts[name], **new) for name, new in changed.items()})

    def to_dict(self) -> dict[str, Any]:
        parts = {name: asdict(getattr(self, name)) for name in PARTS}
        return {"model": self.model.to_dict(), **parts}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainConfig:
        data = _renamed(data)
        for name in ("model", *PARTS):
            part = data.get(name) if isinstance(data, Mapping) else None
            if not isinstance(part, Mapping):
                raise ConfigError(f"not a run's configuration: it has no {name!r}")
        try:
            model = ModelConfig.from_dict(data["model"])
        except RuleError as error:
            raise ConfigError(f"its rule: {error}") from None
        return cls(model, **{name: _part(kind, data[name]) for name, kind in PARTS.items()})


def _renamed(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration from before ``habits`` were called ``output`` and ``on_nonfinite`` was one
    of them."""
    if not isinstance(data, Mapping) or not isinstance(data.get("habits"), Mapping):
        return data
    rest = {key: part for key, part in data.items() if key != "habits"}
    output = dict(data["habits"])
    moved = {key: output.pop(key) for key in ("on_nonfinite",) if key in output}
    if isinstance(rest.get("recipe"), Mapping):
        rest["recipe"] = {**rest["recipe"], **moved}
    return {**rest, "output": output}


def is_whole(data: Mapping[str, Any]) -> bool:
    """Whether these are all parts of a configuration, not some fields of one."""
    return all(isinstance(_renamed(data).get(name), Mapping) for name in ("model", *PARTS))


PARTS: dict[str, type] = {
    "recipe": Recipe,
    "validation": Validation,
    "machine": Machine,
    "output": Output,
}


def _part(kind: type, data: Mapping[str, Any]) -> Any:
    known = [each.name for each in fields(kind)]
    for key in data:
        if key not in known:
            raise ConfigError(f"unknown field {key!r}{did_you_mean(str(key), known)}")
    return kind(**data)


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The fields, by name, in which two saved configurations differ."""
    found: dict[str, tuple[Any, Any]] = {}
    for part in dict.fromkeys([*before, *after]):
        one, two = before.get(part, {}), after.get(part, {})
        for name in dict.fromkeys([*one, *two]):
            if one.get(name) != two.get(name):
                found[name] = (one.get(name), two.get(name))
    return found


def _whole(part: object, name: str, least: int | None) -> None:
    object.__setattr__(part, name, size(name, getattr(part, name), least))


def _number(part: object, name: str, least: float, below: float = LARGEST_RATE) -> None:
    value = getattr(part, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < below:
        bound = f" and below {below:g}"
        raise ConfigError(
            f"{name} must be a number of at least {least:g}{bound}, not {brief(value)}"
        )


def _choices(part: object) -> None:
    """Check that each field of a few words is one of them, and that switches and texts are such."""
    for name, kind in get_type_hints(type(part)).items():
        value, allowed = getattr(part, name), get_args(kind)
        if get_origin(kind) is Literal and value not in allowed:
            raise ConfigError(f"{name}={brief(value)} is not one of {', '.join(allowed)}")
        if kind is bool and not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, not {brief(value)}")
        text = (value is None and type(None) in allowed) or isinstance(value, str)
        if (kind is str or str in allowed) and not text:
            raise ConfigError(f"{name} must be text, not {brief(value)}")
