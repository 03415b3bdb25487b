"""Samples of a run's text, kept in its folder: the same prompts and seed for every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from yuriiformer.data.store import TokenStore
from yuriiformer.data.tokenizers import Tokenizer
from yuriiformer.errors import DataError, YuriiError
from yuriiformer.files import write_json
from yuriiformer.runs.checkpoint import about
from yuriiformer.runs.folder import RunFolder, find_checkpoint
from yuriiformer.runs.run import SAMPLES, read_samples

PROMPT_TOKENS = 8  # of a document of the validation split, where no prompt is given


@dataclass(frozen=True)
class SampleSettings:
    """How text is drawn. No prompts: the first words of validation documents."""

    prompts: tuple[str, ...] = ()
    count: int = 2  # prompts taken from the data
    max_new_tokens: int = 120
    temperature: float = 0.8
    top_k: int | None = 50
    seed: int = 0


def sample_run(
    folder: RunFolder, sampling: SampleSettings, data: Sequence[Path] = ()
) -> dict[str, Any]:
    """The run's samples: those in its folder, if they are of this checkpoint and these settings,
    else new ones. ``data`` are other folders that may hold the run's data."""
    settings = {**asdict(sampling), "prompts": list(sampling.prompts)}
    made_from = {**about(find_checkpoint(folder)[0]), "settings": settings}
    known = read_samples(folder.path)
    if known is not None and all(known.get(key) == made_from[key] for key in made_from):
        return known
    made = {**made_from, "samples": _generated(folder, sampling, data)}
    write_json(folder.path / SAMPLES, made)
    return made


def _generated(
    folder: RunFolder, sampling: SampleSettings, data: Sequence[Path]
) -> list[dict[str, Any]]:
    from yuriiformer.model.generate import Sampling, stream  # noqa: PLC0415  torch is slow
    from yuriiformer.runs.loading import open_model  # noqa: PLC0415

    run = open_model(folder.path, data=data)
    tokenizer = run.need_tokenizer()
    prompts = list(sampling.prompts) or _prompts(run.store, tokenizer, sampling.count)
    if not prompts:
        raise DataError("the validation split has no text to begin with: give a --prompt")
    ids = [tokenizer.encode(prompt) for prompt in prompts]
    how = Sampling(sampling.temperature, sampling.top_k)
    end = tokenizer.end_of_text
    length, seed = sampling.max_new_tokens, sampling.seed
    columns = list(stream(run.model, ids, length, how, seed=seed, end=end))
    texts = texts_of(tokenizer, columns, len(prompts))
    return [
        {"prompt": prompt, "text": each["text"], "ended": each["ended"]}
        for prompt, each in zip(prompts, texts, strict=True)
    ]


def texts_of(
    tokenizer: Tokenizer, columns: Sequence[Sequence[int | None]], rows: int
) -> list[dict[str, Any]]:
    """The text of each row, its tokens, and whether it ended; after its end a row has none."""
    found = []
    end = tokenizer.end_of_text
    for row in zip(*columns, strict=True) if columns else [()] * rows:
        tokens = [token for token in row if token is not None]
        text = tokenizer.decode([token for token in tokens if token != end])
        found.append({"text": text, "tokens": tokens, "ended": tokens[-1:] == [end]})
    return found


def samples_of(
    folder: RunFolder, sampling: SampleSettings, data: Sequence[Path] = ()
) -> tuple[list[dict[str, Any]], str]:
    """The same for a page: the samples, and a line about them or the reason why there are none."""
    try:
        made = sample_run(folder, sampling, data)
    except (YuriiError, OSError) as error:
        return [], f"no sample: {error}"
    return shown(made)


def shown(made: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Kept samples, and a line on how they were made."""
    how = made["settings"]
    note = (
        f"{made['checkpoint']} checkpoint, step {made['step']:,}; temperature "
        f"{how['temperature']:g}, top-k {how['top_k']}, seed {how['seed']}"
    )
    return made["samples"], note


def _prompts(store: TokenStore, tokenizer: Tokenizer, count: int) -> list[str]:
    """The beginnings of the first documents of the validation split."""
    ends = np.flatnonzero(store.val[:1_000_000] == tokenizer.end_of_text)
    starts: Sequence[int] = [0, *(int(end) + 1 for end in ends)]
    prompts: list[str] = []
    for start in starts:
        piece = store.val[start : start + PROMPT_TOKENS]
        if len(piece) < PROMPT_TOKENS or tokenizer.end_of_text in piece:
            continue
        prompt = tokenizer.decode(piece).rstrip("\ufffd")
        if prompt.strip() and prompt not in prompts:
            prompts.append(prompt)
        if len(prompts) == count:
            break
    return prompts
