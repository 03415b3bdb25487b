"""Log-likelihoods against the plain way: one pair at a time, from the model's logits."""

from __future__ import annotations

import os
import random

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import EVERY, OF_EACH_KIND, tiny, unsettle
from yuriiformer.errors import InputError, RunError
from yuriiformer.evaluation import scoring
from yuriiformer.evaluation.scoring import Answers, model_identity, score_batches

REAL, TABLE, CONTEXT = 23, 29, 12


def model(rule="nesterov-lie-trotter", oracles="paper") -> yf.YuriiFormer:
    made = tiny(rule, oracles, vocab_size=TABLE, valid_vocab=REAL, context=CONTEXT)
    return unsettle(made).eval()


def questions(seed: int = 0, count: int = 12) -> list[tuple[list[int], list[int]]]:
    """Of one to three answers each, from one token to more than the context."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        question = draw.choices(range(REAL), k=draw.randint(1, CONTEXT + 6))
        for _ in range(draw.randint(1, 3)):
            pairs.append((question, draw.choices(range(REAL), k=draw.randint(1, 5))))
    pairs.append(([1], draw.choices(range(REAL), k=CONTEXT)))  # just fits
    pairs.append((list(range(20)), draw.choices(range(REAL), k=CONTEXT)))
    return pairs


@torch.no_grad()
def longhand(model: yf.YuriiFormer, pair) -> tuple[float, bool]:
    """As the harness's hf model does it."""
    context, continuation = pair
    inputs = (context + continuation)[-(CONTEXT + 1) :][:-1]
    logits = model(torch.tensor([inputs]))[0, -len(continuation) :, :REAL]
    log_p = torch.log_softmax(logits.double(), -1)
    total = sum(log_p[place, token].item() for place, token in enumerate(continuation))
    return total, log_p.argmax(-1).tolist() == continuation


def log_likelihoods(model, pairs, **options):
    """The score of each pair, in their order."""
    found = {}
    for part in score_batches(model, pairs, **options):
        found |= part
    return [found[number] for number in range(len(pairs))]


BATCHES = (
    {"batch_tokens": 40},
    {"share": False},
    {"batch_tokens": 1},
    {},
    {"batch_tokens": 40, "share": False},
)


@pytest.mark.parametrize(("rule", "oracles"), OF_EACH_KIND)
def test_equal_to_longhand_for_any_batch(rule, oracles):
    """In batches of every kind for one rule, and of two kinds for the others."""
    made, pairs = model(rule, oracles), questions(count=8)
    right = [longhand(made, pair) for pair in pairs]
    for options in BATCHES if rule == "nesterov-lie-trotter" else BATCHES[:2]:
        found = log_likelihoods(made, pairs, **options)
        assert [each.log_likelihood for each in found] == pytest.approx(
            [total for total, _ in right], abs=1e-4
        )
        assert [each.greedy for each in found] == [greedy for _, greedy in right]


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_sharing_changes_no_score(rule, oracles):
    """Of every rule: contexts read once, against a row for each pair."""
    made, pairs = model(rule, oracles), questions(seed=1, count=4)
    once, apart = (log_likelihoods(made, pairs, share=share) for share in (True, False))
    assert [each.log_likelihood for each in once] == pytest.approx(
        [each.log_likelihood for each in apart], abs=1e-4
    )
    assert [each.greedy for each in once] == [each.greedy for each in apart]


def test_answers_to_a_question_are_read_in_one_row(monkeypatch):
    made, shapes = model(), []
    hidden = made.hidden
    monkeypatch.setattr(made, "hidden", lambda t, c: shapes.append(t.shape) or hidden(t, c))
    pairs = [([1, 2, 3, 4], [answer, 5]) for answer in range(4)]
    log_likelihoods(made, pairs)
    assert shapes == [(1, 4 + 4 * 1)]
    shapes.clear()
    log_likelihoods(made, pairs, share=False)
    assert shapes == [(4, 5)]


def test_greedy():
    made = model()
    start = torch.tensor([[3, 1, 4]])
    text = made.generate(start, 4, temperature=0)[0].tolist()
    pairs = [(text[:3], text[3:]), (text[:3], [*text[3:6], (text[6] + 1) % REAL])]
    assert [each.greedy for each in log_likelihoods(made, pairs)] == [True, False]


def test_padded_ids_have_no_share():
    made = model()
    pairs = questions()
    before = log_likelihoods(made, pairs)
    with torch.no_grad():
        made.token_table[REAL:] *= 100
    assert log_likelihoods(made, pairs) == before
    with pytest.raises(InputError, match="not one of the model's 23"):
        log_likelihoods(made, [([1], [REAL])])


def test_logits_in_chunks(monkeypatch):
    made, pairs = model(), questions()
    before = log_likelihoods(made, pairs)
    monkeypatch.setattr(scoring, "LOGIT_ELEMENTS", 3 * REAL)
    for one, two in zip(before, log_likelihoods(made, pairs), strict=True):
        assert one.log_likelihood == pytest.approx(two.log_likelihood, abs=1e-5)


def test_the_mode_comes_back():
    made = model().train()
    log_likelihoods(made, questions())
    assert made.training


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (([], [1]), "a context has at least one token"),
        (([1], []), "a continuation has at least one token"),
        (([1], [1] * (CONTEXT + 1)), "13 tokens does not fit the model's context of 12"),
    ],
)
def test_pairs_that_cannot_be_scored(pair, words):
    with pytest.raises(InputError, match=words):
        log_likelihoods(model(), [pair])


def test_identity_tells_models_apart():
    one = model()
    assert model_identity(one) == model_identity(model())
    others = [model("gd-euler"), model(oracles="modern")]
    nudged = model()
    with torch.no_grad():
        nudged.token_table[0, 0] += 1e-6
    assert len({model_identity(each) for each in (one, nudged, *others)}) == 4


def test_answers_that_are_something_else_are_left_out(tmp_path):
    path = tmp_path / "cache.jsonl"
    path.write_bytes(b"[" * 100_000 + b'\n["x", 1]\n{"a": 1}\n["' + b"0" * 32 + b'", 9, 9]\n\xff\n')
    assert Answers(path, "model").known == {}
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="cannot be read: it is no ordinary file"):
        Answers(tmp_path / "pipe", "model")


def test_answers_outlive_a_crash(tmp_path):
    path = tmp_path / "deep" / "cache.jsonl"
    first = Answers(path, "model")
    first.add({first.key([1], [2]): [-1.5, True], first.key([1], [3]): [-0.1, False]})
    path.write_text(path.read_text() + '["half a li')  # killed while it wrote
    second = Answers(path, "model")
    assert second.known == first.known
    second.add({second.key([1], [4]): [-2.0, False]})
    assert Answers(path, "model").known == second.known
    assert len(second.known) == 3
    assert second.fresh == 1
    assert Answers(path, "other").key([1], [2]) not in second.known
