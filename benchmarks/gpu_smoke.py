"""Does everything that a CPU cannot test work on this GPU? About a quarter of an hour.

The project is written and tested on CPUs. Run this first where there is a GPU: it trains every
rule for a few steps in bfloat16 with compiled blocks, compares with plain float32, stops and goes
on with a run, and trains on all GPUs at once: with the whole model on each, and divided among them
(FSDP2 over NCCL). It says PASS or FAIL of each; a check that fails does not stop the others. Exit
code 0 if all pass, else 1.

Usage: python benchmarks/gpu_smoke.py --json smoke.json
Without a GPU: python benchmarks/gpu_smoke.py --device cpu --quick
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

import yuriiformer as yf
from yuriiformer.config import Output, Recipe, TrainConfig, Validation
from yuriiformer.data.prepare import Settings, prepare
from yuriiformer.data.sources import Tales
from yuriiformer.model.device import choose_device
from yuriiformer.runs.metrics import read_metrics
from yuriiformer.training.estimate import MemoryEstimate
from yuriiformer.training.optimizer import Optimizer
from yuriiformer.training.presets import PRESETS, preset
from yuriiformer.training.processes import Processes
from yuriiformer.training.resume import stored_config
from yuriiformer.training.session import train
from yuriiformer.training.step import MicroBatch, train_step

Figures = dict[str, Any]

RULE = "nesterov-lie-trotter"  # of the checks that need only one
STEPS, WARM = 10, 3  # of each rule, and how many of them are not timed
PRECISION = 2e-2  # nats: bfloat16 and compiled, against float32 and not
RESUMED = 1e-3  # relative, on a GPU; on a CPU the bits must be equal
TEAM = {"bfloat16": 1e-2, "float32": 1e-5}  # relative: several processes against one


class CheckError(Exception):
    """A check ran, and its figures are not what they should be."""


def expect(condition: bool, words: str) -> None:
    if not condition:
        raise CheckError(words)


@dataclass(frozen=True)
class Smoke:
    """What all checks need to know."""

    device: torch.device
    size: str
    micro_batch: int
    compile: bool
    quick: bool
    folder: Path

    @property
    def precision(self) -> str:
        return "bfloat16" if self.device.type == "cuda" else "float32"

    @property
    def data(self) -> Path:
        return self.folder / "tales"

    def model(self, rule: str) -> yf.ModelConfig:
        config = preset(self.size, rule).model
        if self.quick:
            return replace(config, vocab_size=256, valid_vocab=None, context=32)
        return config

    def steps(self, rule: str, dtype: torch.dtype, *, compiled: bool) -> Callable[[int], float]:
        """Training step number n on one batch of random tokens, again and again; its loss."""
        config = self.model(rule)
        model = yf.YuriiFormer(config).to(self.device)
        if compiled:
            model.compile_blocks()
        recipe = replace(preset(self.size, rule).recipe, steps=STEPS, warmup=1)
        optimizer, team = Optimizer(model, recipe, dtype), Processes(0, 1, self.device)
        generator = torch.Generator().manual_seed(0)
        shape = (self.micro_batch, config.context + 1)
        tokens = torch.randint(config.real_vocab, shape, generator=generator).to(self.device)
        micro = MicroBatch((tokens[:, :-1], tokens[:, 1:]), 1.0)

        def step(number: int) -> float:
            return train_step(model, [micro], optimizer, team, dtype, number).loss

        return step

    def finish(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def learns(smoke: Smoke, rule: str) -> Figures:
    """Losses are finite and fall when one batch is repeated; how fast, with how much memory."""
    on_gpu = smoke.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(smoke.device)
    dtype = getattr(torch, smoke.precision)
    step = smoke.steps(rule, dtype, compiled=smoke.compile)
    losses = [step(number) for number in range(WARM)]
    smoke.finish()
    start = time.perf_counter()
    losses += [step(number) for number in range(WARM, STEPS)]
    smoke.finish()
    seconds = time.perf_counter() - start
    expect(all(map(math.isfinite, losses)), f"losses {losses} are not finite")
    expect(losses[-1] < losses[0], f"the loss does not fall on a repeated batch: {losses}")
    tokens = smoke.micro_batch * smoke.model(rule).context * (STEPS - WARM)
    return {
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "tokens_per_second": tokens / seconds,
        "peak_gib": torch.cuda.max_memory_allocated(smoke.device) / 2**30 if on_gpu else None,
    }


def agrees(smoke: Smoke, rule: str) -> Figures:
    """bfloat16 and compiled gives the losses of float32 without: at the start, and a step later."""
    plain = smoke.steps(rule, torch.float32, compiled=False)
    exact = [plain(0), plain(1)]
    del plain
    other = smoke.steps(rule, torch.bfloat16, compiled=smoke.compile)
    found = [other(0), other(1)]
    difference = max(abs(a - b) for a, b in zip(exact, found, strict=True))
    expect(difference <= PRECISION, f"{found} is not {exact} within {PRECISION} nats")
    return {"float32": exact, "bfloat16": found, "difference": difference}


class StopAt:
    """A listener that asks its own process to stop, as a cluster would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def record(self, record: dict[str, Any]) -> None:
        if record["step"] == self.step:
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self) -> None: ...


