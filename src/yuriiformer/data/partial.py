"""The folder of an unfinished preparation, which can be resumed at any time.

All work is done in ``OUT.partial``. A journal records the settings and the progress. It is written
first, and then each time after the tokens that it counts are on the disk; after a crash the files
are truncated to what the journal counts. At the end the whole folder is renamed to ``OUT`` in one
step, so an unfinished folder never has the name of a finished one.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import IO, Any

from yuriiformer.data.records import Split
from yuriiformer.data.tokenizers import TOKENIZER_FILE
from yuriiformer.errors import DataError
from yuriiformer.files import (
    claim_folder,
    lock_file,
    new_file,
    read_json,
    sync_folder,
    write_json,
)
from yuriiformer.reading import count, read_object

SPLITS: tuple[Split, Split] = ("train", "val")
JOURNAL, LOCK, META = "progress.json", "lock", "meta.json"
PLAN = "plan"
BINS = tuple(f"{split}.bin" for split in SPLITS)
OWN = {JOURNAL, LOCK, META, TOKENIZER_FILE, *BINS}  # files of a preparation
COUNTS: dict[str, Any] = {"documents": count, "tokens": count, "text_bytes": count}
FORM: dict[str, Any] = {  # of the journal
    PLAN: dict,
    "progress": {"chunks": count, "empty": count, "invalid": count, "train": COUNTS, "val": COUNTS},
}


@dataclass
class Tally:
    """What has been written to one split."""

    documents: int = 0
    tokens: int = 0
    text_bytes: int = 0

    def add(self, other: Tally) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass
class Progress:
    """How far a preparation is."""

    chunks: int = 0
    empty: int = 0
    invalid: int = 0
    train: Tally = field(default_factory=Tally)
    val: Tally = field(default_factory=Tally)

    def of(self, split: Split) -> Tally:
        return self.train if split == "train" else self.val


def _begun(folder: Path) -> bool:
    """Whether a folder holds a preparation and nothing else. Before its journal is written it has
    no tokens yet."""
    inside = {path.name: path for path in folder.iterdir()}
    if not {name.removesuffix(".part") for name in inside} <= OWN:
        return False
    if LOCK not in inside:  # it was stopped just before its last step
        return "splits" in read_json(folder / META)
    empty = not any(inside[name].stat().st_size for name in BINS if name in inside)
    return empty or JOURNAL in inside or META in inside


class Partial:
    """An unfinished preparation, held by one process at a time."""

    def __init__(self, out: Path, plan: dict[str, Any], *, restart: bool = False) -> None:
        self.out = out
        self.plan = json.loads(json.dumps(plan))
        if not out.name:
            raise DataError(f"{out} cannot be a folder of prepared data: name another --out")
        self.folder = out.with_name(f"{out.name}.partial")
        self.progress = Progress()
        self._files: dict[Split, IO[bytes]] = {}
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise DataError(f"{out} exists already: choose another --out, or remove it first")
        if self.folder.is_symlink():
            raise DataError(f"{self.folder} is a link: it is not followed; choose another --out")
        claim_folder(self.folder, _begun, "an unfinished preparation", DataError)
        self._take()
        try:
            if restart:
                self._clear()
            self._resume()
        except BaseException:
            self.close()
            raise

    def _take(self) -> None:
        """Make the folder and lock it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = lock_file(self.folder / LOCK)
        if lock is None:
            raise DataError(f"another process is preparing {self.out} right now")
        self._lock = lock

    def _clear(self) -> None:
        """Remove what a preparation wrote, and nothing else."""
        for path in self.folder.iterdir():
            if path.name != LOCK and path.name.removesuffix(".part") in OWN:
                path.unlink()

    @property
    def finished(self) -> bool:
        """Everything is written; only the last rename is missing."""
        return (self.folder / META).is_file() and not (self.folder / JOURNAL).exists()

    def _resume(self) -> None:
        if self.finished:
            meta = self._load(META, dict)
            self._same_plan({key: meta.get(key) for key in ("settings", "source", "format")})
            return
        if (self.folder / JOURNAL).is_file():
            data = self._load(JOURNAL, FORM)
            self._same_plan(data[PLAN])
            saved = data["progress"]
            train, val = (Tally(**{name: saved[s][name] for name in COUNTS}) for s in SPLITS)
            chunks, empty, invalid = (saved[name] for name in ("chunks", "empty", "invalid"))
            self.progress = Progress(chunks, empty, invalid, train, val)
        else:
            self._clear()  # it was stopped before its journal was written
        for split in SPLITS:
            path = self.folder / f"{split}.bin"
            if not path.is_file() or path.is_symlink():
                new_file(path).close()
            file = path.open("r+b")
            self._files[split] = file
            size = 2 * self.progress.of(split).tokens
            if path.stat().st_size < size:
                raise DataError(f"{path} is shorter than its journal says: use --restart")
            file.truncate(size)  # what the journal does not count is written again
            file.seek(size)
        self.commit()

    def _load(self, name: str, form: Any) -> dict[str, Any]:
        try:
            return read_object(self.folder / name, form, DataError)
        except DataError as error:
            raise DataError(f"{error}: use --restart to begin anew") from None

    def _same_plan(self, before: dict[str, Any]) -> None:
        differs = sorted(key for key in before if before[key] != self.plan.get(key))
        if differs:
            raise DataError(
                f"{self.folder} holds an unfinished preparation with another {', '.join(differs)}: "
                "give the same options to resume it, or --restart to begin anew"
            )

    def write(self, split: Split, data: bytes) -> None:
        self._files[split].write(data)

    def commit(self) -> None:
        """Make sure that what was written so far is on the disk."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        data = {"plan": self.plan, "progress": asdict(self.progress)}
        write_json(self.folder / JOURNAL, data)

    def finish(self, meta: dict[str, Any]) -> None:
        """All tokens are written: write the description, and rename the folder."""
        for file in self._files.values():
            file.close()
        write_json(self.folder / META, meta)
        (self.folder / JOURNAL).unlink()
        self.publish()

    def publish(self) -> None:
        """The last step, also for a preparation that was stopped just before it."""
        for path in self.folder.iterdir():
            if path.suffix == ".part" or path.name == LOCK:  # of a write that was cut off
                path.unlink()
        self._lock.close()
        self.folder.rename(self.out)
        sync_folder(self.out.parent)

    def close(self) -> None:
        """Release the folder, so that another process can resume it."""
        for file in self._files.values():
            with suppress(OSError):  # what could not be flushed is not in the journal either
                file.close()
        self._lock.close()
