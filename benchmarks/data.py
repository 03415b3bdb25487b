"""Data: the order of batches, the stories of tales, and `yurii prepare`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

import yuriiformer as yf
from benchmarks.measuring import DATA, Rounds, Row, subject, timed
from benchmarks.waits import YURII
from yuriiformer.data.tales.grammar import story

# A plain loop in one process, as nanoGPT prepares data.
PLAIN = """
import json, sys
import numpy as np
import yuriiformer as yf
encoding = yf.gpt2_tokenizer()
with open(sys.argv[2], "wb") as out:
    for line in open(sys.argv[1], encoding="utf-8"):
        ids = encoding.encode_ordinary(json.loads(line)["text"])
        ids.append(encoding.eot_token)
        np.array(ids, dtype=np.uint16).tofile(out)
"""
WEB = DATA / "openwebtext" / "openwebtext-1000.jsonl"
MEGABYTES, LARGE_MEGABYTES = 60, 200


@subject(
    "order",
    Row("Any training step's batch among 8.4 million blocks", "–", ("ms",), unit="ms"),
    Row("Memory of the order", "–", ("MiB",), unit="MiB"),
)
def order(*, quick: bool) -> Rounds:
    """At OpenWebText's size."""
    yf.BatchOrder(n_tokens=10_000, context=8, sequences=4, seed=0).starts(0)  # loads its modules
    tracemalloc.start()
    made = yf.BatchOrder(n_tokens=8_620_000_000, context=1024, sequences=480, seed=0)
    steps = [int(step) for step in np.random.default_rng(0).integers(0, 60_000, 200)]
    for step in steps[:20]:
        made.starts(step)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    chosen = steps[:5] if quick else steps
    return {"ms": [1e3 * timed(lambda step=step: made.starts(step)) for step in chosen]} | {
        "MiB": [peak]
    }


@subject("tales", Row("Stories told on one core", "–", ("MB/s",), unit="MB/s"))
def tales(*, quick: bool) -> Rounds:
    story(0, 0)  # compiles the grammar
    count, rounds = (200, 2) if quick else (10_000, 5)
    speeds = []
    for number in range(rounds):
        start = time.perf_counter()
        size = sum(len(story(number, index)) for index in range(count))
        speeds.append(size / (time.perf_counter() - start) / 1e6)
    return {"MB/s": speeds}


def repeated(folder: Path, megabytes: int) -> Path:
    """Real text where it is at hand, else tales, repeated up to this size."""
    if WEB.exists():
        data = WEB.read_bytes()
    else:
        lines = (json.dumps({"text": story(0, index)}) + "\n" for index in range(5000))
        data = "".join(lines).encode()
    path = folder / f"{megabytes}.jsonl"
    with path.open("wb") as file:
        for _ in range(-(-megabytes * 10**6 // len(data))):
            file.write(data)
    return path


def tree_memory(pid: int) -> int:
    """Kilobytes in memory of a process and all below it."""
    total, waiting = 0, [pid]
    while waiting:
        each = waiting.pop()
        try:
            status = Path(f"/proc/{each}/status").read_text()
            total += int(status.split("VmRSS:")[1].split()[0])
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, IndexError):
            continue
    return total


def run(command: list[str]) -> tuple[float, float]:
    """Seconds, and peak memory in MiB of the whole process tree."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, tree_memory(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0, " ".join(command)
    return time.perf_counter() - start, peak / 1024


@subject(
    "prepare",
    Row(f"Speed of `yurii prepare`, 2 workers, {MEGABYTES} MB", "a plain loop", ("plain", "ours")),
    Row(
        f"Memory of preparing {LARGE_MEGABYTES} MB",
        f"of {MEGABYTES} MB",
        ("MiB large", "MiB small"),
    ),
)
def prepare(*, quick: bool) -> Rounds:
    small, large, rounds = (2, 6, 1) if quick else (MEGABYTES, LARGE_MEGABYTES, 5)
    found: Rounds = {"plain": [], "ours": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def ours(source: Path, out: str) -> list[str]:
            flags = ["--out", str(folder / out), "--workers", "2"]
            return [YURII, "prepare", "text", str(source), *flags]

        source = repeated(folder, small)
        peak = 0.0
        for turn in range(rounds):
            plain = [sys.executable, "-c", PLAIN, str(source), str(folder / "plain.bin")]
            found["plain"].append(run(plain)[0])
            seconds, peak = run(ours(source, f"out{turn}"))
            found["ours"].append(seconds)
        meta = json.loads((folder / "out0" / "meta.json").read_text())
        tokens = sum(split["tokens"] for split in meta["splits"].values())
        assert tokens == (folder / "plain.bin").stat().st_size // 2
        _, large_peak = run(ours(repeated(folder, large), "large"))
    return found | {"MiB small": [peak], "MiB large": [large_peak]}
