"""Log-likelihoods of continuations, as the evaluation harness asks for them.

A pair of context and continuation is cut from the left where it is longer than the model's
context, exactly as the harness's own ``hf`` model does. The answers to one question share their
context: it is computed once, and the answers follow it one after another. Each answer has the
positions after the context, and attends to the context and itself only. This gives the same result
as one row per answer, with about a quarter of the work.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from yuriiformer.errors import InputError, RunError, whole_number
from yuriiformer.evaluation.local_tasks import BATCH_TOKENS
from yuriiformer.files import sha256_of_json
from yuriiformer.model.context import Context
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.oracles import oracle_pair
from yuriiformer.reading import parse_json, read_bytes, reason

Pair = tuple[Sequence[int], Sequence[int]]  # the tokens of a context and of its continuation

LOGIT_ELEMENTS = 2**24  # logits held at a time: 64 MiB of float32


class Score(NamedTuple):
    """Nats, and whether greedy decoding would give just this continuation."""

    log_likelihood: float
    greedy: bool


def cut_left(context: Sequence[int], continuation: Sequence[int], most: int) -> tuple[int, ...]:
    """The part of the context that a model of ``most`` positions sees.

    The harness feeds ``(context + continuation)[-(most + 1):][:-1]``; the continuation, less its
    last token, is the end of that.
    """
    if not continuation:
        raise InputError("a continuation has at least one token")
    if not context:
        raise InputError("a context has at least one token: begin with end-of-text")
    if len(continuation) > most:
        raise InputError(
            f"a continuation of {len(continuation)} tokens does not fit the model's context of "
            f"{most}, so it cannot be scored: evaluate a model with a larger context"
        )
    return tuple(context[-(most + 1 - len(continuation)) :])


@dataclass
class _Row:
    """A common beginning, and what follows it: (number of the pair, its continuation)."""

    prefix: tuple[int, ...]
    branches: list[tuple[int, Sequence[int]]] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.prefix) + sum(len(tokens) - 1 for _, tokens in self.branches)


def score_batches(
    model: YuriiFormer,
    pairs: Sequence[Pair],
    *,
    batch_tokens: int = BATCH_TOKENS,
    share: bool = True,
) -> Iterator[dict[int, Score]]:
    """The score of each pair by its number, batch by batch, the longest first.

    Args:
        batch_tokens: of a batch, padding included; a single row may have more.
        share: read a context that several pairs have in common only once.
    """
    whole_number("batch_tokens", batch_tokens, 1, InputError)
    share = share and oracle_pair(model.config).caches  # such a pair supports a mask
    rows = _rows(pairs, model.config.context, share=share)
    training = model.training
    model.eval()
    try:
        while rows:
            most = max(1, batch_tokens // rows[0].length)
            batch, rows = rows[:most], rows[most:]
            with torch.inference_mode():
                yield _score(model, batch)
    finally:
        model.train(training)


def _rows(pairs: Sequence[Pair], most: int, *, share: bool) -> list[_Row]:
    """The longest first: if memory is too small, it fails at once."""
    rows: list[_Row] = []
    known: dict[tuple[int, ...], _Row] = {}
    for number, (context, continuation) in enumerate(pairs):
        prefix = cut_left(context, continuation, most)
        row = known.get(prefix) if share else None
        if row is None or row.length + len(continuation) > 2 * most:
            row = _Row(prefix)
            known[prefix] = row
            rows.append(row)
        row.branches.append((number, continuation))
    return sorted(rows, key=lambda row: -row.length)


def _score(model: YuriiFormer, rows: list[_Row]) -> dict[int, Score]:
    device = model.token_table.device
    width = rows[0].length
    tokens, positions, parts = torch.zeros(3, len(rows), width, dtype=torch.int64)
    places: list[int] = []  # in all rows joined: where each token to be scored is predicted
    targets: list[int] = []
    for number, row in enumerate(rows):
        _lay_out(row, tokens[number], positions[number], parts[number])
        first = number * width + len(row.prefix) - 1
        after = first + 1
        for _, continuation in row.branches:
            rest = len(continuation) - 1
            places += [first, *range(after, after + rest)]
            targets += continuation
            after += rest
    hidden = model.hidden(tokens.to(device), _context(rows, positions, parts, device))
    wanted = hidden.reshape(-1, hidden.shape[-1])[torch.tensor(places, device=device)]
    log_p, best = _token_scores(model, wanted, torch.tensor(targets, device=device))
    found, start = {}, 0
    for row in rows:
        for number, continuation in row.branches:
            part = slice(start, start + len(continuation))
            found[number] = Score(float(log_p[part].sum()), bool(best[part].all()))
            start = part.stop
    return found


def _lay_out(row: _Row, tokens: Tensor, positions: Tensor, parts: Tensor) -> None:
    """Fill in a row: the prefix is part 0, its branches are 1, 2, …; padding is its own part."""
    start = len(row.prefix)
    tokens[:start] = torch.tensor(row.prefix)
    positions[:start] = torch.arange(start)
    parts[start:] = len(row.branches) + 1
    for part, (_, continuation) in enumerate(row.branches, 1):
        inputs = torch.tensor(continuation[:-1], dtype=torch.int64)
        span = slice(start, start + len(inputs))
        tokens[span], parts[span] = inputs, part
        positions[span] = len(row.prefix) + torch.arange(len(inputs))
        start = span.stop


def _context(
    rows: list[_Row], positions: Tensor, parts: Tensor, device: torch.device
) -> Context | None:
    """Positions and mask. With one branch per row the causal mask is enough."""
    if all(len(row.branches) == 1 for row in rows):
        return None
    parts = parts.to(device)
    width = parts.shape[1]
    earlier = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    related = (parts[:, None, :] == 0) | (parts[:, None, :] == parts[:, :, None])
    return Context(positions.to(device), mask=(earlier & related)[:, None], causal=False)


def _token_scores(model: YuriiFormer, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """For each token its log-probability among the real ids, and whether it is the likeliest."""
    table = model.token_table[: model.config.real_vocab]  # padded ids are never produced
    if bool((targets >= len(table)).any()):
        raise InputError(f"token {int(targets.max())} is not one of the model's {len(table)}")
    chunk = max(1, LOGIT_ELEMENTS // len(table))
    log_p, best = [], []
    for start in range(0, len(targets), chunk):
        part, wanted = hidden[start : start + chunk], targets[start : start + chunk]
        found = torch.log_softmax(F.linear(part, table).float(), -1)
        log_p.append(found.gather(-1, wanted[:, None])[:, 0])
        best.append(found.argmax(-1) == wanted)
    return torch.cat(log_p).double().cpu(), torch.cat(best).cpu()


def model_identity(model: YuriiFormer) -> str:
    """A hash of the configuration and of every weight."""
    digest = hashlib.sha256(sha256_of_json(model.config.to_dict()).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


KEY = "[0-9a-f]{32}"


class Answers:
    """The answers of a model so far: lines of JSON from which an interrupted evaluation resumes.

    Lines are only appended. A line that is incomplete or damaged is ignored, and its answer is
    computed again.
    """

    def __init__(self, path: Path | None, identity: str) -> None:
        self.path, self.identity = path, identity
        self.known: dict[str, Any] = {}
        self.fresh = 0  # answers that were not known
        self._ends_line = True
        if path is not None and path.exists():
            self._read(path)

    def key(self, *question: Any) -> str:
        text = json.dumps([self.identity, *question], separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]  # as in KEY

    def add(self, answers: dict[str, Any]) -> None:
        self.known |= answers
        self.fresh += len(answers)
        if self.path is None:
            return
        lines = "".join(json.dumps([key, value]) + "\n" for key, value in answers.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines if self._ends_line else "\n" + lines)
        except OSError as error:
            raise RunError(f"{self.path} cannot be written: {error.strerror}") from None
        self._ends_line = True

    def _read(self, path: Path) -> None:
        try:
            content = read_bytes(path)
        except OSError as error:
            raise RunError(f"{path} cannot be read: {reason(error)}") from None
        self._ends_line = content.endswith(b"\n") or not content
        self.known |= dict(filter(None, map(_answer, content.splitlines())))


def _answer(line: bytes) -> tuple[str, Any] | None:
    """A question's key and its answer; None for a line that is cut, damaged or something else."""
    with suppress(ValueError, RecursionError):
        found = parse_json(line)
        if isinstance(found, list) and len(found) == 2 and re.fullmatch(KEY, str(found[0])):
            return found[0], found[1]
    return None


def holds_answers(path: Path) -> bool:
    """Whether a file was written by `Answers`: its first lines tell, and a new one has none."""
    lines = read_bytes(path).splitlines()[:2]
    return not lines or any(map(_answer, lines))
