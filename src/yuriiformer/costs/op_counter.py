"""Observes every tensor operation: bytes alive, bytes moved, elementwise work.

Works on real tensors and on fake ones, which have sizes but no memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# They reserve or rename memory and read or write none.
IDLE = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "_unsafe_view")
# Products of matrices and attention's kernels: counted as FLOPs, not as elementwise work.
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "_scaled_dot_product")
NORM = 8  # operations per element of a norm: two sums, and to shift, scale and multiply by the gain


class Watcher(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on: ``alive`` bytes now, their ``peak``, and what was moved.

    A storage counts from the operation that returns it until Python and autograd release it.
    ``products`` and ``other`` sum what each operation reads and writes, products of matrices and
    the rest apart, views being free: the traffic of a program in which nothing is fused.
    ``elementwise`` counts one for each element of the rest, `NORM` in a norm.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = self.peak = 0
        self.products = self.other = self.elementwise = 0
        self._held: dict[int, tuple[weakref.ref[Any], int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func.namespace == "prim":
            return result
        read, written = _tensors((args, kwargs)), _tensors(result)
        before = {tensor.untyped_storage()._cdata for tensor in read}
        for tensor in written:
            storage = tensor.untyped_storage()
            if storage._cdata not in before:  # otherwise it existed before
                self._hold(storage)
        if not func.is_view:
            self._count(func._schema.name.removeprefix("aten::"), read, written)
        return result

    def restart(self) -> None:
        """Restart the counts of peak, traffic and work."""
        self.peak = self.alive
        self.products = self.other = self.elementwise = 0

    def _count(self, name: str, read: list[Tensor], written: list[Tensor]) -> None:
        if name in IDLE:
            return
        moved = sum(map(_bytes, read)) + sum(map(_bytes, written))
        if name.startswith(PRODUCTS):
            self.products += moved
            return
        self.other += moved
        size = max((each.numel() for each in (*read, *written)), default=0)
        self.elementwise += size * (NORM if "norm" in name else 1)

    def _hold(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._held:
            return
        size = storage.nbytes()

        def freed(_: Any) -> None:
            self._held.pop(key, None)
            self.alive -= size

        self._held[key] = weakref.ref(storage, freed), size
        self.alive += size
        self.peak = max(self.peak, self.alive)


def _tensors(value: Any) -> list[Tensor]:
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]


def _bytes(tensor: Tensor) -> int:
    """The stored bytes: an expanded tensor repeats the same ones."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
