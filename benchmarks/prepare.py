"""`yurii prepare` against a plain single-process tiktoken loop, as nanoGPT prepares data; and its
peak memory as the input grows.

The text is a sample repeated: any .jsonl file with a "text" field, or generated tales if none is
named. Usage: python benchmarks/prepare.py [SAMPLE.jsonl]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from yuriiformer.data.tales.grammar import story

PLAIN = """
import json, sys
import numpy as np
import yuriiformer as yf
encoding = yf.gpt2_tokenizer()
count = 0
with open(sys.argv[2], "wb") as out:
    for line in open(sys.argv[1], encoding="utf-8"):
        ids = encoding.encode_ordinary(json.loads(line)["text"])
        ids.append(encoding.eot_token)
        np.array(ids, dtype=np.uint16).tofile(out)
        count += len(ids)
print(count)
"""


def repeated(sample: Path, megabytes: int, folder: Path) -> Path:
    path = folder / f"{megabytes}.jsonl"
    data = sample.read_bytes()
    with path.open("wb") as file:
        for _ in range(-(-megabytes * 10**6 // len(data))):
            file.write(data)
    return path


def resident(pid: int) -> int:
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
        peak = max(peak, resident(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"failed: {' '.join(command)}")
    return time.perf_counter() - start, peak / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sample", type=Path, nargs="?")
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    o = parser.parse_args()
    yurii = str(Path(sys.executable).with_name("yurii"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def ours(source: Path, out: str) -> list[str]:
            where = ["--out", str(folder / out), "--workers", str(o.workers)]
            return [yurii, "prepare", "text", str(source), *where]

        sample = o.sample or folder / "tales.jsonl"
        if o.sample is None:
            lines = (json.dumps({"text": story(0, i)}) + "\n" for i in range(5000))
            sample.write_text("".join(lines))
        source = repeated(sample, o.megabytes, folder)
        ratios = []
        for turn in range(o.rounds):
            plain, _ = run([sys.executable, "-c", PLAIN, str(source), str(folder / "plain.bin")])
            fast, _ = run(ours(source, f"out{turn}"))
            ratios.append(plain / fast)
            tokens = (folder / "plain.bin").stat().st_size // 2
            print(
                f"  plain {tokens / plain:12,.0f} tokens/s   ours {tokens / fast:12,.0f} tokens/s"
                f"   ratio {plain / fast:.2f}"
            )
        print(
            f"{o.megabytes} MB, {o.workers} workers: best ratio {max(ratios):.2f}, "
            f"median {np.median(ratios):.2f}"
        )
        meta = json.loads((folder / "out0" / "meta.json").read_text())
        assert sum(s["tokens"] for s in meta["splits"].values()) == tokens
        for megabytes in (50, 200):
            _, peak = run(ours(repeated(sample, megabytes, folder), f"memory{megabytes}"))
            print(f"peak memory for {megabytes:4d} MB of input: {peak:6.0f} MiB in all processes")


if __name__ == "__main__":
    main()
