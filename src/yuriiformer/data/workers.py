"""A function over chunks in several processes; the results come in the chunks' order."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Any, TypeVar

from yuriiformer.data.records import Chunk
from yuriiformer.errors import DataError

Found = TypeVar("Found")


def map_chunks(
    work: Callable[[Chunk], Found],
    chunks: Iterator[Chunk],
    workers: int,
    start: Callable[..., None],
    arguments: tuple[Any, ...],
) -> Iterator[tuple[Chunk, Found]]:
    """Chunks and their results; only a few are in memory at a time. Each process begins with
    ``start(*arguments)``."""
    pool = ProcessPoolExecutor(
        workers, get_context("spawn"), initializer=_begin, initargs=(start, arguments)
    )
    waiting: deque[tuple[Chunk, Future[Found]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(work, chunk)))
            if len(waiting) > 2 * workers + 2:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()
    except BrokenProcessPool:
        raise DataError(
            "a worker process died (out of memory?): give the same command again, with fewer "
            "--workers, and it resumes"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(start: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """The parent handles interrupts; a worker ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def leave_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    start(*arguments)
