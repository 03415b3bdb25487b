"""Writing a run's checkpoints: by one process, or by all that hold a part of the model; at once, or
beside the training."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yuriiformer.data.tokenizers import Tokenizer
from yuriiformer.errors import CheckpointError
from yuriiformer.files import in_bytes, remove_folder, write_json
from yuriiformer.model.files import MODEL, describe_model
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.tensor_files import (
    describe_tensors,
    local_tensors,
    shard_name,
    whole_name,
    write_index,
    write_tensors,
)
from yuriiformer.reading import reason
from yuriiformer.runs.checkpoint import (
    LAST,
    PREVIOUS,
    begin_checkpoint,
    entry,
    finish_checkpoint,
    part_of,
    saying,
)
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.processes import Processes
from yuriiformer.training.state import OPTIMIZER, STATE, State, generator_states, versions

MARGIN = 64 * 2**20  # bytes left free beside what is written
Tensors = dict[str, dict[str, Tensor]]  # by kind: the model's, the optimiser's


@dataclass(frozen=True)
class Contents:
    """A checkpoint to be written: the tensors that this process writes, the rows that these are
    (None: all rows), the entry ``about`` of the manifest, and the state of the run."""

    name: str
    tensors: Tensors = field(repr=False)
    rows: dict[str, Any] | None = field(repr=False)
    about: dict[str, Any]
    state: dict[str, Any] | None = field(repr=False)
    size: int  # bytes that it may take

    def copied(self) -> Contents:
        """The same in memory of its own, which training does not change."""
        copies = {
            kind: {name: each.to("cpu", copy=True) for name, each in tensors.items()}
            for kind, tensors in self.tensors.items()
        }
        return replace(self, tensors=copies)


@dataclass
class Saver:
    """Writes a run's checkpoints. Every process must call. One process writes, unless the model is
    sharded: then each process of one copy writes its rows.

    With ``beside``, checkpoints to resume from are copied in memory and written by a thread while
    the training continues. Until one is complete the one before it stands.
    """

    folder: Path
    model: YuriiFormer
    optimizer: Optimizer
    processes: Processes
    config: dict[str, Any] = field(repr=False)
    tokenizer: Tokenizer | None = None
    beside: bool = False
    _thread: threading.Thread | None = field(default=None, init=False, repr=False)
    _problem: Exception | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        # Those that write talk in a group of their own: the other one is the training's.
        alone = replace(self.processes, size=1, group=None)
        self.writers = self.processes.apart() if self.processes.sharded else alone

    def save_last(
        self, state: State, before: Callable[[], None] = lambda: None, *, wait: bool = True
    ) -> None:
        """All that is needed to resume; the one before is kept, should this one be damaged.

        ``before`` is done first, by the leading process: what the checkpoint relies on. Without
        ``wait`` it may be complete only later.
        """
        self.finish()
        generators = self.processes.collect(generator_states(self.processes.device))
        if not self._writes:
            return
        self.writers.led(before)
        told = {
            **asdict(state),
            "generators": generators,
            "config": self.config,
            "processes": self.processes.size,
            "threads": torch.get_num_threads(),
            "versions": versions(),
        }
        tensors = {MODEL: self.model.state_dict(), OPTIMIZER: self.optimizer.state_tensors()}
        contents = self._contents(LAST, tensors, {"step": state.step}, told)
        if wait or not self.beside:
            self._write(contents)
            return
        self._thread = threading.Thread(target=self._try, args=(contents.copied(),))
        self._thread.start()

    def save_model(self, name: str, step: int, val_loss: float | None) -> None:
        """The weights alone, as ``best`` or ``final``."""
        self.finish()
        if self._writes:
            about: dict[str, Any] = {"step": step}
            if val_loss is not None:
                about["val_loss"] = val_loss
            self._write(self._contents(name, {MODEL: self.model.state_dict()}, about))

    def finish(self) -> None:
        """Wait for the checkpoint that is being written; its error, if any, is raised here."""
        if self._thread is not None:
            self._thread.join()
        problem, self._thread, self._problem = self._problem, None, None
        if problem is not None:
            raise problem

    def close(self) -> None:
        """However the run ends, a checkpoint that is being written is completed."""
        if self._thread is not None:
            self._thread.join()

    @property
    def _writes(self) -> bool:
        return self.processes.leads or self.processes.sharded

    def _contents(
        self,
        name: str,
        tensors: Mapping[str, Mapping[str, Tensor]],
        about: dict[str, Any],
        state: dict[str, Any] | None = None,
    ) -> Contents:
        processes = self.processes
        # Computed here, in the main thread: reading the tensors of a sharded model changes it.
        size = self.bytes_needed()[0 if state is not None else 1]
        if not processes.sharded:
            whole = {kind: dict(each) for kind, each in tensors.items()}
            return Contents(name, whole, None, about, state, size)
        own = {
            kind: local_tensors(each, first=processes.leads) if processes.keeps else {}
            for kind, each in tensors.items()
        }
        rows = {kind: describe_tensors(each, processes.shards) for kind, each in tensors.items()}
        return Contents(name, own, rows, about, state, size)

    def _try(self, contents: Contents) -> None:
        """In a thread: an error is kept until `finish` raises it."""
        try:
            self._write(contents)
        except Exception as problem:
            self._problem = problem

    def _write(self, contents: Contents) -> None:
        folder, writers = self.folder / contents.name, self.writers
        keep = self.folder / PREVIOUS if contents.name == LAST else None

        def prepare() -> None:
            self._check_room(folder, contents.size)
            with saying(folder):
                begin_checkpoint(folder)

        def write() -> dict[str, dict[str, Any]]:
            with saying(folder):
                return self._write_tensors(part_of(folder), contents)

        def complete() -> None:
            with saying(folder):
                self._describe(part_of(folder), contents, known)
                finish_checkpoint(folder, contents.about, keep, known)

        try:
            writers.led(prepare)
            written = writers.collect(writers.together(write))
            known = {name: found for each in written for name, found in each.items()}
            writers.led(complete)
        finally:
            if writers.leads:
                remove_folder(part_of(folder))

    def _write_tensors(self, part: Path, contents: Contents) -> dict[str, dict[str, Any]]:
        """This process's files, and what the manifest will say of them."""
        found = {}
        tag = {"step": str(contents.about["step"])}  # tells files of two checkpoints apart
        for kind, tensors in contents.tensors.items():
            if contents.rows is None:
                write_tensors(part / whole_name(kind), tensors)
            elif self.processes.keeps:
                path = part / shard_name(kind, self.processes.rank, self.processes.shards)
                write_tensors(path, tensors, tag)
                found[path.name] = entry(path)
        return found

    def _describe(self, part: Path, contents: Contents, known: Mapping[str, Any]) -> None:
        """What is beside the tensors."""
        for kind, rows in (contents.rows or {}).items():
            shards = self.processes.shards
            names = [shard_name(kind, shard, shards) for shard in range(shards)]
            write_index(part, kind, rows, {name: known[name]["sha256"] for name in names})
        describe_model(self.model.config, part, self.tokenizer)
        if contents.state is not None:
            write_json(part / STATE, contents.state)

    def _check_room(self, folder: Path, need: int) -> None:
        """Before writing: a full disk can fail in other ways."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # the run may have been moved
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be written: {reason(error)}") from None
        if free < need + MARGIN:
            raise CheckpointError(
                f"too little disk for the checkpoint {folder}: it needs {in_bytes(need)}, and "
                f"{in_bytes(free)} are free"
            )

    def bytes_needed(self) -> tuple[int, int]:
        """The size of a checkpoint to resume from, and of a model alone."""
        weights = sum(t.nbytes for t in self.model.state_dict().values())
        states = self.optimizer.state_bytes()
        return weights + states + 2**20, weights + 2**20


def check_space(folder: Path, whole: int, model: int) -> None:
    """Check that a run's checkpoints fit: three to resume from (one of them being written), two
    models and one being written."""
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
