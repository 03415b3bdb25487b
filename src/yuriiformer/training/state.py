"""A run's state between steps: to a checkpoint and back, to the bit."""

from __future__ import annotations

import platform
import random
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

import yuriiformer
from yuriiformer.errors import CheckpointError, ConfigError, YuriiError, one_line
from yuriiformer.model.files import MODEL, compare_tensors
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import tensor_seed
from yuriiformer.model.shards import local, local_rows
from yuriiformer.model.tensor_files import TensorFiles
from yuriiformer.reading import count, read_object
from yuriiformer.runs.checkpoint import Checkpoint
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes

OPTIMIZER, STATE = "optimizer", "state.json"
Read = TypeVar("Read")
FORM: dict[str, Any] = {  # of state.json
    "step": count,
    "best_loss": (float, None),
    "best_step": (count, None),
    "skipped": count,
    "seconds": float,
    "pending": ({"step": count}, None),
    "generators": [{"python": list, "numpy": list, "torch": str}],
}


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


def restore(
    checkpoint: Checkpoint | None,
    model: YuriiFormer,
    optimizer: Optimizer,
    processes: Processes,
    seed: int,
) -> State:
    """Put a run where a checkpoint left it, however many processes wrote it.

    Only the leading process reads, and sends what it read to the others. Of a sharded model each
    process reads its own rows, so all of them must see the folder."""
    saved: dict[str, Any] = {}
    if processes.leads:
        assert checkpoint is not None
        folder = checkpoint.folder
        saved = _told(folder, lambda: read_object(folder / STATE, FORM, CheckpointError))
    folder = Path(processes.share("" if checkpoint is None else str(checkpoint.folder)))
    saved = processes.share(saved)
    weights, moments = _tensors(folder, model, optimizer, processes)
    try:
        for name, tensor in model.state_dict().items():
            local(tensor).copy_(weights[name])
        optimizer.load_state_tensors(moments)
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


Tensors = dict[str, Tensor]


def _tensors(
    folder: Path, model: YuriiFormer, optimizer: Optimizer, processes: Processes
) -> tuple[Tensors, Tensors]:
    """Weights and moments as far as this process holds them."""

    def read() -> tuple[Tensors, Tensors]:
        files, own = TensorFiles(folder, MODEL), model.state_dict()
        compare_tensors(files.head, own, files.shapes)
        weights = {name: files.rows(name, *local_rows(each)) for name, each in own.items()}
        files = TensorFiles(folder, OPTIMIZER)
        moments = {
            name: files.rows(name, *optimizer.local_rows(name, shape.rows))
            for name, shape in files.shapes.items()
        }
        return weights, moments

    if not processes.sharded:
        weights, moments = _told(folder, read) if processes.leads else (None, None)
        return processes.share_tensors(weights), processes.share_tensors(moments)
    return processes.together(lambda: _told(folder, read))


def _told(folder: Path, read: Callable[[], Read]) -> Read:
    """What could be read; all that can go wrong is a `CheckpointError`."""
    try:
        return read()
    except YuriiError as error:
        raise CheckpointError(str(error)) from None
    except Exception as error:  # a damaged file can raise anything
        raise CheckpointError(f"{folder} cannot be read: {one_line(error):.160}") from None
