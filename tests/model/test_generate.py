"""Generated tokens: with a cache as without, alone as among others, drawn as they should be."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import EVERY
from yuriiformer.errors import InputError
from yuriiformer.methods.passes import Query
from yuriiformer.model.context import positions_and_mask
from yuriiformer.model.generate import Predictor, Sampling, stream, window_start

GREEDY = Sampling(temperature=0)
CONTEXT, VALID = 4, 37
NEW = 8  # tokens, so that the window begins anew twice even for the shortest prompt


def model(rule="nesterov-lie-trotter", oracles="paper", *, context=CONTEXT, n_layer=3):
    """Small, and far from its start, so that its tokens differ."""
    config = yf.ModelConfig(
        rule,
        n_layer=n_layer,
        n_head=2,
        d_model=16,
        vocab_size=64,
        valid_vocab=VALID,
        context=context,
        oracles=oracles,
    )
    net = yf.YuriiFormer(config, seed=1)
    chance = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=chance))
    return net


PROMPTS = [[1], [2, 3], [4, 5, 6, 7], [*range(1, 8)]]


def texts(net, prompts, count, **options):
    columns = list(stream(net, prompts, count, GREEDY, **options))
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_cached_equals_uncached_and_alone_equals_among_others(rule, oracles):
    """Token for token, also beyond the context, for prompts of unequal lengths."""
    net = model(rule, oracles)
    found = texts(net, PROMPTS, NEW)
    assert found == texts(net, PROMPTS, NEW, cached=False)
    assert found == [texts(net, [prompt], NEW)[0] for prompt in PROMPTS]
    assert len({token for text in found for token in text}) > 2


@pytest.mark.parametrize("rule", list(yf.rules)[:17])
def test_logits_are_those_of_the_whole_text(rule):
    """For every length of prompt, one and several at a time, and every token after it."""
    net = model(rule, context=12).eval()
    chance = torch.Generator().manual_seed(3)
    text = torch.randint(VALID, (2, 12), generator=chance)
    whole = net(text)[:, :, :VALID].detach()
    with torch.inference_mode():
        for length in range(1, 13):
            predict = Predictor(net)
            for end in range(length, 13):
                logits = predict([row[:end].tolist() for row in text])
                torch.testing.assert_close(logits, whole[:, end - 1], rtol=0, atol=1e-4)
                if end > length + 2:
                    break
        lengths = (3, 9)
        rows = [row[:end].tolist() for row, end in zip(text, lengths, strict=True)]
        predict = Predictor(net)
        for step in range(3):
            logits = predict([row[: len(row)] for row in rows])
            for index, end in enumerate(lengths):
                expected = whole[index, end + step - 1]
                torch.testing.assert_close(logits[index], expected, rtol=0, atol=1e-4)
                rows[index].append(int(text[index, end + step]))


def test_a_slot_for_every_attention_call():
    for rule in yf.rules.values():
        net = model(rule.name)
        predict = Predictor(net)
        with torch.inference_mode():
            predict([[1, 2, 3]])
        calls = [
            sum(isinstance(step, Query) and step.oracle == "attn" for step in block.program.steps)
            for block in net.blocks
        ]
        assert predict.cache is not None
        assert [len(block.slots) for block in predict.cache.blocks] == calls
        assert all(slot.length == 3 for slot in predict.cache.slots)


def test_grouped_heads_keep_less():
    net = model(oracles="modern")
    predict = Predictor(net)
    with torch.inference_mode():
        predict([[1, 2]])
    assert predict.cache is not None
    assert predict.cache.slots[0].keys.shape == (1, 1, CONTEXT, 8)


def test_where_windows_begin():
    """The last half after the context is full, and then growing again, whatever the prompt was."""
    assert [window_start(n, 8) for n in range(1, 20)] == [0] * 8 + [5] * 5 + [10] * 5 + [15]
    for context in (1, 2, 3, 8, 9):
        for length in range(1, 60):
            seen = length - window_start(length, context)
            assert 1 <= seen <= context
            assert seen >= min(length, max(1, context // 2))


def test_oracles_that_remember_nothing_still_generate():
    from yuriiformer.model.oracles import MLP, Attention, OraclePair, layer_norm, register_oracles

    class Forgetful(Attention):
        def forward(self, Y, context):
            assert context.kv_cache is None
            return super().forward(Y, context)

    register_oracles("forgetting", OraclePair(Forgetful, MLP, layer_norm))
    net, twin = model(oracles="forgetting"), model()
    assert texts(net, PROMPTS, 12) == texts(twin, PROMPTS, 12)


def test_own_rules_with_other_streams():
    rule = yf.Rule(
        "mine",
        equations="G = attn(X)\nX = X + G - 0.3 * H\nX = X + mlp(X) + attn(X + G)\nH = G",
        streams={"H": "zero"},
    )
    net = model(rule)
    assert texts(net, PROMPTS, 20) == texts(net, PROMPTS, 20, cached=False)


PROMPT = torch.tensor([[3, 1, 4], [1, 5, 9]])


def test_padding_is_never_drawn_and_every_real_token_can_be():
    net = model()
    with torch.no_grad():
        net.token_table[VALID:] *= 1000  # what is likeliest by far is padding
    drawn = net.generate(PROMPT[:1].repeat(64, 1), 40, temperature=50.0)[:, 3:]
    assert int(drawn.max()) == VALID - 1
    assert len(drawn.unique()) == VALID


def chances(net, **options):
    """How often each token follows token 2, of 5,000 draws."""
    drawn = net.generate(torch.tensor([[2]]).repeat(5_000, 1), 1, **options)[:, 1]
    return torch.bincount(drawn, minlength=VALID) / 5_000


def test_draws_follow_the_probabilities():
    net = model(n_layer=1)
    logits = net(torch.tensor([[2]]))[0, -1, :VALID].detach()
    expected = torch.softmax(logits / 0.7, -1)
    assert torch.allclose(chances(net, temperature=0.7), expected, atol=0.025)
    kept = expected.topk(3).indices
    found = chances(net, temperature=0.7, top_k=3)
    assert set(found.nonzero().flatten().tolist()) == set(kept.tolist())
    assert torch.allclose(found[kept], expected[kept] / expected[kept].sum(), atol=0.025)


def test_top_p_keeps_the_fewest_that_suffice():
    net = model(n_layer=1)
    expected = torch.softmax(net(torch.tensor([[2]]))[0, -1, :VALID].detach(), -1)
    ordered, order = expected.sort(descending=True)
    count = int((ordered.cumsum(0) < 0.6).sum()) + 1
    found = chances(net, top_p=0.6)
    assert set(found.nonzero().flatten().tolist()) == set(order[:count].tolist())
    assert chances(net, top_p=1e-9)[order[0]] == 1  # never none


def test_repetition_penalty_by_hand():
    logits = torch.tensor([[2.0, -1.0, 3.0, 0.5]])
    penalised = Sampling(repetition_penalty=2.0)._penalise(logits, [[0, 1, 1]])
    assert penalised.tolist() == [[1.0, -2.0, 3.0, 0.5]]
    assert logits.tolist() == [[2.0, -1.0, 3.0, 0.5]]


def test_a_tiny_temperature_is_greedy():
    net = model()
    assert torch.equal(
        net.generate(PROMPT, 5, temperature=1e-38), net.generate(PROMPT, 5, temperature=0)
    )


def test_a_seed_repeats_and_a_row_is_its_own():
    net = model().train()
    before = torch.random.get_rng_state()
    one, two, other = (net.generate(PROMPT, 10, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(one[:1], net.generate(PROMPT[:1], 10, seed=5))
    assert not torch.equal(*net.generate(PROMPT[:1].repeat(2, 1), 10)[:, 3:])
    assert torch.equal(before, torch.random.get_rng_state())
    assert net.training


def test_rows_end():
    net = model()
    text = net.generate(PROMPT, 200, temperature=3.0, end=7)
    assert (text[:, -1] == 7).all()
    for row in text[:, 3:]:
        first = int((row == 7).nonzero()[0])
        assert (row[first:] == 7).all()
    columns = list(stream(net, PROMPT.tolist(), 200, Sampling(3.0), end=7))
    assert len(columns) == text.shape[1] - 3
    for index in range(2):
        row = [column[index] for column in columns]
        assert row[: row.index(7) + 1] == text[index, 3 : 4 + row.index(7)].tolist()
        assert all(token is None for token in row[row.index(7) + 1 :])


def test_no_tokens_asked_for():
    assert torch.equal(model().generate(PROMPT, 0), PROMPT)


def test_places():
    """Who sees whom, by hand: rows of 1 and 3 tokens after padding to 3, then one token more."""
    device = torch.device("cpu")
    pads = torch.tensor([2, 0])
    positions, mask, causal = positions_and_mask(0, 3, pads, device)
    assert positions.tolist() == [[0, 0, 0], [0, 1, 2]]
    assert mask[0, 0].tolist() == [[True, False, False], [False, True, False], [False, False, True]]
    assert mask[1, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert not causal
    positions, mask, _ = positions_and_mask(3, 1, pads, device)
    assert positions.tolist() == [[1], [3]]
    assert mask[:, 0, 0].int().tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    assert positions_and_mask(0, 3, None, device)[1:] == (None, True)
    assert positions_and_mask(5, 1, None, device)[1:] == (None, False)
    assert positions_and_mask(2, 2, None, device)[1].int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("tokens", "options", "words"),
    [
        (PROMPT[0], {}, "batch, token"),
        (PROMPT[:, :0], {}, "at least one token"),
        (PROMPT + 100, {}, "not in the vocabulary"),
        (PROMPT, {"temperature": -1.0}, "temperature"),
        (PROMPT, {"temperature": float("nan")}, "temperature"),
        (PROMPT, {"top_k": 0}, "top_k"),
        (PROMPT, {"top_p": 0.0}, "top_p"),
        (PROMPT, {"top_p": 1.5}, "top_p"),
        (PROMPT, {"repetition_penalty": 0.0}, "repetition_penalty"),
        (PROMPT, {"repetition_penalty": 1e9}, "repetition_penalty"),
        (PROMPT, {"max_new_tokens": -1}, "max_new_tokens"),
    ],
)
def test_bad_input(tokens, options, words):
    with pytest.raises(InputError, match=words):
        model().generate(tokens, **{"max_new_tokens": 2, **options})
