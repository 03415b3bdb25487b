"""Tensors by name in a folder: one safetensors file, or several of which each has some rows.

    model.safetensors            all tensors, or
    model-1-of-4.safetensors     of every tensor the rows of the first of four processes; the first
    ...                          also has what every process holds whole
    model.index.json             each tensor's shape and rows, and the hash of each file

A process writes its own file, and any number of processes can read them again: a reader asks for
rows of a tensor and does not see how many files they come from. Nothing in them is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from yuriiformer.errors import ModelFileError, one_line
from yuriiformer.files import sha256, write_json
from yuriiformer.model.shards import is_sharded, local, local_rows, shard_bounds
from yuriiformer.reading import Each, count, file_name, read_object, reason

FORMAT = 1
FORM: dict[str, Any] = {
    "format": int,
    "files": [{"name": file_name, "sha256": str}],
    "tensors": Each({"shape": [count], "rows": [[count]]}),
}
Rows = tuple[int, int]  # the first, and the first after them


def whole_name(kind: str) -> str:
    return f"{kind}.safetensors"


def index_name(kind: str) -> str:
    return f"{kind}.index.json"


def shard_name(kind: str, shard: int, shards: int) -> str:
    return f"{kind}-{shard + 1}-of-{shards}.safetensors"


def local_tensors(tensors: Mapping[str, Tensor], *, first: bool) -> dict[str, Tensor]:
    """What a process of several writes: its rows, and the first one also what all hold whole."""
    found = {name: local(tensor) for name, tensor in tensors.items() if first or is_sharded(tensor)}
    return {name: tensor for name, tensor in found.items() if tensor.numel()}


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None
) -> None:
    """One file; ``about`` tells which checkpoint it is a part of."""
    save_file({name: each.contiguous() for name, each in tensors.items()}, path, about)


def describe_tensors(tensors: Mapping[str, Tensor], shards: int) -> dict[str, Any]:
    """Each tensor's shape, and which of its rows each process writes."""
    return {
        name: {"shape": list(tensor.shape), "rows": _all_rows(tensor, shards)}
        for name, tensor in tensors.items()
    }


def write_index(
    folder: Path, kind: str, described: Mapping[str, Any], hashes: Mapping[str, str]
) -> None:
    """Which rows are in which of the files, whose hashes are given in their order."""
    files = [{"name": name, "sha256": sha} for name, sha in hashes.items()]
    found = {"format": FORMAT, "files": files, "tensors": dict(described)}
    write_json(folder / index_name(kind), found)


def _all_rows(tensor: Tensor, shards: int) -> list[list[int]]:
    if is_sharded(tensor):
        return [list(shard_bounds(len(tensor), shards, shard)) for shard in range(shards)]
    rows = local_rows(tensor)[1]
    return [[0, rows], *([rows, rows] for _ in range(shards - 1))]


@dataclass(frozen=True)
class TensorShape:
    """What is known of a tensor before it is read."""

    shape: tuple[int, ...]

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1


class TensorFiles:
    """The tensors of one kind (``model``, ``optimizer``) in a folder, to be read by rows."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder
        self.head = folder / index_name(kind)
        self.divided = self.head.is_file()
        if not self.divided:
            self.head = folder / whole_name(kind)

    @cached_property
    def index(self) -> dict[str, Any]:
        """The index of files that are divided."""
        found = read_object(self.head, FORM, ModelFileError, FORMAT)
        for name, each in found["tensors"].items():
            rows = [tuple(pair) for pair in each["rows"]]
            ends = [0, *(pair[-1] for pair in rows)]
            joined = len(rows) == len(found["files"]) and all(len(pair) == 2 for pair in rows)
            joined = joined and [pair[0] for pair in rows] == ends[:-1] and ends == sorted(ends)
            if not joined or ends[-1] != TensorShape(tuple(each["shape"])).rows:
                raise ModelFileError(f"{self.head}: the rows of {name!r} do not make up its shape")
        return found

    @cached_property
    def shapes(self) -> dict[str, TensorShape]:
        """The shapes of all tensors, without reading them."""
        if self.divided:
            tensors = self.index["tensors"]
            return {name: TensorShape(tuple(each["shape"])) for name, each in tensors.items()}
        with self._open(self.head) as file:
            names = list(file.keys())
            return {name: TensorShape(tuple(file.get_slice(name).get_shape())) for name in names}

    def check(self) -> None:
        """Check that the files are those that the index speaks of."""
        for each in self.index["files"] if self.divided else ():
            path = self.folder / each["name"]
            if not path.is_file():
                raise ModelFileError(f"{path} is missing")
            if sha256(path) != each["sha256"]:
                raise ModelFileError(
                    f"{path} is damaged or of another checkpoint: its SHA-256 is not that of "
                    f"{self.head.name}"
                )

    def rows(self, name: str, start: int, end: int) -> Tensor:
        """Some rows of a tensor, from as many files as they lie in."""
        pieces = [
            self._read(path, name, max(start, low) - low, min(end, high) - low)
            for path, low, high in self._pieces(name)
            if max(start, low) < min(end, high)
        ]
        if not pieces:
            path, *_ = next(self._pieces(name))
            return self._read(path, name, 0, 0)
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def whole(self, name: str) -> Tensor:
        return self.rows(name, 0, self.shapes[name].rows)

    def _pieces(self, name: str) -> Iterator[tuple[Path, int, int]]:
        if not self.divided:
            yield self.head, 0, self.shapes[name].rows
            return
        rows = self.index["tensors"][name]["rows"]
        for each, (low, high) in zip(self.index["files"], rows, strict=True):
            if low < high:
                yield self.folder / each["name"], low, high

    def _read(self, path: Path, name: str, start: int, end: int) -> Tensor:
        with self._open(path) as file:
            if not self.shapes[name].shape:
                only: Tensor = file.get_tensor(name)
                return only
            part: Tensor = file.get_slice(name)[start:end]
        if len(part) != end - start or part.shape[1:] != self.shapes[name].shape[1:]:
            raise ModelFileError(f"{path}: {name!r} has another shape than {self.head.name} says")
        return part

    def _open(self, path: Path) -> Any:
        try:
            return safe_open(path, framework="pt")
        except (SafetensorError, OSError, ValueError) as error:
            raise not_safetensors(path, error) from None


def not_safetensors(path: Path, error: Exception) -> ModelFileError:
    if isinstance(error, OSError) and error.strerror:
        return ModelFileError(f"{path} cannot be read: {reason(error)}")
    return ModelFileError(f"{path} is not a safetensors file: {one_line(error):.160}")
