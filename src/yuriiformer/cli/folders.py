"""Folders that commands write into, and those they must not."""

from __future__ import annotations

import json
from pathlib import Path

from yuriiformer.errors import RunError


def check_folder(out: Path, name: str, kind: str) -> None:
    """New, empty, or an earlier one of the same kind, as the ``kind`` in its file ``name`` says:
    nothing else is written over."""
    if not out.exists():
        return
    if not out.is_dir():
        raise RunError(f"{out} is not a folder: give another with --out")
    if any(out.iterdir()) and not _is_ours(out / name, kind):
        raise RunError(f"{out} holds something else: give a new or empty folder with --out")


def _is_ours(path: Path, kind: str) -> bool:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and data.get("kind") == kind
