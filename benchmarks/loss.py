"""Training at GPT-2's vocabulary: speed and memory of a step, and of the loss alone.

nanoGPT is on no package index. `plain_loss` is its computation, written here in a few lines on our
own weights: all logits at once, then one cross-entropy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import yuriiformer as yf
from benchmarks.measuring import Rounds, Row, fresh, rise, subject, take_turns
from benchmarks.training_step import GD, NESTEROV, TINY, Loss, Size, step
from yuriiformer.model.loss import mean_cross_entropy

HF, HF_EXACT, PLAIN = "gpt2", "gpt2, exact gelu", "as nanoGPT"
LARGE = Size(vocab=50304)
LONG = replace(LARGE, context=1024)
ROWS, WIDTH = 4096, 256  # of the loss alone


def plain_loss(model: yf.YuriiFormer, tokens: Tensor, targets: Tensor) -> Tensor:
    """A plain pre-norm transformer and the mean cross-entropy of all its logits."""
    config, w = model.config, dict(model.named_parameters())
    d, shape = config.d_model, (*tokens.shape, config.n_head, config.d_head)
    X = F.embedding(tokens, w["starts.X_0.tokens.weight"])
    X = X + w["starts.X_0.positions.weight"][: tokens.shape[1]]
    for layer in range(config.n_layer):
        attn, mlp = f"blocks.{layer}.attn", f"blocks.{layer}.mlp"
        qkv = F.linear(F.layer_norm(X, (d,), w[f"{attn}.norm.weight"]), w[f"{attn}.qkv.weight"])
        q, k, v = (part.view(shape).transpose(1, 2) for part in qkv.split(d, dim=-1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        X = X + F.linear(heads.transpose(1, 2).reshape(X.shape), w[f"{attn}.out.weight"])
        up = F.linear(F.layer_norm(X, (d,), w[f"{mlp}.norm.weight"]), w[f"{mlp}.up.weight"])
        X = X + F.linear(F.gelu(up), w[f"{mlp}.down.weight"])
    logits = F.linear(F.layer_norm(X, (d,), w["norm.weight"]), w["starts.X_0.tokens.weight"])
    return F.cross_entropy(logits.view(-1, config.vocab_size), targets.view(-1))


def hugging_face(size: Size, **settings: Any) -> nn.Module:
    """GPT-2 as the library gives it, or with other settings; its biases cannot be left out."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.GPT2Config(
        vocab_size=size.vocab,
        n_positions=size.context,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation="sdpa",
        **settings,
    )
    return transformers.GPT2LMHeadModel(config)


def make(way: str, size: Size) -> tuple[nn.Module, Loss]:
    """A model, and its loss of (tokens, targets)."""
    torch.manual_seed(0)
    if way in (HF, HF_EXACT):
        gelu = "gelu_new" if way == HF else "gelu"  # GPT-2's own, in several operations; ours
        theirs = hugging_face(size, activation_function=gelu, use_cache=False).train()
        return theirs, lambda tokens, _: theirs(input_ids=tokens, labels=tokens).loss
    model = size.model(GD if way == PLAIN else way)
    if way == PLAIN:
        return model, lambda tokens, targets: plain_loss(model, tokens, targets)
    return model, model


@subject(
    "vocabulary",
    Row(f"Speed of a step: {LARGE}", "Hugging Face's GPT-2", (HF, GD), "≥ 1.3"),
    Row("the same", "the same with the exact GELU, as ours", (HF_EXACT, GD)),
    Row("the same", "a plain step as nanoGPT's", (PLAIN, GD), "≥ 1.25"),
)
def vocabulary(*, quick: bool) -> Rounds:
    size = TINY if quick else LARGE
    batch = size.tokens()
    made = {way: make(way, size) for way in (GD, HF, HF_EXACT, PLAIN)}
    same = torch.stack([made[way][1](*batch).detach() for way in (GD, PLAIN)])
    torch.testing.assert_close(same[0], same[1], rtol=1e-5, atol=0)
    steps = {way: step(*each, batch) for way, each in made.items()}
    return take_turns(steps, 3 if quick else 7)


def step_memory(way: str, size: dict[str, int]) -> int:
    """Bytes of a step above what there was before, gradients included."""
    wanted = Size(**size)
    warm = replace(wanted, vocab=64, layers=1, context=8, batch=1)
    make(way, warm)[1](*warm.tokens()).backward()  # whatever is loaded on first use
    loss, batch = make(way, wanted)[1], wanted.tokens()
    return rise(lambda: loss(*batch).backward())


@subject(
    "vocabulary-memory",
    Row(f"Peak memory of a step: {LONG}", "Hugging Face's GPT-2", (GD, HF), "≤ 0.333"),
    Row("the same", "a plain step as nanoGPT's", (GD, PLAIN), "≤ 0.333"),
    Row("Peak memory of a Nesterov step", "gradient descent", (NESTEROV, GD)),
)
def vocabulary_memory(*, quick: bool) -> Rounds:
    size = replace(TINY, vocab=2048, context=64) if quick else LONG
    ways = (GD, NESTEROV, HF, PLAIN)
    return {way: [float(fresh(step_memory, way, vars(size)))] for way in ways}


def loss_memory(way: str, rows: int, width: int, vocab: int) -> tuple[float, float]:
    """Bytes of the loss alone, forward and backward, without inputs and their gradients; and the
    loss."""

    def all_logits(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight), targets)

    loss: Callable[..., Tensor] = all_logits if way == PLAIN else mean_cross_entropy

    def run(rows: int, vocab: int) -> float:
        torch.manual_seed(0)
        hidden = torch.randn(rows, width, requires_grad=True)
        weight = (0.02 * torch.randn(vocab, width)).requires_grad_(True)
        value = loss(hidden, weight, torch.randint(vocab, (rows,)))
        value.backward()
        return value.item()

    run(8, 64)  # whatever is loaded on first use
    values: list[float] = []
    taken = rise(lambda: values.append(run(rows, vocab)))
    return max(1.0, taken - 8.0 * width * (rows + vocab)), values[0]


@subject(
    "loss-memory",
    Row(
        f"Peak memory of the loss alone: {ROWS:,} rows, d {WIDTH}, vocabulary {LARGE.vocab:,}",
        "all logits at once",
        ("ours", PLAIN),
    ),
)
def loss_memories(*, quick: bool) -> Rounds:
    sizes = (256 if quick else ROWS), WIDTH, LARGE.vocab
    found = {way: fresh(loss_memory, way, *sizes) for way in ("ours", PLAIN)}
    losses = [value for _, value in found.values()]
    assert abs(losses[0] - losses[1]) < 1e-4, json.dumps(found)
    return {way: [taken] for way, (taken, _) in found.items()}
