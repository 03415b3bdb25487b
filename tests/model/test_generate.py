"""Generated tokens: what they are drawn from, and that the same seed draws the same."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from yuriiformer.errors import InputError


def model(rule="nesterov-lie-trotter", **options):
    config = yf.ModelConfig(
        rule,
        n_layer=2,
        n_head=2,
        d_model=16,
        vocab_size=64,
        valid_vocab=37,
        context=8,
        **options,
    )
    return yf.YuriiFormer(config, seed=1)


PROMPT = torch.tensor([[3, 1, 4], [1, 5, 9]])


@pytest.mark.parametrize("rule", ["gd-euler", "verlet-ama", "hamiltonian"])
def test_greedy_is_the_likeliest_real_token_each_time(rule):
    net = model(rule)
    tokens = PROMPT
    for _ in range(12):  # beyond the context, too
        logits = net(tokens[:, -8:])[:, -1, :37]
        tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], 1)
    assert torch.equal(net.generate(PROMPT, 12, temperature=0), tokens)


def test_padding_is_never_drawn_and_every_real_token_can_be():
    net = model()
    with torch.no_grad():
        net.token_table[37:] *= 1000  # what is likeliest by far is padding
    drawn = net.generate(PROMPT[:1].repeat(64, 1), 40, temperature=50.0)[:, 3:]
    assert int(drawn.max()) == 36
    assert len(drawn.unique()) == 37


def test_draws_follow_the_probabilities():
    net = model()
    start = torch.tensor([[2]]).repeat(20_000, 1)
    drawn = net.generate(start, 1, temperature=0.7)[:, 1]
    expected = torch.softmax(net(start[:1])[0, -1, :37] / 0.7, -1)
    found = torch.bincount(drawn, minlength=37) / 20_000
    assert torch.allclose(found, expected, atol=0.015)


def test_top_k_keeps_the_likeliest():
    net = model()
    start = torch.tensor([[2]]).repeat(2000, 1)
    likeliest = set(net(start[:1])[0, -1, :37].topk(3).indices.tolist())
    assert set(net.generate(start, 1, top_k=3)[:, 1].tolist()) == likeliest


def test_a_seed_repeats_and_leaves_torch_alone():
    net = model().train()
    before = torch.random.get_rng_state()
    one, two, other = (net.generate(PROMPT, 10, seed=seed) for seed in (5, 5, 6))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())
    assert net.training


def test_rows_end_and_are_filled_up():
    net = model()
    text = net.generate(PROMPT, 200, temperature=3.0, end=7)
    for row in text[:, 3:]:
        ends = (row == 7).nonzero()
        if len(ends):
            assert (row[ends[0] :] == 7).all()
    assert (text[:, -1] == 7).all() or text.shape[1] == 203


@pytest.mark.parametrize(
    ("tokens", "options", "words"),
    [
        (PROMPT[0], {}, "batch, token"),
        (PROMPT[:, :0], {}, "batch, token"),
        (PROMPT, {"temperature": -1.0}, "temperature"),
        (PROMPT, {"temperature": float("nan")}, "temperature"),
        (PROMPT, {"top_k": 0}, "top_k"),
        (PROMPT, {"max_new_tokens": -1}, "max_new_tokens"),
    ],
)
def test_bad_input(tokens, options, words):
    with pytest.raises(InputError, match=words):
        model().generate(tokens, **{"max_new_tokens": 2, **options})
