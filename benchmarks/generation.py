"""Tokens per second when generating, one thread, greedy, against Hugging Face's GPT-2 of the same
size. On a machine that others use, two threads spend their time waiting for each other.

Where the weights lie in memory is worth a tenth of the time: the same model built twice differs by
as much. So each way has several models, and takes the next in each round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle

import torch
from torch import Tensor

from benchmarks.loss import HF, hugging_face
from benchmarks.measuring import Rounds, Row, subject, take_turns, threads
from benchmarks.training_step import GD, NESTEROV, TINY, Size
from yuriiformer.model.generate import Sampling, stream

GREEDY = Sampling(temperature=0)
SIZE = Size(context=512)
PROMPT, NEW = 16, 128
MODELS = 5
UNCACHED = "gd, no cache"

Generate = Callable[[Tensor, int], object]


def theirs(size: Size) -> Generate:
    models = [hugging_face(size).eval() for _ in range(MODELS)]
    for each in models:
        each.generation_config.pad_token_id = 0
        each.generation_config.eos_token_id = None
    turn = cycle(models)
    options = {"do_sample": False, "use_cache": True}
    return lambda prompts, count: next(turn).generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=count, **options
    )


def ours(size: Size, rule: str, *, cached: bool = True) -> Generate:
    turn = cycle([size.model(rule).eval() for _ in range(MODELS)])
    return lambda prompts, count: list(
        stream(next(turn), prompts.tolist(), count, GREEDY, cached=cached)
    )


def generation(rows: int, *, quick: bool) -> Rounds:
    size = TINY if quick else SIZE
    ways = {GD: ours(size, GD), NESTEROV: ours(size, NESTEROV), HF: theirs(size)}
    if rows == 1:
        ways[UNCACHED] = ours(size, GD, cached=False)
    prompts = torch.randint(size.vocab, (rows, 4 if quick else PROMPT))
    count = 8 if quick else NEW
    with threads(1):
        return take_turns(
            {name: partial(way, prompts, count) for name, way in ways.items()},
            2 if quick else 15 if rows == 1 else 45,
        )


for rows in (1, 8):
    what = f"{SIZE.layers} layers, d {SIZE.width}, {NEW} tokens after {PROMPT}, batch {rows}"
    cache = Row("Speed of generation with the cache", "no cache", (UNCACHED, GD))
    subject(
        f"generation-{rows}",
        Row(f"Speed of generation: {what}", "Hugging Face's GPT-2", (HF, GD), "≥ 1.5"),
        Row("the same, Nesterov", "Hugging Face's GPT-2", (HF, NESTEROV), "≥ 1.5"),
        Row("Time of generation with Nesterov", "gradient descent", (NESTEROV, GD), "≤ 1.05"),
        *([cache] if rows == 1 else []),
    )(partial(generation, rows))
