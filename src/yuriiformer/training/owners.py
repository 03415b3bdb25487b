"""Which process orthogonalises which matrix, and how its rows get there and back.

The processes of a run stand in a rectangle: ``copies`` × ``shards``. Those of one copy hold the
rows of every matrix between them (sharded training); those of one shard hold the same rows (DDP is
the case of one shard, sharding over all processes that of one copy). Each matrix has one owner. The
owner collects the rows within its copy, computes, gives the rows back within its copy, and all
copies get what belongs to their shard. So no work is done twice, and no process ever holds more
than a few whole matrices.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from yuriiformer.model.shards import local, local_rows, shard_bounds

TURN_BYTES = 2**28  # of whole matrices that a process collects at a time, or one matrix


@dataclass(frozen=True, eq=False)
class Matrix:
    """What is orthogonalised as one: ``rows`` rows of a parameter, from row ``first``."""

    parameter: Tensor
    first: int
    rows: int
    cols: int

    def within(self, start: int, end: int) -> tuple[int, int]:
        """Which of its rows are among the parameter's rows from ``start`` to ``end``."""
        low = min(max(start - self.first, 0), self.rows)
        return low, max(low, min(end - self.first, self.rows))

    def here(self) -> slice:
        """Its rows, among those of the parameter that this process holds."""
        start, end = local_rows(self.parameter)
        low, high = self.within(start, end)
        return slice(self.first + low - start, self.first + high - start)


def matrices_of(parameter: Tensor, parts: int) -> list[Matrix]:
    """A parameter as matrices: its first dimension, in equal parts, by all others."""
    rows, cols = parameter.shape[0] // parts, math.prod(parameter.shape[1:])
    return [Matrix(parameter, part * rows, rows, cols) for part in range(parts)]


def alike(parameters: Iterable[Tensor], parts: int) -> list[list[Matrix]]:
    """Their matrices by shape: those that can be stacked."""
    found: dict[Any, list[Matrix]] = defaultdict(list)
    for p in parameters:
        found[p.shape, p.dtype, p.device] += matrices_of(p, parts)
    return list(found.values())


def share_out(sizes: Sequence[tuple[int, int]], processes: int) -> list[int]:
    """The owner of each matrix (rows, columns): the largest first, each to the process that has
    least to do. A Newton–Schulz step costs rows · columns · the smaller of both."""
    costs = [rows * cols * min(rows, cols) for rows, cols in sizes]
    loads = [(0, process) for process in range(processes)]
    owners = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda i: (-costs[i], i)):
        load, process = loads[0]
        owners[index] = process
        heapq.heapreplace(loads, (load + costs[index], process))
    return owners


