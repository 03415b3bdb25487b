"""transformers' `generate` with the rule's cache: the tokens of our own, alone and in batches."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.huggingface.test_model import REAL, wrapped
from tests.later import Later
from tests.model.tiny import OF_EACH_KIND, tokens
from yuriiformer.data.tokenizers import load_tokenizer
from yuriiformer.errors import InputError
from yuriiformer.model.oracles import SwiGLU, rms_norm

ours, transformers = Later("yuriiformer.huggingface"), Later("transformers")

GREEDY = {"do_sample": False, "eos_token_id": None, "pad_token_id": REAL}
TWICE = "verlet-ama"  # two attention calls in a block


def prompts(*lengths):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(REAL, (1, n), generator=generator) for n in lengths]


def padded(rows):
    """On the left; what stands there must not matter."""
    longest = max(row.shape[1] for row in rows)
    ids = torch.full((len(rows), longest), 5)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, longest - row.shape[1] :] = row
        mask[i, longest - row.shape[1] :] = 1
    return ids, mask


@pytest.mark.parametrize(("rule", "oracles"), OF_EACH_KIND)
def test_greedy_text(rule, oracles):
    net = wrapped(rule, oracles)
    rows = prompts(4, 1, 6)
    ids, mask = padded(rows)
    together = net.generate(ids, attention_mask=mask, max_new_tokens=4, **GREEDY)
    owns = [net.model.generate(row, 4, temperature=0) for row in rows]
    for own, found in zip(owns, together, strict=True):
        assert torch.equal(found[-4:], own[0, -4:])
    for cached in (True, False):
        found = net.generate(rows[0], max_new_tokens=4, use_cache=cached, **GREEDY)
        assert torch.equal(found, owns[0])


@pytest.mark.parametrize(("rule", "oracles"), OF_EACH_KIND)
def test_piece_by_piece(rule, oracles):
    """Logits of a text that comes in pieces, with padding anywhere, are those of the whole."""
    net = wrapped(rule, oracles)
    ids = tokens(net.model, batch=2)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    expected = [net.model(ids[:1]), net.model(ids[1:, 3:])]
    cache, found, start = None, [], 0
    with torch.no_grad():
        for end in (5, 6, 12):
            out = net(ids[:, start:end], mask[:, :end], past_key_values=cache, use_cache=True)
            cache, start = out.past_key_values, end
            found.append(out.logits)
    logits = torch.cat(found, 1)[..., :REAL]
    assert logits.isfinite().all()
    close = {"rtol": 0, "atol": 1e-4}
    torch.testing.assert_close(logits[:1], expected[0][..., :REAL], **close)
    torch.testing.assert_close(logits[1:, 3:], expected[1][..., :REAL], **close)
    calls = net.model.config.rule.oracle_calls["attn"]
    assert len([layer for layer in cache.layers if layer.get_seq_length()]) <= 3 * calls


def test_padding_on_the_right():
    net = wrapped()
    row = prompts(7)[0]
    ids = torch.cat([row, torch.full((1, 3), 4)], 1)
    mask = (torch.arange(10) < 7).long()[None]
    torch.testing.assert_close(net(ids, mask).logits[:, :7], net(row).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("length", range(1, 13))
def test_to_the_end_of_the_context(length):
    net = wrapped(TWICE)
    row = prompts(length)[0]
    found = net.generate(row, max_new_tokens=30, **GREEDY)
    assert found.shape[1] == 13  # all twelve predict one more
    assert torch.equal(found, net.model.generate(row, 13 - length, temperature=0))


def test_a_prompt_longer_than_the_context():
    with pytest.raises(InputError, match=r"prompt has 14 tokens, .* context is 12"):
        wrapped().generate(prompts(14)[0], max_new_tokens=1, **GREEDY)


@pytest.mark.parametrize("rule", ["gd-lie-trotter", TWICE, "imex2-mlp-attn", "hamiltonian"])
def test_beams(rule):
    net = wrapped(rule)
    ids, mask = padded(prompts(3, 5))
    found = [
        net.generate(
            ids, attention_mask=mask, max_new_tokens=7, num_beams=4, use_cache=cached, **GREEDY
        )
        for cached in (True, False)
    ]
    assert torch.equal(*found)
    assert not torch.equal(
        found[0], net.generate(ids, attention_mask=mask, max_new_tokens=7, **GREEDY)
    )


@pytest.mark.parametrize(
    ("rule", "oracles"), [(TWICE, "paper"), (TWICE, "modern"), ("gd-euler", "paper")]
)
def test_other_caches(rule, oracles):
    net = wrapped(rule, oracles)
    ids, mask = padded(prompts(3, 5))
    options = {"attention_mask": mask, "max_new_tokens": 6, **GREEDY}
    expected = net.generate(ids, **options)
    assert torch.equal(net.generate(ids, cache_implementation="static", **options), expected)
    config = net.config
    for cache in (
        transformers.DynamicCache(config=config),
        transformers.DynamicCache(),
        transformers.StaticCache(config, 12),
    ):
        assert torch.equal(net.generate(ids, past_key_values=cache, **options), expected)
    whole = net(ids, mask).logits
    found = net(ids, mask, past_key_values=transformers.StaticCache(config, 12)).logits
    torch.testing.assert_close(found[mask.bool()], whole[mask.bool()], rtol=0, atol=1e-4)


def test_going_on_with_a_cache():
    net = wrapped(TWICE)
    cache = transformers.DynamicCache()
    row = prompts(4)[0]
    first = net.generate(row, max_new_tokens=3, past_key_values=cache, **GREEDY)
    second = net.generate(first, max_new_tokens=4, past_key_values=cache, **GREEDY)
    assert torch.equal(second, net.model.generate(row, 7, temperature=0))


def test_a_cache_of_another_model():
    one, two = wrapped("gd-lie-trotter"), wrapped(TWICE)
    row = prompts(4)[0]
    cache = transformers.DynamicCache(config=one.config)
    one(row, past_key_values=cache)
    with pytest.raises(InputError, match="has 3 layers, but this model's rule needs 6"):
        two(row, past_key_values=cache)


def test_padding_of_the_vocabulary_is_never_drawn():
    net = wrapped()
    with torch.no_grad():
        net.model.token_table[REAL:] *= 1000
    torch.manual_seed(0)
    ids = prompts(2)[0].repeat(50, 1)
    for mode in (net.eval(), net.train()):
        options = {**GREEDY, "do_sample": True, "temperature": 50.0, "top_k": 0}
        drawn = mode.generate(ids, max_new_tokens=10, **options)
        assert int(drawn.max()) == REAL - 1
        beams = mode.generate(ids[:1], max_new_tokens=10, num_beams=3, **GREEDY)
        assert int(beams.max()) < REAL


def test_it_ends_with_the_end_of_text():
    net = wrapped()
    row = prompts(3)[0]
    own = net.model.generate(row, 9, temperature=0)
    end = int(own[0, 5])
    found = net.generate(row, max_new_tokens=9, **{**GREEDY, "eos_token_id": end})
    assert torch.equal(found[0], own[0, : 4 + own[0, 3:].tolist().index(end)])


class Forgetful(torch.nn.Module):
    """Attention to the mean of all before: it keeps nothing and knows no mask."""

    def __init__(self, config):
        super().__init__()
        self.map = torch.nn.Linear(config.d_model, config.d_model)

    def forward(self, Y, context):
        count = torch.arange(1, Y.shape[1] + 1)[:, None]
        return self.map(Y.cumsum(1) / count)


def test_oracles_without_a_cache():
    pair = yf.OraclePair(attention=Forgetful, mlp=SwiGLU, norm=rms_norm)
    yf.register_oracles("forgetful", pair)
    net = wrapped(TWICE, "forgetful")
    row = prompts(3)[0]
    own = net.model.generate(row, 5, temperature=0)
    assert torch.equal(net.generate(row, max_new_tokens=5, **GREEDY), own)
    with pytest.raises(InputError, match="cache cannot be used with these oracles"):
        net.generate(row, max_new_tokens=5, **GREEDY, use_cache=True)
    ids, mask = padded(prompts(3, 5))
    with pytest.raises(InputError, match="know no padding"):
        net(ids, mask)


def test_a_rule_whose_only_block_never_asks_attention():
    rule = yf.Rule("late", "X = X + V + mlp(X)\nV = V + attn(X)")
    net = wrapped(rule, n_layer=1)
    row = prompts(3)[0]
    own = net.model.generate(row, 5, temperature=0)
    assert torch.equal(net.generate(row, max_new_tokens=5, **GREEDY), own)


def test_the_pipeline(tmp_path):
    model = yf.YuriiFormer(
        yf.ModelConfig(
            TWICE, n_layer=2, n_head=2, d_model=16, vocab_size=320, valid_vocab=257, context=40
        ),
        seed=1,
    )
    ours.export_model(model, tmp_path / "out", load_tokenizer("bytes"))
    speak = transformers.pipeline("text-generation", str(tmp_path / "out"))
    assert isinstance(speak.model, ours.YuriiFormerForCausalLM)
    options = {"max_new_tokens": 8, "do_sample": False}
    texts = ["Once upon", "A", "The cat sät"]
    for batch in (1, 3):
        found = speak(texts, batch_size=batch, **options)
        for text, (answer,) in zip(texts, found, strict=True):
            ids = torch.tensor([list(text.encode())])
            own = model.generate(ids, 8, temperature=0)
            assert answer["generated_text"] == load_tokenizer("bytes").decode(own[0].tolist())
