"""What it costs to ask for any step's batch at OpenWebText's size (8.42 million blocks).

Usage: python benchmarks/order.py
"""

from __future__ import annotations

import statistics
import time
import tracemalloc

import numpy as np

import yuriiformer as yf


def main() -> None:
    tracemalloc.start()
    start = time.perf_counter()
    order = yf.BatchOrder(n_tokens=8_620_000_000, context=1024, sequences=480, seed=0)
    order.starts(0)
    first = time.perf_counter() - start
    steps = np.random.default_rng(0).integers(0, 60_000, 200)
    for step in steps[:20]:
        order.starts(int(step))
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    times = []
    for step in steps:
        start = time.perf_counter()
        order.starts(int(step))
        times.append(1e3 * (time.perf_counter() - start))
    print(f"{order.blocks:,} blocks, {order.steps_per_epoch:,.1f} steps per epoch")
    print(f"  made, and the first step: {first * 1e3:.1f} ms; peak memory {peak:.2f} MiB")
    print(f"  a random step: median {statistics.median(times):.2f} ms, worst {max(times):.2f} ms")


if __name__ == "__main__":
    main()