def in_turns(
    matrices: Sequence[Matrix], owners: Mapping[Matrix, int], dtype: torch.dtype
) -> list[list[Matrix]]:
    """Matrices of one shape in turns, in each of which a process collects `TURN_BYTES` at most."""
    few = max(1, TURN_BYTES // (matrices[0].rows * matrices[0].cols * dtype.itemsize))
    counts: Counter[int] = Counter()
    turns: list[list[Matrix]] = []
    for each in matrices:
        number = counts[owners[each]] // few
        counts[owners[each]] += 1
        turns += [[] for _ in range(number + 1 - len(turns))]
        turns[number].append(each)
    return turns


class Exchange:
    """The processes that share the work: ``group`` holds this process's counterparts in the other
    copies, ``shard_group`` those of its own copy."""

    def __init__(
        self, group: dist.ProcessGroup | None = None, shard_group: dist.ProcessGroup | None = None
    ) -> None:
        self.group, self.shard_group = group, shard_group
        self.copies, self.copy = _place(group)
        self.shards, self.shard = _place(shard_group)

    @property
    def processes(self) -> int:
        return self.copies * self.shards

    def turns(
        self, matrices: Sequence[Matrix], owners: Mapping[Matrix, int], dtype: torch.dtype | None
    ) -> Iterator[Turn]:
        """Matrices of one shape, so many at a time that they fit into a process's memory. A single
        process takes them all at once."""
        own = matrices[0].parameter.dtype
        kind = (dtype or own) if self.processes > 1 else own
        for turn in in_turns(matrices, owners, kind) if self.processes > 1 else [list(matrices)]:
            places = [divmod(owners[each], self.shards) for each in turn]
            yield Turn(self, turn, places, kind)


def _place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    return (1, 0) if group is None else (group.size(), group.rank())


class Turn:
    """Some matrices of one shape on their way to their owners and back.

    Every process calls `collect`, `give_back` and `directions` of its turns in the same order.
    Between these calls the rows travel.
    """

    def __init__(
        self,
        exchange: Exchange,
        matrices: list[Matrix],
        places: list[tuple[int, int]],
        dtype: torch.dtype,
    ) -> None:
        self.exchange, self.matrices, self.dtype = exchange, matrices, dtype
        every = sorted(range(len(places)), key=lambda i: places[i])  # by (copy, shard)
        self.orders = [[i for i in every if places[i][0] == c] for c in range(exchange.copies)]
        self.owners = [places[i][1] for i in self.orders[exchange.copy]]
        here = zip(self.orders[exchange.copy], self.owners, strict=True)
        self.owned = [i for i, owner in here if owner == exchange.shard]
        self.bounds = [
            [m.within(*shard_bounds(len(m.parameter), exchange.shards, s)) for m in matrices]
            for s in range(exchange.shards)
        ]
        self.waits: Any = None
        self.buffer = torch.empty(0)

    def collect(self, update: Callable[[Matrix], Tensor]) -> None:
        """Send the rows that are here to the owners in this copy. Other copies send theirs."""
        sent = [update(self.matrices[i]) for i in self.orders[self.exchange.copy]]
        like = local(self.matrices[0].parameter)
        if self.exchange.shards > 1:
            self._trade(sent, like, self._rows_here(), self._rows_owned())
        elif sent:
            self.buffer = torch.stack(sent).view(len(sent), *self._shape)
        else:
            self.buffer = like.new_empty(0, *self._shape)

    def give_back(self, work: Callable[[Tensor], Tensor]) -> None:
        """Orthogonalise what this process owns, and send each process its rows."""
        self._wait()
        wholes = self._wholes() if self.exchange.shards > 1 else self.buffer
        done = work(wholes) if len(wholes) else wholes
        if self.exchange.shards == 1:
            self.buffer = done
            self._spread()
            return
        sent = [
            done[number, slice(*self.bounds[shard][i])]
            for shard in range(self.exchange.shards)
            for number, i in enumerate(self.owned)
        ]
        self._trade(sent, done, self._rows_owned(), self._rows_here())

    def directions(self) -> list[Tensor]:
        """The rows of each matrix that belong here, orthogonalised."""
        self._wait()
        if self.exchange.shards > 1:
            self._spread()
            self._wait()
        if self.exchange.processes == 1:
            done, self.buffer = list(self.buffer.unbind()), torch.empty(0)
            return done
        rows = [high - low for low, high in self.bounds[self.exchange.shard]]
        found = [self.buffer] * len(rows)
        parts = self.buffer.view(self.exchange.copies, -1)
        for indices, part in zip(self.orders, parts, strict=True):
            sizes = [rows[i] * self._shape[1] for i in indices]
            for i, piece in zip(indices, torch.split(part[: sum(sizes)], sizes), strict=True):
                found[i] = piece.view(rows[i], self._shape[1])
        self.buffer = torch.empty(0)  # its memory goes with what is returned
        return found

    @property
    def _shape(self) -> tuple[int, int]:
        return self.matrices[0].rows, self.matrices[0].cols

    def _rows_here(self) -> list[int]:
        """Rows that are here of what each process of this copy owns."""
        counts = [0] * self.exchange.shards
        for i, owner in zip(self.orders[self.exchange.copy], self.owners, strict=True):
            low, high = self.bounds[self.exchange.shard][i]
            counts[owner] += high - low
        return counts

    def _rows_owned(self) -> list[int]:
        """Rows that each process of this copy has of what is owned here."""
        return [sum(each[i][1] - each[i][0] for i in self.owned) for each in self.bounds]

    def _trade(
        self, sent: Sequence[Tensor], like: Tensor, give: Sequence[int], take: Sequence[int]
    ) -> None:
        """Rows to each process of this copy, and rows from each."""
        cols = self._shape[1]
        rows = [each.reshape(-1, cols) for each in sent] or [like.new_empty(0, cols)]
        out = torch.cat(rows).to(self.dtype)
        self.buffer = out.new_empty(sum(take), cols)
        group = self.exchange.shard_group
        splits = list(take), list(give)
        self.waits = (
            dist.all_to_all_single(self.buffer, out, *splits, group=group, async_op=True),
            out,  # kept until it has been sent
        )

    def _wholes(self) -> Tensor:
        """What came from the processes of this copy, put together."""
        stack = self.buffer.new_empty(len(self.owned), *self._shape)
        for bounds, part in zip(
            self.bounds, torch.split(self.buffer, self._rows_owned()), strict=True
        ):
            low = 0
            for number, i in enumerate(self.owned):
                first, end = bounds[i]
                stack[number, first:end] = part[low : low + end - first]
                low += end - first
        return stack

    def _spread(self) -> None:
        """Let the other copies have what this one has computed."""
        if self.exchange.copies == 1:
            return
        rows = [high - low for low, high in self.bounds[self.exchange.shard]]
        most = max(sum(rows[i] for i in each) for each in self.orders) * self._shape[1]
        own = self.buffer.to(self.dtype).flatten()
        padded = own.new_zeros(most)
        padded[: len(own)] = own
        self.buffer = own.new_empty(self.exchange.copies * most)
        group = self.exchange.group
        work = dist.all_gather_single(self.buffer, padded, group=group, async_op=True)
        self.waits = work, padded

    def _wait(self) -> None:
        if self.waits is not None:
            self.waits[0].wait()
            self.waits = None
