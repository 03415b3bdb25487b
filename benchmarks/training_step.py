"""A training step (zero_grad, loss, backward; no optimiser): what momentum costs, and how it
stands to Hugging Face's GPT-2, to nanoGPT, and to matrix multiplication alone.

All ways take turns in one process, round by round; read the ratios. `matmuls alone` are the very
products of our gradient-descent step, by shape and layout, with nothing between them: what the
step would take if all else were free. FlopCounterMode is not used for them because it knows
neither `addmm_` nor a CPU's attention. Usage: python benchmarks/training_step.py
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import yuriiformer as yf
from yuriiformer.costs.op_counter import Watcher

Loss = Callable[[Tensor, Tensor], Tensor]
Pairs = list[tuple[str, str]]
GD, NESTEROV, HF, HF_EXACT, NANO = "gd", "nesterov", "gpt2 hf", "gpt2 hf exact gelu", "nanogpt"
COMPILED = " compiled"
MATMULS, ATTENTION = "matmuls alone", "attention alone"


def saved_bytes(model: nn.Module, tokens: Tensor, targets: Tensor) -> int:
    """What a forward pass leaves for the backward pass."""
    with Watcher() as watcher:
        loss = model(tokens, targets)
        return watcher.alive if loss is not None else 0


@dataclass(frozen=True)
class Size:
    """Of a model and its batch."""

    vocab: int
    layers: int = 6
    heads: int = 6
    width: int = 384
    context: int = 256
    batch: int = 8

    def tokens(self) -> tuple[Tensor, Tensor]:
        shape = (self.batch, self.context)
        return torch.randint(self.vocab, shape), torch.randint(self.vocab, shape)

    def __str__(self) -> str:
        shape = f"{self.layers} layers, d={self.width}, {self.batch}x{self.context} tokens"
        return f"{shape}, vocabulary {self.vocab:,}"


def make(way: str, size: Size, nanogpt: Path | None) -> tuple[nn.Module, Loss]:
    """A model, and its loss of (tokens, targets)."""
    torch.manual_seed(0)
    if way in (HF, HF_EXACT):
        model = hugging_face(size, "gelu_new" if way == HF else "gelu")
        return model, lambda tokens, _: model(input_ids=tokens, labels=tokens).loss
    if way == NANO:
        assert nanogpt is not None
        model = nano_gpt(size, nanogpt)
        return model, lambda tokens, targets: model(tokens, targets)[1]
    config = yf.ModelConfig(
        f"{way.removesuffix(COMPILED)}-lie-trotter",
        n_layer=size.layers,
        n_head=size.heads,
        d_model=size.width,
        vocab_size=size.vocab,
        context=size.context,
    )
    model = yf.YuriiFormer(config)
    if way.endswith(COMPILED):
        model.compile_blocks()
    return model, model


def hugging_face(size: Size, gelu: str) -> nn.Module:
    """As the library gives it (`gelu_new` is GPT-2's, in several operations), and with the GELU in
    one operation that ours has. Biases cannot be left out."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.GPT2Config(
        vocab_size=size.vocab,
        n_positions=size.context,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        activation_function=gelu,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    return transformers.GPT2LMHeadModel(config).train()


def nano_gpt(size: Size, folder: Path) -> nn.Module:
    """nanoGPT's own model.py, which computes what our gd-lie-trotter computes."""
    sys.path.insert(0, str(folder))
    module = importlib.import_module("model")
    config = module.GPTConfig(
        block_size=size.context,
        vocab_size=size.vocab,
        n_layer=size.layers,
        n_head=size.heads,
        n_embd=size.width,
        bias=False,
    )
    with redirect_stdout(io.StringIO()):  # it tells its size
        return module.GPT(config)


class Matmuls(TorchDispatchMode):
    """Remembers the matrix products of what runs under it: shapes and strides, how often."""

    OPS = ("mm", "addmm", "addmm_", "bmm")

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[tuple[Any, ...]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.OPS:
            a, b = args[-2:]
            self.found[tuple(a.shape), a.stride(), tuple(b.shape), b.stride()] += 1
        return func(*args, **(kwargs or {}))

    def flops(self) -> float:
        shapes = ((a, b, times) for (a, _, b, _), times in self.found.items())
        return float(sum(2 * times * torch.Size(a).numel() * b[-1] for a, b, times in shapes))

    def alone(self) -> Callable[[], None]:
        """The same products on operands of their own, into memory that is there already."""
        work = []
        for (a, a_stride, b, b_stride), times in self.found.items():
            one = torch.empty_strided(a, a_stride).normal_()
            two = torch.empty_strided(b, b_stride).normal_()
            work.append((one, two, torch.matmul(one, two), times))

        def run() -> None:
            for one, two, out, times in work:
                for _ in range(times):
                    torch.matmul(one, two, out=out)

        return run


def attention_alone(size: Size) -> Callable[[], None]:
    """Attention of every layer, forward and backward, without its projections."""
    shape = (size.batch, size.heads, size.context, size.width // size.heads)
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    upstream = torch.randn(shape)

    def run() -> None:
        for _ in range(size.layers):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            torch.autograd.grad(out, (q, k, v), upstream)

    return run


def interleave(steps: dict[str, Callable[[], Any]], rounds: int) -> dict[str, dict[str, float]]:
    """Every step once a round, the order turned round each time; the first round warms up."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds + 1):
        for name in steps if turn % 2 else reversed(steps):
            start = time.perf_counter()
            steps[name]()
            seconds = time.perf_counter() - start
            if turn:
                times[name].append(seconds)
    return {n: {"median": statistics.median(t), "best": min(t)} for n, t in times.items()}


def ratios(values: dict[str, dict[str, float]], pairs: Pairs) -> dict[str, dict[str, float]]:
    return {
        f"{a} / {b}": {kind: values[a][kind] / values[b][kind] for kind in values[a]}
        for a, b in pairs
        if a in values and b in values
    }


def speed(size: Size, options: argparse.Namespace, rounds: int) -> dict[str, Any]:
    """Seconds of a step by every way, their ratios, and what ours keep for the backward pass."""
    ways = [GD, NESTEROV, HF, HF_EXACT] + ([NANO] if options.nanogpt else [])
    ours = [GD, NESTEROV]
    if options.compile:
        ours += [GD + COMPILED, NESTEROV + COMPILED]
        ways += ours[2:]
    tokens, targets = size.tokens()
    made = {way: make(way, size, options.nanogpt) for way in ways}

    def step(way: str) -> Callable[[], None]:
        model, loss = made[way]

        def run() -> None:
            model.zero_grad(set_to_none=True)
            loss(tokens, targets).backward()

        return run

    steps = {way: step(way) for way in ways}
    recorder = Matmuls()
    with recorder:
        steps[GD]()
    steps |= {MATMULS: recorder.alone(), ATTENTION: attention_alone(size)}
    seconds = interleave(steps, rounds)
    kept = {way: {"bytes": saved_bytes(made[way][0], tokens, targets)} for way in ours}
    momentum = [(NESTEROV, GD), (NESTEROV + COMPILED, GD + COMPILED)]
    others = [(a, b) for a in (GD, GD + COMPILED) for b in (HF, HF_EXACT, NANO)]
    bounds = [(MATMULS, GD), (ATTENTION, GD)]
    return {
        "size": vars(size),
        "rounds": rounds,
        "seconds": seconds,
        "ratios": ratios(seconds, [*momentum, (GD + COMPILED, GD), *others, *bounds]),
        "saved": kept,
        "saved_ratios": ratios(kept, [*momentum, (GD + COMPILED, GD)]),
        "matmul_flops": recorder.flops(),
        "attainable_flops_per_second": recorder.flops() / seconds[MATMULS]["best"],
    }


def resident(which: str) -> int:
    """Bytes, now (VmRSS) or at most so far (VmHWM). Not getrusage: its peak is inherited from the
    process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(which))


def child(way: str, size: Size, nanogpt: Path | None) -> None:
    """In a process of its own: the peak of resident memory over what there was before the step."""
    tiny = replace(size, vocab=64, layers=1, context=8, batch=1)
    for each in (tiny, size):  # the first for whatever is loaded on first use
        loss = make(way, each, nanogpt)[1]
        tokens, targets = each.tokens()
        before = resident("VmRSS")
        loss(tokens, targets).backward()
    print(json.dumps({"bytes": max(1, resident("VmHWM") - before)}))


def memory(size: Size, nanogpt: Path | None) -> dict[str, Any]:
    found = {}
    for way in [GD, NESTEROV, HF, HF_EXACT] + ([NANO] if nanogpt else []):
        extra = ["--nanogpt", str(nanogpt)] if nanogpt else []
        command = [sys.executable, __file__, "--child", way, "--size", json.dumps(vars(size))]
        done = subprocess.run([*command, *extra], check=True, stdout=subprocess.PIPE, text=True)
        found[way] = json.loads(done.stdout.splitlines()[-1])
    pairs = [(a, b) for a in (GD, NESTEROV) for b in (HF, HF_EXACT, NANO)]
    return {"size": vars(size), "peak": found, "ratios": ratios(found, [(NESTEROV, GD), *pairs])}


def show_speed(found: dict[str, Any]) -> None:
    print(f"{Size(**found['size'])}, {found['rounds']} rounds")
    for way, values in found["seconds"].items():
        kept = found["saved"].get(way)
        keeps = f"   keeps {kept['bytes'] / 2**20:8.1f} MiB" if kept else ""
        median, best = values["median"] * 1e3, values["best"] * 1e3
        print(f"  {way:<20} median {median:9.1f} ms   best {best:9.1f} ms{keeps}")
    for name, values in found["ratios"].items():
        print(f"  {name:<38} {values['median']:.3f} of medians, {values['best']:.3f} of best times")
    for name, values in found["saved_ratios"].items():
        print(f"  {name:<38} {values['bytes']:.3f} of bytes kept for the backward pass")
    work, rate = found["matmul_flops"], found["attainable_flops_per_second"]
    print(f"  {GD}: {work / 1e9:.1f} GFLOP of matmuls; alone they reach {rate / 1e9:.1f} GFLOP/s")


def show_memory(found: dict[str, Any]) -> None:
    print(f"peak memory of a step, gradients included: {Size(**found['size'])}")
    for way, values in found["peak"].items():
        print(f"  {way:<20} +{values['bytes'] / 2**20:8.0f} MiB")
    for name, values in found["ratios"].items():
        print(f"  {name:<38} {values['bytes']:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="one less at the large vocabulary")
    parser.add_argument("--vocab", type=int, nargs="+", default=[4096, 50304])
    parser.add_argument("--compile", action="store_true", help="also compiled blocks (needs g++)")
    parser.add_argument("--memory", action="store_true", help="also peak memory (large, slow)")
    parser.add_argument("--nanogpt", type=Path, help="folder with nanoGPT's model.py")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does it run at all")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, Size(**options.size), options.nanogpt)
        return
    sizes, rounds = [Size(vocab) for vocab in options.vocab], options.rounds
    large = replace(sizes[-1], context=1024)
    if options.quick:
        sizes = [Size(v, layers=2, heads=2, width=32, context=16, batch=2) for v in (64, 192)]
        large, rounds = replace(sizes[1], context=32), 3
        torch.set_num_threads(1)  # so small, threads only wait for each other
    found: dict[str, Any] = {"threads": torch.get_num_threads(), "speed": []}
    for index, size in enumerate(sizes):
        found["speed"].append(speed(size, options, max(1, rounds - index)))
        show_speed(found["speed"][-1])
    if options.memory:
        found["memory"] = memory(large, options.nanogpt)
        show_memory(found["memory"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
