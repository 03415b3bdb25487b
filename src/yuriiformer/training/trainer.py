"""The training loop: steps, validations, checkpoints, until the end or a signal."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from yuriiformer.config import TrainConfig
from yuriiformer.errors import CheckpointError, NonFiniteError
from yuriiformer.evaluation.validation import own_devices, total_loss
from yuriiformer.files import write_json
from yuriiformer.model.device import autocast
from yuriiformer.model.model import YuriiFormer
from yuriiformer.runs.checkpoint import BEST, FINAL, LAST, read_checkpoint
from yuriiformer.runs.folder import RunFolder
from yuriiformer.runs.metrics import Record
from yuriiformer.training.journal import Journal, coefficient_record
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.saving import Saver
from yuriiformer.training.sharding import reshard
from yuriiformer.training.state import State
from yuriiformer.training.step import Batches, StepResult, accumulate, train_step
from yuriiformer.training.stop import Stopper

Ending = Literal["finished", "stopped"]


@dataclass(frozen=True)
class Trainer:
    """A run that is ready (`session` puts it together); `run` trains to the end or a signal."""

    config: TrainConfig
    model: YuriiFormer
    optimizer: Optimizer
    batches: Batches
    processes: Processes
    dtype: torch.dtype
    folder: RunFolder
    saver: Saver
    stopper: Stopper
    journal: Journal
    state: State

    def run(self) -> Ending:
        steps = self.config.recipe.steps
        done = self.state.step >= steps and self.state.pending is None
        if self.processes.share(self.processes.leads and done and self._final_stands()):
            return "finished"
        module = self._parallel()
        owes = self.state.pending is not None or self.state.step == 0  # a validation
        if owes and not self._conclude(self.state.pending or {"step": 0}):
            return self._stop()
        while self.state.step < steps:
            stop, record = self._train(module)
            if not self._conclude(record) or stop:
                return self._stop()
            if self.state.step % self.config.output.save_every == 0 and self.state.step < steps:
                self.save(hard=False)
        self.save(hard=True)
        self.saver.save_model(FINAL, self.state.step, None)
        self.processes.wait()
        return "finished"

    def _final_stands(self) -> bool:
        try:
            return read_checkpoint(self.folder.checkpoints / FINAL).step == self.state.step
        except CheckpointError:
            return False

    def _parallel(self) -> nn.Module:
        """The module that training calls."""
        if self.processes.group is None or self.processes.sharded:
            return self.model
        devices = [self.processes.device] if self.processes.device.type == "cuda" else None
        module = DistributedDataParallel(
            self.model, device_ids=devices, gradient_as_bucket_view=True
        )
        # DDP lays out its buckets anew after the first backward pass, and with three processes or
        # more the layout decides the rounding. One pass whose gradient is thrown away puts that
        # before the first step, of a run that begins and of one that is resumed.
        with torch.random.fork_rng(own_devices(self.processes.device)):
            first = self.batches.training(self.state.step)[0]
            accumulate(module, [replace(first, weight=1.0)], self.processes, self.dtype)
        self.optimizer.zero_grad()
        return module

    def _train(self, module: nn.Module) -> tuple[bool, Record]:
        """One step; whether some process was asked to stop, and the step's record."""
        began = time.perf_counter()
        step = self.state.step
        result = train_step(
            module,
            self.batches.training(step),
            self.optimizer,
            self.processes,
            self.dtype,
            step,
            stop=self.stopper.requested is not None,
        )
        record: Record = {
            "step": step + 1,
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "lr": result.rates,
        }
        if not result.finite:
            self._not_finite(step, result)
            self.state.skipped += 1
            record["skipped"] = self.state.skipped
        self.state.step = step + 1
        seconds = time.perf_counter() - began
        self.state.seconds += seconds
        tokens = self.config.tokens_per_step
        record["tokens"] = (step + 1) * tokens
        record["timing"] = {
            "seconds": round(self.state.seconds, 3),
            "tokens_per_second": round(tokens / seconds, 1),
        }
        return result.stop, record

    def _conclude(self, record: Record) -> bool:
        """Validate if it is time, and write the step's record; False if a signal came between."""
        every = self.config.validation.eval_every
        last = record["step"] == self.config.recipe.steps
        self.state.pending = None
        if every and (record["step"] % every == 0 or last):
            losses = self._losses(last=last)
            if losses is None:
                self.state.pending = record
                return False
            record |= losses
            record["coefficients"] = coefficient_record(self.model)
        elif not every and record["step"] in (0, self.config.recipe.steps):
            record["coefficients"] = coefficient_record(self.model)
        self.journal.add(record)
        if "val_loss" in record:
            self._judge(record["step"], record["val_loss"])
        return True

    def _losses(self, *, last: bool) -> Record | None:
        """The losses of a validation; None if some process was asked to stop meanwhile."""
        asked = self.config.validation
        found: Record = {}
        for name in ("val_loss", "exact_loss") if last and asked.exact else ("val_loss",):
            loss = self._validate(exact=name == "exact_loss")
            if loss is None:
                return None
            found[name] = loss
        for text in asked.text_names if last else ():
            loss = self._validate(exact=True, text=text)
            if loss is None:
                return None
            found.setdefault("text_losses", {})[text] = loss
        return found

    def _validate(self, *, exact: bool, text: str | None = None) -> float | None:
        """The mean loss over all processes' batches; None if some process was asked to stop."""
        batches, common = self.batches.validation(exact=exact, text=text)
        asked = 0

        def stop() -> bool:
            # Every process has at least so many batches; the last of a longer share is not asked.
            nonlocal asked
            asked += 1
            if asked > common:
                return False
            return self.processes.sum([float(self.stopper.requested is not None)])[0] > 0

        with autocast(self.dtype, self.processes.device):
            result = total_loss(self.model, batches, stop)
        if self.processes.sharded:
            reshard(self.model)
        if result is None:
            return None
        nats, tokens = self.processes.sum([result[0], float(result[1])])
        return nats / tokens

    def _judge(self, step: int, loss: float) -> None:
        """Keep the model with the lowest validation loss."""
        if not math.isfinite(loss):
            if self.config.recipe.on_nonfinite == "stop":
                rule = self.config.model.rule.name
                self._report({"validation": True, "step": step, "rule": rule, "loss": str(loss)})
                raise NonFiniteError(
                    f"the validation loss after step {step} is {loss} (rule {rule!r}): a lower "
                    f"learning rate may help; {self._intact}"
                )
            return
        if self.state.best_loss is None or loss < self.state.best_loss:
            self._finish_saving()
            try:
                self.saver.save_model(BEST, step, loss)
                self.state.best_loss, self.state.best_step = loss, step
            except CheckpointError as error:
                self.journal.say(f"{error}; training continues")

    def _not_finite(self, step: int, result: StepResult) -> None:
        """Report a step that cannot be taken; stop, unless such steps are to be skipped."""
        micro_losses = self.processes.collect(result.micro_losses)
        rule = self.config.model.rule.name
        what = f"loss {result.loss}, gradient norm {result.grad_norm}"
        report = {
            "step": step,
            "rule": rule,
            "loss": str(result.loss),
            "grad_norm": str(result.grad_norm),
            "starts": self.batches.order.starts(step).tolist(),
            "micro_batch": self.config.machine.micro_batch,
            "losses_of_processes": [[str(loss) for loss in each] for each in micro_losses],
            "parameters_without_finite_gradient": list(result.bad_gradients),
        }
        self._report(report)
        if self.config.recipe.on_nonfinite == "skip":
            self.journal.say(f"step {step} is skipped: {what} (see {self.folder.nonfinite_file})")
            return
        raise NonFiniteError(
            f"step {step} of rule {rule!r} is not finite: {what}. The batch's positions are in "
            f"{self.folder.nonfinite_file}; {self._intact}. A lower learning rate "
            "may help, or --on-nonfinite skip"
        )

    @property
    def _intact(self) -> str:
        saved = (self.folder.checkpoints / LAST).is_dir()
        return "checkpoints/last is intact" if saved else "no checkpoint was saved before it"

    def _report(self, report: dict[str, Any]) -> None:
        if self.processes.leads:
            try:
                write_json(self.folder.nonfinite_file, report)
            except OSError as error:
                self.journal.say(f"{self.folder.nonfinite_file} could not be written: {error}")

    def save(self, *, hard: bool) -> None:
        """A checkpoint to resume from. If it cannot be written, the earlier one stays. With
        ``hard``, as at the end, that ends the run with an error; otherwise the run continues."""
        self._finish_saving()
        try:
            self.saver.writers.led(lambda: self.folder.put_back(self.journal.say))
            self.saver.save_last(self.state, self.journal.sync, wait=hard)
        except CheckpointError as error:
            if hard:
                raise
            self.journal.say(f"{error}; the checkpoint before it stands, and training continues")

    def _finish_saving(self) -> None:
        """Wait for a checkpoint that is written beside the training; if it failed, say so."""
        try:
            self.saver.finish()
        except CheckpointError as error:
            self.journal.say(f"{error}; the checkpoint before it stands")

    def _stop(self) -> Ending:
        self.save(hard=True)
        self.processes.wait()
        return "stopped"
