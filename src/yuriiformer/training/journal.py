"""A run's records: what they say of the coefficients, and where they go. They are written to
``metrics.jsonl`` and told to listeners: TensorBoard, Weights & Biases, a person at a terminal."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import torch

from yuriiformer.config import TrainConfig
from yuriiformer.display.columns import duration
from yuriiformer.errors import ConfigError, one_line
from yuriiformer.model.block import Block
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import MetricsFile, Record, cut_metrics
from yuriiformer.training.state import State

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

Say = Callable[[str], None]
EDGE = 1e-3  # a coefficient in (0, 1) this near to an end has nowhere left to go
GROUPS = {"loss": "loss/train", "val_loss": "loss/validation", "exact_loss": "loss/exact"}
EVERY_SECONDS = 10.0  # between lines where no terminal is


class Listener(Protocol):
    """Told of every record, once."""

    def record(self, record: Record) -> None: ...
    def close(self) -> None: ...


class Journal:
    """A run's journal. Only that of the leading process has a file and listeners."""

    def __init__(
        self, say: Say, metrics: MetricsFile | None = None, told: Sequence[Listener] = ()
    ) -> None:
        self.say, self.metrics, self.told = say, metrics, list(told)

    def add(self, record: Record) -> None:
        """Write a record, and tell it. Listeners that fail (a full disk, a network) are left out:
        the run matters more."""
        if self.metrics is not None:
            problem = self.metrics.add(record)
            if problem:
                self.say(f"{problem}; it is kept, and training continues")
        for listener in tuple(self.told):
            try:
                listener.record(record)
            except Exception as error:
                self.say(f"{type(listener).__name__} failed and is left out: {one_line(error)}")
                self.told.remove(listener)

    def sync(self) -> None:
        """Wait until the records are on the disk."""
        if self.metrics is not None:
            self.metrics.sync()

    def close(self) -> None:
        for listener in self.told:
            with suppress(Exception):  # what it could not write is in metrics.jsonl
                listener.close()
        if self.metrics is not None:
            self.metrics.close()


def open_journal(
    folder: RunFolder, config: TrainConfig, state: State, say: Say, extra: Sequence[Listener]
) -> Journal:
    """From where the run stands; records of steps that will be done again are dropped."""
    begun = state.step > 0 or state.pending is not None
    # The record of a step whose validation was cut short has not been written.
    last = state.step - (state.pending is not None) if begun else -1
    for line in cut_metrics(folder.metrics_file, last):
        say(f"note: {folder.metrics_file}, line {line} was damaged and is left out")
    told: list[Listener] = []
    if config.output.tensorboard:
        try:
            told.append(TensorBoard(folder.tensorboard, state.step))
        except ModuleNotFoundError:
            say("TensorBoard is not installed: its files are not written (pip install tensorboard)")
    if config.output.wandb is not None:
        told.append(WandB(folder, config.output.wandb, config.to_dict()))
    return Journal(say, MetricsFile(folder.metrics_file), [*told, *extra])


@torch.no_grad()
def coefficient_record(model: YuriiFormer) -> dict[str, list[float]]:
    """Each coefficient's value in every layer; of one per head or channel, its mean, and its range
    as ``name.min`` and ``name.max``."""
    found: dict[str, list[float]] = {}
    for block in model.blocks:
        assert isinstance(block, Block)
        for name, value in block.coefficients().items():
            found.setdefault(name, []).append(value.mean().item())
            if value.numel() > 1:
                found.setdefault(f"{name}.min", []).append(value.min().item())
                found.setdefault(f"{name}.max", []).append(value.max().item())
    return found


@torch.no_grad()
def saturated(model: YuriiFormer) -> list[str]:
    """Learned coefficients of the unit interval within 1e-3 of an end, in words."""
    found = []
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        dead = set(block.dead_parameters())
        for name, value in block.coefficients().items():
            spec = block.coefficients.coefficients[name]
            if not spec.learned or spec.range != "unit" or f"coefficients.raw_{name}" in dead:
                continue
            for end, distance in ((0, value.min()), (1, 1 - value.max())):
                if distance.item() < EDGE:
                    found.append(f"{name} of layer {layer} is within {EDGE:g} of {end}")
    return found


def scalars(record: Record) -> dict[str, float]:
    """A record's numbers under the names that dashboards show."""
    found: dict[str, float] = {}
    for name in ("loss", "val_loss", "exact_loss", "grad_norm", "skipped"):
        if isinstance(record.get(name), int | float):
            found[GROUPS.get(name, f"run/{name}")] = record[name]
    for name, loss in record.get("text_losses", {}).items():
        found[f"{GROUPS['exact_loss']}/{name}"] = loss
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


class Display:
    """Progress of a run: a live bar on a terminal, a line now and then elsewhere."""

    def __init__(self, steps: int, step: int, best: float | None) -> None:
        self.steps, self.first, self.best = steps, step, best
        self.stream: TextIO = sys.stderr
        self.began = self.said = time.monotonic()
        self.validation = ""
        self.bar: Bar | None = None
        if self.stream.isatty():
            self._open_bar()

    def _open_bar(self) -> None:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415
        from rich.table import Column  # noqa: PLC0415

        self.bar = Progress(
            TextColumn(
                "{task.completed}/{task.total}",
                table_column=Column(no_wrap=True, min_width=2 * len(str(self.steps)) + 1),
            ),
            BarColumn(bar_width=12),
            TextColumn(
                "{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")
            ),
            console=Console(file=self.stream),
        )
        self.bar.start()
        self.bar.add_task("starting", total=self.steps, completed=self.first)

    def say(self, text: str) -> None:
        """A remark, above the bar."""
        try:
            if self.bar is not None:
                self.bar.console.print(text, markup=False, highlight=False)
            else:
                print(text, file=self.stream, flush=True)
        except OSError:  # the reader of a pipe has gone: metrics.jsonl has it all
            self.stream, self.bar = StringIO(), None

    def record(self, record: dict[str, Any]) -> None:
        if "val_loss" in record:
            better = self.best is None or record["val_loss"] < self.best
            self.best = record["val_loss"] if better else self.best
            self.validation = f"val {record['val_loss']:.4f}{' (best)' if better else ''}"
        text = self._line(record)
        now = time.monotonic()
        if self.bar is not None:
            task = self.bar.task_ids[0]
            self.bar.update(task, completed=record["step"], description=text)
        if "val_loss" in record or (self.bar is None and now - self.said > EVERY_SECONDS):
            self.said = now
            self.say(f"step {record['step']}/{self.steps}  {text}")

    def _line(self, record: dict[str, Any]) -> str:
        parts = [f"loss {record['loss']:.4f}"] if "loss" in record else []
        parts += [self.validation] if self.validation else []
        done = record["step"] - self.first
        if done > 0 and record["step"] < self.steps:
            left = (time.monotonic() - self.began) / done * (self.steps - record["step"])
            parts.append(f"{duration(left)} left")
        if "lr" in record:  # what a narrow terminal may cut off
            parts.append(f"{record['timing']['tokens_per_second']:,.0f} tok/s")
            parts.append("lr " + " ".join(f"{rate:.2e}" for rate in record["lr"].values()))
            parts.append(f"grad {record['grad_norm']:.2f}")
        return "  ".join(parts)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