def run_config(smoke: Smoke) -> TrainConfig:
    base = preset("tales-tiny", RULE)
    machine = replace(
        base.machine,
        device=str(smoke.device),
        precision=smoke.precision,
        compile="on" if smoke.compile else "off",
        deterministic=True,
    )
    recipe: Recipe = replace(base.recipe, steps=12)
    output = Output(save_every=5, tensorboard=False)
    return replace(
        base, machine=machine, recipe=recipe, output=output, validation=Validation(4, 16)
    )


def resumes(smoke: Smoke) -> Figures:
    """A run that was stopped and gone on with is the run that was not."""
    config, whole, parted = run_config(smoke), smoke.folder / "whole", smoke.folder / "parted"
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before cuBLAS is first used
    try:
        train(config, smoke.data, whole)
        stopped = train(config, smoke.data, parted, listener=lambda *_: StopAt(6))
        expect(stopped.outcome == "stopped", "SIGTERM did not stop the run")
        finished = train(config, smoke.data, parted, resume=True)
    finally:  # switches that a run sets for its process
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
    expect(finished.outcome == "finished", "the run did not finish")
    difference = largest_difference(whole, parted)
    states = [yf.load_model(run / "checkpoints" / "final").state_dict() for run in (whole, parted)]
    same = all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    bound = RESUMED if smoke.device.type == "cuda" else 0.0
    expect(difference <= bound, f"losses differ by {difference:.2e}, more than {bound:.0e}")
    expect(same or bound > 0, "the weights differ")
    at = stopped.state.step
    return {"stopped_at": at, "difference": difference, "weights_equal_to_the_bit": same}


def largest_difference(one: Path, two: Path) -> float:
    """Of the losses of two runs, step by step, relative to the first."""
    records = [read_metrics(run / "metrics.jsonl") for run in (one, two)]
    steps = [[record["step"] for record in each] for each in records]
    expect(steps[0] == steps[1], f"the runs have records of steps {steps[0]} and {steps[1]}")
    pairs = [
        (a[name], b[name])
        for a, b in zip(*records, strict=True)
        for name in ("loss", "val_loss")
        if name in a
    ]
    return max(abs(a - b) / abs(a) for a, b in pairs)


def command_line(
    smoke: Smoke, start: list[str], out: Path, sequences: int, *more: str, steps: int = 8
) -> None:
    flags = {
        "--data": smoke.data,
        "--out": out,
        "--preset": "tales-tiny",
        "--rule": RULE,
        "--steps": steps,
        "--sequences": sequences,
        "--eval-every": 4,
        "--eval-sequences": 16,
        "--device": smoke.device.type,
        "--precision": smoke.precision,
        "--compile": "on" if smoke.compile else "off",
    }
    words = [str(word) for pair in flags.items() for word in pair]
    train = ["-m", "yuriiformer", "train", *words, "--no-tensorboard", *more]
    command = [sys.executable, *start, *train]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    expect(done.returncode == 0, f"{' '.join(command)} failed: {done.stderr[-1500:]}")


