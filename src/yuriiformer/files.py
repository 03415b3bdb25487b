"""Atomic writes: even after a crash a reader finds the old file or the new one, never a part."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_json(path: Path, data: dict[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if the file is missing, damaged or holds none."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Written to another name, synced, then renamed."""
    part = path.with_name(f"{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_folder(folder: Path, new: Path, keep: Path | None = None) -> None:
    """Rename ``new`` to ``folder``; the old folder is kept as ``keep``, or removed.

    Linux exchanges the two names in one step, so ``folder`` exists at every moment. Elsewhere two
    renames are needed, and between them the old folder is called ``folder.old``. An earlier
    ``keep`` is removed last.
    """
    old = folder.with_name(f"{folder.name}.old")
    if not folder.exists():
        new.rename(folder)
    elif _exchange(new, folder):
        old = new
    else:
        if old.exists():
            shutil.rmtree(old)
        folder.rename(old)
        new.rename(folder)
    sync_folder(folder.parent)
    if not old.exists():
        return
    if keep is None:
        shutil.rmtree(old, ignore_errors=True)
        return
    if keep.exists():
        shutil.rmtree(keep)
    old.rename(keep)
    sync_folder(folder.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which then replaces ``folder``; after an error nothing has changed."""
    part = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    try:
        part.mkdir(parents=True)
        yield part
        replace_folder(folder, part)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names; False where the system or the file system cannot."""
    # Python has no call for it.
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    paths = os.fsencode(one), os.fsencode(other)
    return bool(call(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_json(data: Any) -> str:
    """Independent of spaces and of the order of keys."""
    text = json.dumps(data, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def in_bytes(size: float) -> str:
    """A number of bytes, in MiB or GiB."""
    return f"{size / 2**30:.2f} GiB" if size >= 2**28 else f"{size / 2**20:.1f} MiB"
