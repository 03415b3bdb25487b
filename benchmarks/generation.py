"""Tokens per second when generating, side by side: with the cache, against Hugging Face's GPT-2 of
the same size, against no cache, and Nesterov's block against gradient descent's.

    python benchmarks/generation.py            # 6 layers, d = 384
    python benchmarks/generation.py --quick    # a small model, to see that it runs
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import yuriiformer as yf
from yuriiformer.model.generate import Sampling, stream

GREEDY = Sampling(temperature=0)


def hugging_face(config: yf.ModelConfig) -> Callable[[torch.Tensor, int], object]:
    from transformers import GPT2Config, GPT2LMHeadModel

    own = GPT2Config(
        vocab_size=config.vocab_size,
        n_positions=config.context,
        n_embd=config.d_model,
        n_layer=config.n_layer,
        n_head=config.n_head,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(own).eval()
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None

    def run(prompt: torch.Tensor, count: int) -> object:
        mask = torch.ones_like(prompt)
        return model.generate(
            prompt, attention_mask=mask, max_new_tokens=count, do_sample=False, use_cache=True
        )

    return run


def ours(config: yf.ModelConfig, *, cached: bool = True) -> Callable[[torch.Tensor, int], object]:
    model = yf.YuriiFormer(config, seed=0).eval()
    return lambda prompt, count: list(stream(model, prompt.tolist(), count, GREEDY, cached=cached))


def measure(
    runs: dict[str, Callable[[torch.Tensor, int], object]], count: int, rounds: int
) -> dict[str, float]:
    """Median tokens per second of each, interleaved."""
    prompt = torch.arange(16)[None]
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(prompt, 8)  # warm
    for _ in range(rounds):
        for name, run in runs.items():
            began = time.perf_counter()
            run(prompt, count)
            speeds[name].append(count / (time.perf_counter() - began))
    return {name: statistics.median(values) for name, values in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    size = (
        {"n_layer": 2, "n_head": 2, "d_model": 32}
        if options.quick
        else {"n_layer": 6, "n_head": 6, "d_model": 384}
    )
    count, rounds = (48, 1) if options.quick else (496, options.rounds)

    def config(rule: str) -> yf.ModelConfig:
        return yf.ModelConfig(rule, vocab_size=options.vocab, context=512, **size)

    gd, nesterov = config("gd-lie-trotter"), config("nesterov-lie-trotter")
    speeds = measure(
        {"gd": ours(gd), "nesterov": ours(nesterov), "hf gpt2": hugging_face(gd)}, count, rounds
    )
    speeds |= measure({"gd, no cache": ours(gd, cached=False)}, count, 1)
    ratios = {
        "gd / hf gpt2": speeds["gd"] / speeds["hf gpt2"],
        "nesterov / hf gpt2": speeds["nesterov"] / speeds["hf gpt2"],
        "cache / no cache": speeds["gd"] / speeds["gd, no cache"],
        "time of nesterov / gd": speeds["gd"] / speeds["nesterov"],
    }
    if options.json:
        options.json.write_text(json.dumps({"tokens_per_second": speeds, "ratios": ratios}))
    threads = torch.get_num_threads()
    print(f"{count} tokens after 16, one row, {threads} threads, tokens per second:")
    for name, value in speeds.items():
        print(f"  {name:<22}{value:8.1f}")
    for name, value in ratios.items():
        print(f"  {name:<22}{value:8.2f} ×")


if __name__ == "__main__":
    main()