def teams_up(smoke: Smoke) -> Figures:
    """torchrun on all GPUs (two processes on a CPU) gives the losses of one process."""
    processes = processes_here(smoke)
    sequences = max(16, 2 * processes)
    one, many = smoke.folder / "one", smoke.folder / "many"
    command_line(smoke, [], one, sequences)
    command_line(smoke, torchrun(processes), many, sequences, "--parallel", "ddp")
    difference, bound = largest_difference(one, many), TEAM[smoke.precision]
    expect(difference <= bound, f"losses differ by {difference:.2e}, more than {bound:.0e}")
    return {"processes": processes, "difference": difference, "bound": bound}


def processes_here(smoke: Smoke) -> int:
    return torch.cuda.device_count() if smoke.device.type == "cuda" else 2


def torchrun(processes: int) -> list[str]:
    return ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]


def shares(smoke: Smoke, *more: str) -> Figures:
    """A model divided among all GPUs gives the losses of one process; its checkpoint is resumed by
    one process, which ends with the same loss."""
    processes = processes_here(smoke)
    expect(processes > 1, "needs two GPUs or more")
    sequences, name = max(16, 2 * processes), "-".join(["shared", *more])
    out, one = smoke.folder / name, smoke.folder / f"{name}-one"
    same = [flag for flag in more if flag == "--recompute"]
    command_line(smoke, [], one, sequences, *same)
    command_line(smoke, torchrun(processes), out, sequences, "--parallel", "fsdp", *more)
    difference, bound = largest_difference(one, out), TEAM[smoke.precision]
    expect(difference <= bound, f"losses differ by {difference:.2e}, more than {bound:.0e}")
    final = out / "checkpoints" / "final"
    expect((final / "model.index.json").is_file(), "the checkpoint is not divided")
    weights = yf.load_model(final).state_dict()
    apart = max(
        float((weights[name] - tensor).abs().max())
        for name, tensor in yf.load_model(one / "checkpoints" / "final").state_dict().items()
    )
    grows = ("--resume", "--allow-changed", "steps", *same)
    command_line(smoke, [], out, sequences, *grows, "--parallel", "ddp", steps=10)
    command_line(smoke, [], one, sequences, *grows, steps=10)
    resumed = largest_difference(one, out)
    expect(resumed <= bound, f"resumed by one process, losses differ by {resumed:.2e}")
    return {"processes": processes, "difference": difference, "weights_apart": apart}


