"""The interpreter against a Nesterov block written out by hand: same bits, and what it costs.

Both run the same modules on the same input, forward and backward, interleaved in one process; the
ratio of medians is what counts, not the seconds. Usage: python benchmarks/interpreter.py
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

import yuriiformer as yf
from yuriiformer.model.block import Block
from yuriiformer.model.context import Context


def by_hand(block: Block, X, V, context):
    """Nesterov+Lie–Trotter as one would inline it."""
    c = block.coefficients()
    norm = block.velocity_norms[0]
    V = norm(c["beta"] * V + c["gamma"] * block.attn(X + c["mu"] * V, context))
    X = X + V
    V = norm(c["beta_half"] * V + c["gamma_half"] * block.mlp(X + c["mu_half"] * V, context))
    X = X + V
    return X, V


def hidden_by_hand(model: yf.YuriiFormer, tokens):
    positions = torch.arange(tokens.shape[1])
    streams = model.start_streams(tokens, positions)
    X, V = streams["X"], streams["V"]
    context = Context(positions)
    for block in model.blocks:
        X, V = by_hand(block, X, V, context)
    return model.norm(X)


def run(model, hidden, tokens):
    model.zero_grad(set_to_none=True)
    start = time.perf_counter()
    out = hidden(tokens)
    out.square().mean().backward()
    seconds = time.perf_counter() - start
    return seconds, out.detach(), {n: p.grad for n, p in model.named_parameters()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    model = yf.YuriiFormer(
        yf.ModelConfig(
            "nesterov-lie-trotter",
            n_layer=options.layers,
            n_head=6,
            d_model=options.width,
            vocab_size=4096,
            context=options.tokens,
        )
    )
    tokens = torch.randint(4096, (options.batch, options.tokens))
    ways = {
        "interpreter": model.hidden,
        "by hand": lambda tokens: hidden_by_hand(model, tokens),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.rounds + 2):
        for name in ways if turn % 2 else reversed(ways):
            seconds, out, grads = run(model, ways[name], tokens)
            if name == "interpreter":
                kept = out, grads
            if turn >= 2:  # the first rounds warm up
                times[name].append(seconds)
    _, out, grads = run(model, ways["by hand"], tokens)
    same = torch.equal(out, kept[0]) and all(
        torch.equal(grads[n], kept[1][n]) for n in grads if grads[n] is not None
    )
    medians = {name: statistics.median(values) for name, values in times.items()}
    pairs = [a / b for a, b in zip(times["interpreter"], times["by hand"], strict=True)]
    ratio = medians["interpreter"] / medians["by hand"]
    print(f"{options.layers} layers, d={options.width}, {options.batch}x{options.tokens} tokens")
    for name, median in medians.items():
        print(f"  {name:<12} median {median * 1e3:8.1f} ms   best {min(times[name]) * 1e3:8.1f} ms")
    print(f"  ratio of medians {ratio:.3f}, median of ratios {statistics.median(pairs):.3f}")
    print(f"  outputs and all gradients equal to the bit: {same}")


if __name__ == "__main__":
    main()
