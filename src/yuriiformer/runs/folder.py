"""A run is a folder: ``config.json``, ``metrics.jsonl``, ``checkpoints/``, ``tensorboard/``."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from yuriiformer.errors import CheckpointError, RunError
from yuriiformer.files import claim_folder, take_lock, write_json
from yuriiformer.reading import Each, count, path_text, plain_text, read_object, reason
from yuriiformer.runs.checkpoint import BEST, FINAL, LAST, Checkpoint, read_checkpoint

FORMAT = 1
CONFIG: dict[str, Any] = {  # the form of config.json
    "format": int,
    "config": dict,
    "data": {
        "folder": path_text,
        "train_tokens?": count,
        "val_tokens?": count,
        "train_sha256?": str,
        "val_sha256?": str,
        "tokenizer?": str,
        "source?": plain_text,
        "train_documents?": count,
        "val_documents?": count,
        "texts?": Each(Each((int, str))),  # others that are evaluated: their identity
    },
    "resolved": dict,
    "plan?": Each((int, float, None)),
    "versions?": Each(str),
    "init?": {  # the model that the run began from
        "path": path_text,
        "model": {"sha256": str},
        "rule": dict,
        "taken?": [str],
        "partly?": Each(count),
        "new?": [str],
        "left?": [str],
        "coefficients?": Each(float),
        "remarks?": [str],
        "loss_before?": (float, None),
    },
    "changes?": [{"step": count, "fields": Each(list)}],
}


def _begun(folder: Path) -> bool:
    """Whether a folder holds a run, or one that was stopped before it wrote its configuration."""
    if (folder / "config.json").is_file():
        return True
    names = {path.name for path in folder.iterdir()}
    stopped = names <= {".lock", "checkpoints", "config.json.part"} and ".lock" in names
    return stopped and not any((folder / "checkpoints").glob("*"))


class RunFolder:
    """Where everything of a run stands."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.metrics_file = self.path / "metrics.jsonl"
        self.checkpoints = self.path / "checkpoints"
        self.tensorboard = self.path / "tensorboard"
        self.nonfinite_file = self.path / "nonfinite.json"
        self._lock: IO[bytes] | None = None
        self._config: dict[str, Any] | None = None  # what config.json says, once it was read

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.config_file.is_file()

    def begun_by(self, job: str) -> bool:
        """Whether this very job began the run (and was started again by its agent)."""
        try:
            return (self.path / ".lock").read_text(encoding="utf-8") == job
        except (OSError, UnicodeDecodeError):
            return False

    def take(self, *, resume: bool, job: str = "") -> None:
        """Lock the folder: no other process may train into it."""
        claim_folder(self.path, _begun, "a run")
        if self.exists:
            self.read_config()  # another program's config.json, perhaps
        if self.exists and not resume:
            raise RunError(
                f"{self.path} holds a run already: add --resume to resume it, or choose "
                "another --out"
            )
        busy = f"another process is training into {self.path} right now"
        self._lock = take_lock(self.path / ".lock", busy)
        self.checkpoints.mkdir(exist_ok=True)
        self._lock.truncate(0)
        self._lock.write(job.encode())
        self._lock.flush()

    @property
    def busy(self) -> bool:
        """Whether another process trains into it right now."""
        try:
            with (self.path / ".lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_config(self, data: dict[str, Any]) -> None:
        self._config = {**data, "format": FORMAT}
        write_json(self.config_file, self._config)

    def put_back(self, say: Callable[[str], None]) -> None:
        """Make the folder again if it was moved or removed during the run, so that what it learned
        is not lost."""
        if self._config is None or self.config_file.exists():
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_json(self.config_file, self._config)
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be written: {reason(error)}") from None
        say(f"{self.path} was moved or removed while it trained: it is made again, and saved into")

    def read_config(self) -> dict[str, Any]:
        if not self.exists:
            raise RunError(f"no run in {str(self.path)!r}: it has no config.json")
        self._config = read_object(self.config_file, CONFIG, RunError, FORMAT)
        return self._config


def find_checkpoint(folder: RunFolder, name: str | None = None) -> tuple[Checkpoint, list[str]]:
    """The one that is named, else the best, else what there is; and what is wrong with better
    ones."""
    try:
        folder.read_config()
    except RunError as error:
        raise RunError(f"{str(folder.path)!r} is not the folder of a run: {error}") from None
    if name is not None:
        if not (folder.checkpoints / name).is_dir():
            there = sorted(each.name for each in folder.checkpoints.glob("*/"))
            known = f"; it has {', '.join(there)}" if there else ", nor any other yet"
            raise RunError(f"{folder.path} has no checkpoint {name!r}{known}")
        return read_checkpoint(folder.checkpoints / name), []
    problems: list[str] = []
    for each in (BEST, FINAL, LAST):
        if (folder.checkpoints / each).is_dir():
            try:
                found = read_checkpoint(folder.checkpoints / each)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            if problems:
                problems.append(f"taking the checkpoint {each!r}, step {found.step}, instead")
            return found, problems
    if problems:
        raise CheckpointError("; ".join(problems))
    raise RunError(f"{folder.path} has no checkpoint yet: train it first")
