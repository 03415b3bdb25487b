"""``yurii sample MODEL``: text from a trained model, as it comes."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from yuriiformer.cli.parsing import parse_flags, print_remarks, read_prompt
from yuriiformer.errors import whole_number

if TYPE_CHECKING:
    from yuriiformer.data.tokenizers import Tokenizer
    from yuriiformer.runs.loading import LoadedModel

TOGETHER = 256  # samples at a time: memory grows with them


@dataclass(frozen=True)
class Flags:
    """Generate text with a model. The output begins with the prompt."""

    model: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="MODEL")]]
    """A run, a checkpoint, a model folder, an export, a GPT-2 (folder or hub name)."""
    prompt: str | None = None
    """Text to continue; - reads it from standard input. A new text is begun if none is given."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1
    """How many samples."""
    max_new_tokens: int = 200
    """Longest continuation."""
    temperature: float = 0.8
    """Below 1 keeps to likelier tokens; 0 is greedy."""
    top_k: int | None = 50
    """Draw among that many likeliest tokens (None: all)."""
    top_p: float | None = None
    """Draw among the likeliest tokens that together have this probability."""
    repetition_penalty: float = 1.0
    """Above 1: tokens that are already in the text become less likely."""
    seed: int = 0
    """The same seed gives the same text."""
    ignore_end: bool = False
    """Continue after an end of text."""
    checkpoint: Literal["best", "final", "last"] | None = None
    """Which of a run's checkpoints; the best by validation loss if not given."""
    data: Path | None = None
    """Prepared data, where the model does not have its tokeniser with it."""
    json: bool = False
    """Print JSON."""
    stats: bool = False
    """Also say how long the first token took, and tokens per second after it."""


def run(arguments: list[str]) -> int:
    flags = parse_flags("yurii sample", Flags(tyro.MISSING), arguments)
    whole_number("-n", flags.n, 1)

    from yuriiformer.comparison.samples import texts_of
    from yuriiformer.model.generate import Sampling, stream
    from yuriiformer.runs.loading import open_model

    sampling = Sampling(flags.temperature, flags.top_k, flags.top_p, flags.repetition_penalty)
    prompt = read_prompt(flags.prompt)
    loaded = open_model(flags.model, flags.checkpoint, [flags.data] if flags.data else [])
    print_remarks(loaded.remarks)
    tokenizer = loaded.need_tokenizer()
    tokens = _encode(loaded, tokenizer, prompt)
    end = None if flags.ignore_end else tokenizer.end_of_text
    samples: list[dict[str, Any]] = []
    clock = Clock()
    for first in range(0, flags.n, TOGETHER):
        rows = min(TOGETHER, flags.n - first)
        columns = clock.watch(
            stream(
                loaded.model,
                [tokens] * rows,
                flags.max_new_tokens,
                sampling,
                seed=flags.seed,
                end=end,
                first=first,
            )
        )
        if flags.json:
            samples += texts_of(tokenizer, list(columns), rows)
        else:
            _print(tokenizer, prompt, columns, rows, first)
    if flags.json:
        made = {"prompt": prompt, "seed": flags.seed, **loaded.about, "samples": samples}
        made |= {"stats": clock.stats()} if flags.stats else {}
        print(json.dumps(made, ensure_ascii=False, indent=2))
    elif flags.stats:
        print(clock, file=sys.stderr)
    return 0


class Clock:
    """Time to the first token, and the speed after it. Time that others take is not counted."""

    def __init__(self) -> None:
        self.first: float | None = None  # seconds
        self.tokens = 0  # after the first of each row
        self.seconds = 0.0

    def watch(self, columns: Iterator[list[int | None]]) -> Iterator[list[int | None]]:
        begun = False
        while True:
            start = time.perf_counter()
            column = next(columns, None)
            seconds = time.perf_counter() - start
            if column is None:
                return
            if begun:
                self.seconds += seconds
                self.tokens += sum(token is not None for token in column)
            elif self.first is None:
                self.first = seconds
            begun = True
            yield column

    def stats(self) -> dict[str, float | None]:
        speed = self.tokens / self.seconds if self.seconds else None
        return {"seconds_to_first_token": self.first, "tokens_per_second": speed}

    def __str__(self) -> str:
        first, speed = self.stats().values()
        if first is None:
            return "no token was generated"
        after = "" if speed is None else f", then {speed:,.0f} tokens per second"
        return f"first token after {first * 1e3:.0f} ms{after}"


def _encode(loaded: LoadedModel, tokenizer: Tokenizer, prompt: str | None) -> list[int]:
    if prompt is None:
        return [tokenizer.end_of_text]
    tokens = tokenizer.encode(prompt)
    context = loaded.model.config.context
    if len(tokens) > context:
        print(
            f"note: the prompt has {len(tokens)} tokens, of which the model sees the last part "
            f"(its context is {context})",
            file=sys.stderr,
        )
    return tokens


class Decoder:
    """Text of a stream of tokens; an incomplete character is held back until it is complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.shown = 0

    def add(self, token: int) -> str:
        if token == self.tokenizer.end_of_text:
            return ""
        self.tokens.append(token)
        text = self.tokenizer.decode(self.tokens)
        # An incomplete character at the end decodes to one replacement mark.
        whole = text[:-1] if text.endswith("\ufffd") else text
        new, self.shown = whole[self.shown :], max(self.shown, len(whole))
        return new

    def rest(self) -> str:
        return self.tokenizer.decode(self.tokens)[self.shown :]


def _print(
    tokenizer: Tokenizer,
    prompt: str | None,
    columns: Iterator[list[int | None]],
    n: int,
    first: int = 0,
) -> None:
    """The first sample as it comes, the others after it; ``first`` were printed before."""
    decoders = [Decoder(tokenizer) for _ in range(n)]
    texts = [""] * n
    print(f"\n--- {first + 1}\n" if first else "", prompt or "", sep="", end="", flush=True)
    for column in columns:
        for row, token in enumerate(column):
            new = "" if token is None else decoders[row].add(token)
            texts[row] += new
            if row == 0 and new:
                print(new, end="", flush=True)
    print(decoders[0].rest())
    for row in range(1, n):
        print(f"\n--- {first + row + 1}\n{prompt or ''}{texts[row]}{decoders[row].rest()}")
