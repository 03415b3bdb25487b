"""Receivers of a run's records: files and services. Only the leading process has any."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from yuriiformer.config import TrainConfig
from yuriiformer.errors import ConfigError, one_line
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import Record

Say = Callable[[str], None]
GROUPS = {"loss": "loss/train", "val_loss": "loss/validation", "exact_loss": "loss/exact"}


class Listener(Protocol):
    """Told of every record, once."""

    def record(self, record: Record) -> None: ...
    def close(self) -> None: ...


def scalars(record: Record) -> dict[str, float]:
    """A record's numbers under the names that dashboards show."""
    found: dict[str, float] = {}
    for name in ("loss", "val_loss", "exact_loss", "grad_norm", "skipped"):
        if isinstance(record.get(name), int | float):
            group = GROUPS.get(name, f"run/{name}")
            found[group] = record[name]
    for name, rate in record.get("lr", {}).items():
        found[f"lr/{name}"] = rate
    for name, layers in record.get("coefficients", {}).items():
        for layer, value in enumerate(layers):
            found[f"coefficients/{name}/{layer}"] = value
    if "tokens_per_second" in record.get("timing", {}):
        found["run/tokens_per_second"] = record["timing"]["tokens_per_second"]
    return found


class TensorBoard:
    """Event files in the run's folder; those of steps that are done again are purged."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        self.writer = SummaryWriter(folder, purge_step=step + 1 if step else None)

    def record(self, record: Record) -> None:
        for name, value in scalars(record).items():
            self.writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self.writer.close()


class WandB:
    """Weights & Biases; a run that is resumed keeps its identity there."""

    def __init__(self, folder: RunFolder, project: str, config: dict[str, Any]) -> None:
        import wandb  # noqa: PLC0415

        path = folder.path / "wandb_id"
        if not path.exists():
            path.write_text(uuid.uuid4().hex[:12], encoding="ascii")
        try:
            self.run = wandb.init(
                project=project,
                id=path.read_text(encoding="ascii").strip(),
                name=folder.path.name,
                dir=str(folder.path),
                config=config,
                resume="allow",
            )
        except wandb.errors.Error as error:
            raise ConfigError(
                f"Weights & Biases: {one_line(error)}. Log in, set WANDB_MODE=offline, or leave "
                "--wandb out; --resume then begins the run"
            ) from None

    def record(self, record: Record) -> None:
        self.run.log(scalars(record), step=record["step"])

    def close(self) -> None:
        self.run.finish()


def check_listeners(config: TrainConfig) -> None:
    """Check that the packages a configuration asks for are installed."""
    if config.output.wandb is not None and find_spec("wandb") is None:
        raise ConfigError("--wandb needs its package: pip install wandb")


def listeners(folder: RunFolder, config: TrainConfig, step: int, say: Say) -> list[Listener]:
    """Those that a configuration asks for."""
    found: list[Listener] = []
    if config.output.tensorboard:
        try:
            found.append(TensorBoard(folder.tensorboard, step))
        except ModuleNotFoundError:
            say("TensorBoard is not installed: its files are not written (pip install tensorboard)")
    if config.output.wandb is not None:
        found.append(WandB(folder, config.output.wandb, config.to_dict()))
    return found
