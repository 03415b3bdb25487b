"""A YuriiFormer as a model of EleutherAI's lm-evaluation-harness. Needs the package lm_eval."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from yuriiformer.data.tokenizers import END_OF_TEXT, Tokenizer, check_ids
from yuriiformer.evaluation.local_tasks import BATCH_TOKENS
from yuriiformer.evaluation.scoring import Answers, cut_left, model_identity, score_batches
from yuriiformer.evaluation.validation import Tell, silent
from yuriiformer.model.generate import Sampling, stream
from yuriiformer.model.model import YuriiFormer

SEED = 1234  # of sampled text
NEW_TOKENS = 256  # where a task does not say, as the harness's own models
GENERATED_ROWS = 16


class YuriiLM(TemplateLM):  # type: ignore[misc]  # lm_eval has no types
    """The harness's view of a model and its tokeniser.

    The harness's own code splits texts into tokens (`TemplateLM`); they are cut as in its ``hf``
    model. Answers are written to the file ``cache``, if given, as they are computed.
    """

    def __init__(
        self,
        model: YuriiFormer,
        tokenizer: Tokenizer,
        *,
        batch_tokens: int = BATCH_TOKENS,
        cache: Path | None = None,
        tell: Tell = silent,
    ) -> None:
        super().__init__()
        check_ids(model.config.real_vocab, tokenizer)
        self.model, self.words, self.tell = model, tokenizer, tell
        self.batch_tokens = batch_tokens
        self.answers = Answers(cache, model_identity(model))
        self.requests = self.truncated = 0
        self._encode = lru_cache(maxsize=64)(self._encode_text)  # answers share their question

    @property
    def eot_token_id(self) -> int:
        return self.words.end_of_text

    @property
    def max_length(self) -> int:
        return self.model.config.context

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        return list(self._encode(string))

    def _encode_text(self, text: str) -> list[int]:
        """The end marker inside a text is the token, as Hugging Face's tokenisers have it."""
        first, *rest = self.words.encode_batch(text.split(END_OF_TEXT))
        ids: list[int] = first.tolist()
        for piece in rest:
            ids += [self.eot_token_id, *piece.tolist()]
        return ids

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = True) -> list[float]:
        windows, owners = [], []
        for number, request in enumerate(requests):
            pieces = get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            for piece in map(make_disjoint_window, pieces):
                windows.append((None, *piece))
                owners.append(number)
        totals = [0.0] * len(requests)
        for owner, (nats, _) in zip(owners, self._loglikelihood_tokens(windows), strict=True):
            totals[owner] += nats
        return totals

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        keys, wanted = [], {}
        for _, context, continuation in requests:
            seen = cut_left(context, continuation, self.max_length)
            self.truncated += len(seen) < len(context)
            key = self.answers.key(seen, continuation)
            keys.append(key)
            if key not in self.answers.known:
                wanted[key] = (seen, continuation)
        self.requests += len(requests)
        names, total = list(wanted), len(set(keys))
        done = total - len(names)
        self.tell(done, total)
        for part in score_batches(
            self.model, list(wanted.values()), batch_tokens=self.batch_tokens
        ):
            self.answers.add({names[number]: list(score) for number, score in part.items()})
            done += len(part)
            self.tell(done, total)
        found = [self.answers.known[key] for key in keys]
        return [(float(nats), bool(greedy)) for nats, greedy in found]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = True) -> list[str]:
        texts: list[str | None] = [None] * len(requests)
        groups: dict[str, list[int]] = {}
        keys = [self.answers.key(*request.args) for request in requests]
        for number, request in enumerate(requests):
            settings = request.args[1]
            if not settings.get("do_sample") and keys[number] in self.answers.known:
                texts[number] = self.answers.known[keys[number]]
            else:
                groups.setdefault(json.dumps(settings, sort_keys=True), []).append(number)
        done = len(requests) - sum(map(len, groups.values()))
        for settings_text, members in groups.items():
            members.sort(key=lambda number: -len(requests[number].args[0]))
            for start in range(0, len(members), GENERATED_ROWS):
                batch = members[start : start + GENERATED_ROWS]
                settings = json.loads(settings_text)
                found = self._generate([requests[n].args[0] for n in batch], settings, done)
                if not settings.get("do_sample"):
                    self.answers.add({keys[n]: t for n, t in zip(batch, found, strict=True)})
                for number, text in zip(batch, found, strict=True):
                    texts[number] = text
                done += len(batch)
                self.tell(done, len(requests))
        return [text or "" for text in texts]

    def _generate(self, contexts: list[str], settings: dict[str, Any], number: int) -> list[str]:
        asked = normalize_gen_kwargs(settings, NEW_TOKENS)
        count, until = int(asked["max_gen_toks"]), [stop for stop in asked["until"] if stop]
        temperature = float(asked.get("temperature") or 1.0) if asked["do_sample"] else 0.0
        sampling = Sampling(temperature, asked.get("top_k") or None, asked.get("top_p"))
        # As in the harness: leave room for the new tokens, or use half of the context.
        room = self.max_length - count if count < self.max_length else max(1, self.max_length // 2)
        prompts = [(self.tok_encode(text) or [self.eot_token_id])[-room:] for text in contexts]
        rows: list[list[int]] = [[] for _ in prompts]
        open_rows = set(range(len(rows)))
        seed = SEED + number
        for column in stream(
            self.model, prompts, count, sampling, seed=seed, end=self.eot_token_id
        ):
            for place in sorted(open_rows):
                token = column[place]
                if token is None or token == self.eot_token_id:
                    open_rows.discard(place)
                    continue
                rows[place].append(token)
                text = self.words.decode(rows[place]) if until else ""
                if any(stop in text for stop in until):
                    open_rows.discard(place)
            if not open_rows:
                break
        return [postprocess_generated_text(self.words.decode(row), until, None) for row in rows]
