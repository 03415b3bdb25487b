"""Checkpoints: folders with a manifest of hashes, so that damage is detected.

    last/            the newest to resume from: weights, optimiser, state
    last.previous/   the one before it, should ``last`` be damaged
    best/, final/    models only

A checkpoint is written to a folder of another name, synced, and then renamed, so a folder called
``last`` was complete when it got that name. Nothing in it is executed: weights and optimiser are
safetensors, the rest is JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from yuriiformer.errors import CheckpointError
from yuriiformer.files import (
    remove_folder,
    replace_folder,
    sha256,
    sha256_of_json,
    sync,
    sync_folder,
    write_json,
)
from yuriiformer.model.config import weights_name
from yuriiformer.reading import Each, count, file_name, read_object

FORMAT = 1
MANIFEST = "manifest.json"
FORM: dict[str, Any] = {
    "format": int,
    "about": {"step": count, "val_loss?": (float, None)},
    "files": Each({"bytes": count, "sha256": str}, key=file_name),
    "sha256": str,
}
LAST, PREVIOUS, BEST, FINAL = "last", "last.previous", "best", "final"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that passed all checks."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.manifest["about"]["step"])


@contextmanager
def saying(folder: Path) -> Iterator[None]:
    """Errors of writing a checkpoint become a `CheckpointError`."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"checkpoint {folder} could not be written: {error}") from error


def part_of(folder: Path) -> Path:
    """Where a checkpoint is written before it gets its name."""
    return folder.with_name(f"{folder.name}.part")


def begin_checkpoint(folder: Path) -> Path:
    """An empty folder for its files. Several processes may write into it."""
    part = part_of(folder)
    remove_folder(part)  # left by a process that was killed
    part.mkdir(parents=True)
    return part


def entry(path: Path) -> dict[str, Any]:
    """What a manifest says of a file, once its bytes are on the disk."""
    sync(path)
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def finish_checkpoint(
    folder: Path,
    about: dict[str, Any],
    keep: Path | None = None,
    known: Mapping[str, dict[str, Any]] | None = None,
) -> None:
    """Give the folder of `begin_checkpoint` its manifest and its name. ``known`` are entries of
    files that other processes have made already."""
    part, known = part_of(folder), known or {}
    files = {}
    mode = part.stat().st_mode & 0o666  # safetensors makes files that only their owner can read
    for path in sorted(part.iterdir()):
        path.chmod(mode)
        files[path.name] = known.get(path.name) or entry(path)
    manifest: dict[str, Any] = {"format": FORMAT, "about": about, "files": files}
    manifest["sha256"] = sha256_of_json(manifest)
    write_json(part / MANIFEST, manifest)
    sync_folder(part)
    replace_folder(folder, part, keep)


def read_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint whose hashes match; otherwise an error that names the file."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise CheckpointError(f"there is no checkpoint {folder}")
    if not path.exists():
        raise CheckpointError(f"{path} is missing")
    manifest = read_object(path, FORM, CheckpointError)
    claimed = manifest.pop("sha256")
    if claimed != sha256_of_json(manifest) or manifest["format"] != FORMAT:
        raise CheckpointError(f"{path} is damaged: its own SHA-256 or format differs")
    for name, known in manifest["files"].items():
        file, length, digest = folder / name, known["bytes"], known["sha256"]
        if not file.is_file():
            raise CheckpointError(f"{file} is missing")
        size = file.stat().st_size
        if size != length:
            raise CheckpointError(f"{file} is damaged: {size} bytes, not {length}")
        if sha256(file) != digest:
            raise CheckpointError(f"{file} {_wrong(file, manifest['about']['step'])}")
    return Checkpoint(folder, manifest)


def _wrong(file: Path, step: int) -> str:
    """Why a file has another hash than the manifest says: it may be another checkpoint's."""
    try:
        with safe_open(file, framework="np") as opened:
            other = (opened.metadata() or {}).get("step", "")
    except (SafetensorError, OSError, ValueError):
        other = ""
    if other.isdecimal() and int(other) != step:
        return f"is of another checkpoint: of step {other}, not {step}"
    return f"is damaged: its SHA-256 is not that of {MANIFEST}"


def about(checkpoint: Checkpoint) -> dict[str, Any]:
    """Which model a checkpoint holds."""
    files = checkpoint.manifest["files"]
    return {
        "checkpoint": checkpoint.folder.name,
        "step": checkpoint.step,
        "sha256": files[weights_name(files)]["sha256"],
    }


def newest_whole(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint to resume from that is whole, and what is wrong with newer ones."""
    problems: list[str] = []
    there = [name for name in (LAST, f"{LAST}.old", PREVIOUS) if (folder / name).exists()]
    if there == [PREVIOUS]:
        problems.append(f"{folder / LAST} is missing")
    for name in there:
        try:
            return read_checkpoint(folder / name), problems
        except CheckpointError as error:
            problems.append(str(error))
    return None, problems
