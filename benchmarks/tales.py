"""How fast stories are told, on one core. Usage: python benchmarks/tales.py"""

from __future__ import annotations

import time

from yuriiformer.data.tales.grammar import story

STORIES = 20_000


def main() -> None:
    story(0, 0)  # compiles the grammar
    start = time.perf_counter()
    size = sum(len(story(0, index)) for index in range(STORIES))
    seconds = time.perf_counter() - start
    print(f"{STORIES:,} stories, {size / STORIES:.0f} bytes each: {size / seconds / 1e6:.1f} MB/s")


if __name__ == "__main__":
    main()