def overlaps(smoke: Smoke) -> Figures:
    """Tokens per second of all GPUs, with the whole model on each and divided, beside as many times
    those of one: near 1, communication is hidden behind the work. And the most memory in use on the
    first GPU, beside the planner's. Figures to look at, not a check."""
    processes = processes_here(smoke)
    expect(processes > 1, "needs two GPUs or more")
    found: Figures = {}
    for name, count in (("one", 1), ("ddp", processes), ("fsdp", processes)):
        out = smoke.folder / f"speed-{name}"
        flags = ["--preset", smoke.size, "--micro-batch", "1"]
        flags += [] if count == 1 else ["--parallel", name]
        start = torchrun(count) if count > 1 else []
        with Used(smoke.device) as used:
            command_line(smoke, start, out, 2 * count, *flags, steps=STEPS)
        rates = [r["timing"]["tokens_per_second"] for r in read_metrics(out / "metrics.jsonl")[1:]]
        found[f"{name}_tokens_per_second"] = sorted(rates)[len(rates) // 2]
        found[f"{name}_used_gib"] = used.most
        planned = stored_config(out)  # with the data's vocabulary
        shards, dtype = count if name == "fsdp" else 1, getattr(torch, smoke.precision)
        estimate = MemoryEstimate(planned, dtype, count, shards)
        found[f"{name}_planned_gib"] = estimate.at(1).peak / 2**30
    for name in ("ddp", "fsdp"):
        rate = found[f"{name}_tokens_per_second"] / processes
        found[f"{name}_of_one"] = rate / found["one_tokens_per_second"]
    return found


class Used(threading.Thread):
    """While it lasts, looks at the memory in use on a GPU, whoever uses it. ``most`` is the largest
    value in GiB (None on a CPU)."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(daemon=True)
        self.device, self.most, self.done = device, None, threading.Event()

    def run(self) -> None:
        while self.device.type == "cuda" and not self.done.wait(0.05):
            free, whole = torch.cuda.mem_get_info(self.device)
            self.most = max(self.most or 0.0, (whole - free) / 2**30)

    def __enter__(self) -> Used:
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.done.set()
        self.join()


def attempt(name: str, check: Callable[[], Figures]) -> dict[str, Any]:
    """Run a check, whatever happens, and say how it went."""
    start, figures, error, trace = time.perf_counter(), {}, "", ""
    try:
        figures = check()
    except Exception as problem:
        error = str(problem) if isinstance(problem, CheckError) else repr(problem)
        trace = traceback.format_exc()
    seconds = time.perf_counter() - start
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    shown = error[:300] or ", ".join(f"{key} {brief(value)}" for key, value in figures.items())
    print(f"{'FAIL' if error else 'PASS'}  {name:<32} {seconds:6.1f} s  {shown}", flush=True)
    return {
        "name": name,
        "passed": not error,
        "seconds": seconds,
        **figures,
        "error": error,
        "traceback": trace,
    }


def brief(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(brief, value)) + "]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def sharded_checks(smoke: Smoke) -> list[dict[str, Any]]:
    """Where there are two devices or more."""
    if processes_here(smoke) < 2:
        print("SKIP  shared model: needs two GPUs or more")
        return []
    kinds = {
        "shared model": (),
        "shared, recomputed": ("--recompute",),
        "shared, saved beside": ("--save-beside", "--save-every", "2"),
    }
    if processes_here(smoke) % 2 == 0 and processes_here(smoke) > 2:
        kinds["shared by halves"] = ("--shard-group", str(processes_here(smoke) // 2))
    found = [
        attempt(name, lambda flags=flags: shares(smoke, *flags)) for name, flags in kinds.items()
    ]
    return [*found, attempt("DDP and shared, speed", lambda: overlaps(smoke))]


def all_checks(smoke: Smoke, rules: list[str]) -> list[dict[str, Any]]:
    def make_data() -> Figures:
        meta = prepare(Tales(200, seed=0), smoke.data, Settings("bytes"), workers=1)
        return {"tokens": meta["splits"]["train"]["tokens"]}

    found = [
        attempt("data", make_data),
        attempt("stop and resume", lambda: resumes(smoke)),
        attempt("several processes", lambda: teams_up(smoke)),
        *sharded_checks(smoke),
    ]
    for rule in rules:
        torch._dynamo.reset()  # a run compiles one rule; so many would reach a limit
        found.append(attempt(f"learns: {rule}", lambda rule=rule: learns(smoke, rule)))
        found.append(attempt(f"precision: {rule}", lambda rule=rule: agrees(smoke, rule)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--size", default="tinystories-small", choices=PRESETS, help="of models")
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences; less, if too large")
    parser.add_argument("--rules", nargs="+", default=list(yf.rules), help="all, if not given")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="compiled blocks; not given: on a GPU",
    )
    parser.add_argument("--quick", action="store_true", help="tiny models")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    device = choose_device(options.device)
    compiled = device.type == "cuda" if options.compile is None else options.compile
    size = "tales-tiny" if options.quick else options.size
    if options.quick:
        torch.set_num_threads(1)  # so small, threads only wait for each other
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
    print(f"{name}, torch {torch.__version__}, blocks {'' if compiled else 'not '}compiled")
    with tempfile.TemporaryDirectory() as folder:
        smoke = Smoke(device, size, options.micro_batch, compiled, options.quick, Path(folder))
        checks = all_checks(smoke, options.rules)
    passed = all(check["passed"] for check in checks)
    bad = sum(not check["passed"] for check in checks)
    print(f"PASS: all {len(checks)} checks" if passed else f"FAIL: {bad} of {len(checks)} checks")
    if options.json:
        found = {
            "device": name,
            "torch": torch.__version__,
            "size": size,
            "compiled": compiled,
            "passed": passed,
            "checks": checks,
        }
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
