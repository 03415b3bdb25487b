"""Outputs: claimed before anything is written, and written atomically.

`claim_folder` is the one place that decides whether a command may write into a folder: a new one,
an empty one, or one that holds what this program wrote and recognises. Even after a crash a reader
finds the old file or the new one, never a part.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from yuriiformer.errors import RunError, YuriiError
from yuriiformer.reading import parse_json, read_bytes, reason

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write_json(path: Path, data: dict[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one if the file is missing, damaged or holds none."""
    try:
        data = parse_json(read_bytes(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def packaged_table(name: str) -> dict[str, Any]:
    """The TOML file of this name (a path within the package) that comes with the package."""
    return tomllib.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))


def claim_folder(
    folder: Path,
    ours: Callable[[Path], bool],
    what: str,
    error: type[YuriiError] = RunError,
) -> None:
    """Check that a command may write into a folder: it is new, empty, or holds ``what`` this
    program wrote, as ``ours`` recognises it. Anything else is the user's, and stays as it is."""
    try:
        if not os.path.lexists(folder):
            return
        if not folder.is_dir():
            raise error(f"{folder} is not a folder: give another")
        if not any(folder.iterdir()) or ours(folder):
            return
    except OSError as problem:
        raise error(f"{folder} cannot be read: {reason(problem)}") from None
    raise error(
        f"{folder} holds something else than {what}: it is left as it is; give a new or empty "
        "folder"
    )


def only_files(folder: Path, names: set[str]) -> bool:
    """Whether a folder holds nothing but ordinary files of these names."""
    return all(
        path.name in names and path.is_file() and not path.is_symlink() for path in folder.iterdir()
    )


def write_text(path: Path, text: str) -> None:
    # A name that is not UTF-8 comes as half a character, which JSON can write as an escape.
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Written to another name, synced, then renamed."""
    part = path.with_name(f"{path.name}.part")
    with new_file(part) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
    sync_folder(path.parent)


def lock_file(path: Path) -> IO[bytes] | None:
    """A file that is locked until it is closed or the process ends; None if another process holds
    the lock. A link is not followed."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def take_lock(path: Path, busy: str) -> IO[bytes]:
    """The same, or an error: ``busy`` if another process holds the lock. The folder is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = lock_file(path)
    except OSError as error:
        raise RunError(f"{path.parent} cannot be written: {error}") from None
    if lock is None:
        raise RunError(busy)
    return lock


def new_file(path: Path) -> IO[bytes]:
    """A file that was not there: what a killed process left is removed, a link is not followed."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return os.fdopen(os.open(path, flags, 0o666), "wb")


def remove_folder(folder: Path) -> None:
    """Remove a folder of ours; of a link only the link, never what it leads to."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


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
    ``keep`` is removed last. A link of that name is replaced; its target stays.
    """
    old = folder.with_name(f"{folder.name}.old")
    if not os.path.lexists(folder):
        new.rename(folder)
    elif _exchange(new, folder):
        old = new
    else:
        remove_folder(old)
        folder.rename(old)
        new.rename(folder)
    sync_folder(folder.parent)
    if not os.path.lexists(old):
        return
    if keep is None:
        remove_folder(old)
        return
    remove_folder(keep)
    old.rename(keep)
    sync_folder(folder.parent)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which then replaces ``folder``; after an error nothing has changed."""
    part = folder.with_name(f"{folder.name}.part-{os.getpid()}")
    part.mkdir(parents=True)
    try:
        yield part
        replace_folder(folder, part)
    finally:
        remove_folder(part)


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
