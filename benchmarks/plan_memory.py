"""Memory of training steps: as `yurii plan` predicts it, and as the process takes it.

Each size trains a few real steps on random tokens in a process of its own, which reports by how
much its peak resident memory rose. Usage: python benchmarks/plan_memory.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

SIZES = {  # layers, heads, width, vocabulary, context, micro-batch
    "small": (6, 4, 128, 4096, 256, 8),
    "middle": (6, 6, 384, 8192, 256, 8),
    "large": (8, 8, 512, 16384, 256, 6),
}


def configuration(size: str, rule: str, *, recompute: bool):
    from yuriiformer.config import Machine, Recipe, TrainConfig
    from yuriiformer.model.config import ModelConfig

    layers, heads, width, vocabulary, context, micro = SIZES[size]
    model = ModelConfig(rule, layers, heads, width, vocabulary, context=context)
    machine = Machine(micro_batch=micro, recompute=recompute, precision="float32")
    return TrainConfig(model, Recipe(steps=10, sequences=2 * micro), machine=machine)


def resident(field: str) -> int:
    """Bytes that this process has (VmRSS) or had at most (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise SystemExit("no /proc/self/status: this needs Linux")


def measure(size: str, rule: str, *, recompute: bool) -> dict[str, float]:
    """Real steps through the package's own step; run in a fresh process."""
    import torch

    from yuriiformer.training.optimizer import Optimizer
    from yuriiformer.training.processes import Processes
    from yuriiformer.training.step import MicroBatch, build_model, train_step

    def steps(config, count: int) -> None:
        team = Processes(0, 1, torch.device("cpu"))
        model = build_model(config, seed=0)
        optimizer = Optimizer(model, config.recipe, torch.float32)
        for step in range(count):
            micro, shape = [], (config.machine.micro_batch, config.model.context)
            for _ in range(2):
                tokens = torch.randint(config.model.vocab_size, shape)
                micro.append(MicroBatch((tokens, tokens), 0.5))
            train_step(model, micro, optimizer, team, torch.float32, step)

    config = configuration(size, rule, recompute=recompute)
    small = replace(config.model, n_layer=2, n_head=2, d_model=64, vocab_size=128, context=64)
    steps(replace(config, model=small), 1)  # whatever is loaded on first use
    before = resident("VmRSS")
    steps(config, 2)
    return {"bytes": resident("VmHWM") - before}


def fresh(size: str, rule: str, *, recompute: bool) -> float:
    """The measurement in a process of its own, whose allocator gives back what is freed."""
    environment = {
        **os.environ,
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
    }
    words = [sys.executable, __file__, "--measure", size, "--rule", rule]
    words += ["--recompute"] if recompute else []
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    return float(json.loads(done.stdout)["bytes"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rule", default="nesterov-lie-trotter")
    parser.add_argument("--measure", choices=SIZES)
    parser.add_argument("--recompute", action="store_true")
    o = parser.parse_args()
    if o.measure:
        print(json.dumps(measure(o.measure, o.rule, recompute=o.recompute)))
        return
    import torch

    from yuriiformer.training.memory import Estimate

    print(f"{o.rule}, float32, peak of a training step in MiB")
    print(f"{'size':<8} {'recompute':<9} {'predicted':>9} {'measured':>9} {'ratio':>6}")
    for size in SIZES:
        for recompute in (False, True):
            config = configuration(size, o.rule, recompute=recompute)
            micro = config.machine.micro_batch
            predicted = Estimate(config, torch.float32).at(micro).peak / 2**20
            measured = fresh(size, o.rule, recompute=recompute) / 2**20
            yes = "yes" if recompute else "no"
            print(
                f"{size:<8} {yes:<9} {predicted:>9.0f} {measured:>9.0f} "
                f"{predicted / measured:>6.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
