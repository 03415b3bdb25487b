"""A run is a folder: ``config.json``, ``metrics.jsonl``, ``checkpoints/``, ``tensorboard/``."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import IO, Any

from yuriiformer.errors import RunError
from yuriiformer.files import write_json

FORMAT = 1


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
        """Make the folder this process's own: nobody else may train into it."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file: choose another --out")
        if self.exists and not resume:
            raise RunError(
                f"{self.path} holds a run already: add --resume to resume it, or choose "
                "another --out"
            )
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("ab")
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise RunError(f"another process is training into {self.path} right now") from None
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
        """Let others train into it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def write_config(self, data: dict[str, Any]) -> None:
        write_json(self.config_file, {**data, "format": FORMAT})

    def read_config(self) -> dict[str, Any]:
        if not self.exists:
            raise RunError(f"no run in {str(self.path)!r}: it has no config.json")
        try:
            data = json.loads(self.config_file.read_text(encoding="utf-8"))
            if data["format"] != FORMAT:
                raise RunError(
                    f"{self.config_file} has format {data['format']!r}; this version reads {FORMAT}"
                )
            for part in ("config", "data", "resolved"):
                if not isinstance(data[part], dict):
                    raise TypeError(f"{part} is {data[part]!r:.40}")
            Path(data["data"]["folder"])
        except RunError:
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{self.config_file} is damaged: {error!r:.80}") from None
        return dict(data)
