"""Peak memory of the loss at GPT-2's vocabulary, against plain logits.

Each way runs forward and backward in a process of its own, and reports by how much its peak
resident memory rose. Usage: python benchmarks/loss_memory.py
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time


def measure(way: str, rows: int, width: int, vocab: int) -> None:
    import torch
    import torch.nn.functional as F

    from yuriiformer.model.loss import mean_cross_entropy

    def plain(hidden, weight, targets):
        return F.cross_entropy(F.linear(hidden, weight), targets)

    loss = {"plain": plain, "ours": mean_cross_entropy}[way]

    def run(rows: int, vocab: int) -> tuple[float, float]:
        torch.manual_seed(0)
        hidden = torch.randn(rows, width, requires_grad=True)
        weight = (0.02 * torch.randn(vocab, width)).requires_grad_(True)
        targets = torch.randint(vocab, (rows,))
        start = time.perf_counter()
        value = loss(hidden, weight, targets)
        value.backward()
        return value.item(), time.perf_counter() - start

    run(8, 64)  # whatever is loaded on first use
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value, seconds = run(rows, vocab)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    inputs = 4 * (2 * rows * width + 2 * vocab * width) / 2**20  # tensors and their gradients
    print((after - before) / 1024 - inputs, seconds, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=50304)
    parser.add_argument("--way")
    o = parser.parse_args()
    if o.way:
        measure(o.way, o.rows, o.width, o.vocab)
        return
    print(f"loss forward and backward, {o.rows} rows, d={o.width}, vocabulary {o.vocab}, float32")
    peaks = {}
    for way in ("plain", "ours"):
        sizes = ["--rows", str(o.rows), "--width", str(o.width), "--vocab", str(o.vocab)]
        command = [sys.executable, __file__, "--way", way, *sizes]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        peaks[way], seconds, value = map(float, out)
        print(f"  {way:<6} +{peaks[way]:7.0f} MiB   {seconds:6.2f} s   loss {value:.6f}")
    print(f"  memory ours / plain: {peaks['ours'] / peaks['plain']:.3f}")


if __name__ == "__main__":
    main()
