"""Validation losses against the run's own record and against longhand sums."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.model.tiny import tiny, unsettle
from tests.training.corpora import tales as tales_bpe
from tests.training.runs import losses, small, tales
from yuriiformer.data.store import TokenStore
from yuriiformer.errors import DataError
from yuriiformer.evaluation.evaluate import evaluate
from yuriiformer.evaluation.validation import (
    as_trained,
    exact_windows,
    protocol_windows,
)
from yuriiformer.model.files import load_model
from yuriiformer.runs.checkpoint import read_checkpoint
from yuriiformer.runs.folder import RunFolder
from yuriiformer.training.session import train


def byte_model(context: int = 12):
    return unsettle(tiny(vocab_size=320, valid_vocab=257, context=context))


def byte_store(text: str, documents: int = 1) -> TokenStore:
    tokens = [token for _ in range(documents) for token in (*text.encode(), 256)]
    meta = {"tokenizer": {"name": "bytes", "vocab_size": 257}}
    return TokenStore(tales(), np.zeros(0, np.uint16), np.array(tokens, np.uint16), meta)


@torch.no_grad()
def longhand(model, tokens: list[int], context: int) -> float:
    """Nats of every token but the first, each seeing what its window has before it."""
    nats = 0.0
    for place in range(1, len(tokens)):
        start = (place - 1) // context * context
        logits = model(torch.tensor([tokens[start:place]]))[0, -1]
        nats -= torch.log_softmax(logits.double(), -1)[tokens[place]].item()
    return nats


@pytest.mark.parametrize("sequences", [8, 600])  # some of the split; more than all of it
def test_the_loss_that_the_run_recorded(tmp_path, sequences):
    config = small(steps=4, eval_every=4)
    config = replace(config, validation=replace(config.validation, eval_sequences=sequences))
    train(config, tales(), tmp_path / "run")
    store, run = TokenStore.open(tales()), RunFolder(tmp_path / "run")
    assert 8 < len(store.val) // 32 < 600
    for name in ("best", "final"):
        checkpoint = read_checkpoint(run.checkpoints / name)
        model = load_model(checkpoint.folder)
        seen = []
        with as_trained(model, run.read_config()) as dtype:
            found = protocol_windows(store, 32, sequences).loss(
                model, batch=5, tell=lambda *now, seen=seen: seen.append(now)
            )
        assert dtype == "float32"
        recorded = {step: loss for step, _, loss in losses(tmp_path / "run") if loss}
        assert found.mean == pytest.approx(recorded[checkpoint.step], abs=1e-6)
        assert found.tokens == sequences * 32
        assert (seen[0], seen[-1]) == ((0, sequences), (sequences, sequences))
        assert found.perplexity == pytest.approx(math.exp(found.mean))


def test_a_run_that_validates_on_blocks_spread_over_the_split(tmp_path):
    """What the run recorded is the mean over those blocks, and evaluation reads the same."""
    config = small(steps=2, eval_every=2)
    config = replace(config, validation=replace(config.validation, eval_blocks="spread"))
    train(config, tales(), tmp_path / "run")
    store = TokenStore.open(tales())
    blocks = (len(store.val) - 1) // 32
    model = load_model(tmp_path / "run" / "checkpoints" / "final")
    windows = protocol_windows(store, 32, 8, "spread")
    assert windows.starts.tolist() == [32 * (i * blocks // 8) for i in range(8)]
    assert windows.starts[-1] > 8 * 32
    recorded = losses(tmp_path / "run")[-1][2]
    assert windows.loss(model).mean == pytest.approx(recorded, abs=1e-6)
    assert protocol_windows(store, 32, 8).loss(model).mean != pytest.approx(recorded, abs=1e-4)
    found = evaluate(tmp_path / "run", "final")["validation"]
    assert found["eval_blocks"] == "spread"
    assert found["protocol"]["loss"] == pytest.approx(recorded, abs=1e-6)


def test_a_run_in_bfloat16(tmp_path):
    config = small(steps=2, eval_every=2)
    machine = replace(config.machine, precision="bfloat16", stream_precision="bfloat16")
    train(replace(config, machine=machine), tales(), tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    checkpoint = read_checkpoint(run.checkpoints / "best")
    model, store = load_model(checkpoint.folder), TokenStore.open(tales())
    with as_trained(model, run.read_config()) as dtype:
        found = protocol_windows(store, 32, 8).loss(model, batch=3)
    assert dtype == "bfloat16"
    assert found.mean == pytest.approx(checkpoint.manifest["about"]["val_loss"], abs=1e-6)
    assert model.stream_dtype is None
    with as_trained(model, {**run.read_config(), "resolved": {"device": "cuda"}}) as dtype:
        assert (dtype, model.stream_dtype) == ("float32", None)


@pytest.mark.parametrize("length", [1, 11, 12, 13, 24, 40])
def test_the_exact_loss(length):
    model, store = byte_model(), byte_store("Ein Apfel fällt nicht weit vom Stamm. " * 3)
    cut = TokenStore(store.folder, store.train, store.val[: length + 1], store.meta)
    found = exact_windows(cut, 12).loss(model, batch=2)
    assert found.tokens == length
    assert found.nats == pytest.approx(longhand(model, cut.val.tolist(), 12), rel=1e-5)


def test_both_agree_where_the_sequences_are_the_split():
    model, store = byte_model(), byte_store("x" * 59 + "y")  # 60 bytes and an end: 5 windows of 12
    exact, protocol = (
        exact_windows(store, 12).loss(model),
        protocol_windows(store, 12, 5).loss(model),
    )
    assert exact.mean == pytest.approx(protocol.mean)


def test_bits_per_byte_by_hand():
    text = "Grüße an alle."
    model, store = byte_model(), byte_store(text, documents=3)
    size = 3 * len(text.encode())
    assert size == 3 * (len(text) + 2)
    bits = longhand(model, store.val.tolist(), 12) / math.log(2) / size
    assert exact_windows(store, 12).loss(model).bits_per_byte(size) == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize("folder", [tales, tales_bpe])
def test_bytes_of_a_prepared_corpus(folder):
    store = TokenStore.open(folder())
    tokenizer = store.tokenizer()
    text = tokenizer.decode(store.val[store.val != tokenizer.end_of_text].tolist())
    assert len(text.encode()) == store.meta["splits"]["val"]["text_bytes"]  # end marks are no text


def test_a_split_that_is_too_short():
    store = byte_store("short")
    with pytest.raises(DataError, match="6 tokens, less than one sequence of 12"):
        protocol_windows(store, 12, 4)
    nothing = TokenStore(store.folder, store.train, store.val[:1], store.meta)
    with pytest.raises(DataError, match="no two tokens"):
        exact_windows(nothing, 12)
