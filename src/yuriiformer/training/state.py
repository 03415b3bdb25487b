"""A run's state between steps: to a checkpoint and back, to the bit."""

from __future__ import annotations

import platform
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import yuriiformer
from yuriiformer.data.tokenizers import Tokenizer
from yuriiformer.errors import CheckpointError, ConfigError, YuriiError, one_line
from yuriiformer.files import in_bytes, write_json
from yuriiformer.model.config import WEIGHTS
from yuriiformer.model.files import compare_tensors, write_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import tensor_seed
from yuriiformer.reading import count, read_object, reason
from yuriiformer.runs.checkpoint import LAST, PREVIOUS, Checkpoint, write_checkpoint
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"
FORM: dict[str, Any] = {  # of state.json
    "step": count,
    "best_loss": (float, None),
    "best_step": (count, None),
    "skipped": count,
    "seconds": float,
    "pending": ({"step": count}, None),
    "generators": [{"python": list, "numpy": list, "torch": str}],
}
MARGIN = 64 * 2**20  # bytes left free beside what is written


@dataclass
class State:
    """How far a run is. ``pending`` is the record of a step whose validation was not finished."""

    step: int = 0
    best_loss: float | None = None
    best_step: int | None = None
    skipped: int = 0
    seconds: float = 0.0
    pending: dict[str, Any] | None = None


def versions() -> dict[str, str]:
    """What the numbers may depend on besides the configuration."""
    packages = {name: metadata.version(name) for name in ("torch", "numpy", "safetensors")}
    return {
        "yuriiformer": yuriiformer.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        **packages,
    }


# The package does not draw from the generators below, but a third-party oracle (with dropout, say)
# may.


def seed_generators(seed: int, rank: int) -> None:
    """Start every generator from (seed, rank)."""
    number = tensor_seed(seed, f"process {rank}") & 0xFFFF_FFFF
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def generator_states(device: torch.device) -> dict[str, Any]:
    """The state of Python's, NumPy's, torch's and this process's GPU's generators."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    state: dict[str, Any] = {
        "python": [version, list(words), gauss],
        "numpy": [kind, [int(key) for key in keys], position, has_gauss, cached],
        "torch": bytes(torch.get_rng_state().tolist()).hex(),
    }
    if device.type == "cuda":
        state["cuda"] = bytes(torch.cuda.get_rng_state(device).tolist()).hex()
    return state


def restore_generators(state: dict[str, Any], device: torch.device) -> None:
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(_bytes(state["torch"]))
    if "cuda" in state and device.type == "cuda":
        torch.cuda.set_rng_state(_bytes(state["cuda"]), device)


def _bytes(text: str) -> torch.Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)


@dataclass(frozen=True)
class Saver:
    """Writes a run's checkpoints. Every process must call; the leading one writes."""

    folder: Path
    model: YuriiFormer
    optimizer: Optimizer
    processes: Processes
    config: dict[str, Any] = field(repr=False)
    tokenizer: Tokenizer | None = None

    def save_last(self, state: State, before: Callable[[], None] = lambda: None) -> None:
        """All that is needed to resume; the one before is kept, should this one be damaged.

        ``before`` is done first, by the leading process: what the checkpoint relies on.
        """
        generators = self.processes.collect(generator_states(self.processes.device))
        if not self.processes.leads:
            return
        before()

        def write(part: Path) -> None:
            write_model(self.model, part, self.tokenizer)
            save_file(self.optimizer.state_tensors(), part / OPTIMIZER)
            extra = {
                "generators": generators,
                "config": self.config,
                "processes": self.processes.size,
                "threads": torch.get_num_threads(),
                "versions": versions(),
            }
            write_json(part / STATE, {**asdict(state), **extra})

        self._write(LAST, write, state.step, self.folder / PREVIOUS)

    def save_model(self, name: str, step: int, val_loss: float | None) -> None:
        """The weights alone, as ``best`` or ``final``."""
        if self.processes.leads:
            self._write(name, self._write_model, step, None, val_loss)

    def _write_model(self, part: Path) -> None:
        write_model(self.model, part, self.tokenizer)

    def _write(
        self, name: str, write: Any, step: int, keep: Path | None, val_loss: float | None = None
    ) -> None:
        # Check before writing: a full disk can fail in other ways.
        need = self.bytes_needed()[0 if name == LAST else 1]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have moved the run
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be written: {reason(error)}") from None
        if free < need + MARGIN:
            raise CheckpointError(
                f"too little disk for the checkpoint {self.folder / name}: it needs "
                f"{in_bytes(need)}, and {in_bytes(free)} are free"
            )
        about: dict[str, Any] = {"step": step}
        if val_loss is not None:
            about["val_loss"] = val_loss
        write_checkpoint(self.folder / name, write, about, keep)

    def bytes_needed(self) -> tuple[int, int]:
        """The size of a checkpoint to resume from, and of a model alone."""
        weights = sum(t.nbytes for t in self.model.state_dict().values())
        states = self.optimizer.state_bytes()
        return weights + states + 2**20, weights + 2**20


def check_space(folder: Path, whole: int, model: int) -> None:
    """That a run's checkpoints fit: three to resume from (one of them being written), two models
    and one being written."""
    try:
        have = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be read: {reason(error)}") from None
    need = 3 * whole + 3 * model - have
    if free < need + MARGIN:
        raise CheckpointError(
            f"too little disk for the checkpoints of this run: {folder} needs {in_bytes(need)} "
            f"more, and {in_bytes(free)} are free; free some, or choose another --out"
        )


def restore(
    checkpoint: Checkpoint | None,
    model: YuriiFormer,
    optimizer: Optimizer,
    processes: Processes,
    seed: int,
) -> State:
    """Put a run where a checkpoint left it. Only the leading process reads."""
    saved: dict[str, Any] = {}
    weights = moments = None
    if processes.leads:
        assert checkpoint is not None
        folder = checkpoint.folder
        try:
            saved = read_object(folder / STATE, FORM, CheckpointError)
            weights, moments = load_file(folder / WEIGHTS), load_file(folder / OPTIMIZER)
            compare_tensors(folder / WEIGHTS, model.state_dict(), weights)
        except YuriiError as error:
            raise CheckpointError(str(error)) from None
        except Exception as error:
            raise CheckpointError(f"{folder} cannot be read: {one_line(error):.160}") from None
    saved = processes.share(saved)
    try:
        model.load_state_dict(processes.share_tensors(weights))
        optimizer.load_state_tensors(processes.share_tensors(moments))
        generators = saved["generators"]
        if processes.rank < len(generators):
            restore_generators(generators[processes.rank], processes.device)
        else:  # more processes than before: new ones start from the step they join at
            seed_generators(seed + saved["step"], processes.rank)
        return State(**{each.name: saved[each.name] for each in fields(State)})
    except (ConfigError, LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CheckpointError(
            f"the checkpoint to resume from is not of this model: {one_line(error):.160}"
        ) from None
