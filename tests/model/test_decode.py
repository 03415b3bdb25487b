"""Tokens by the list of operations in C: torch's logits, and torch's work where there is none."""

from __future__ import annotations

import subprocess

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import EVERY, tiny, unsettle
from yuriiformer.errors import InputError
from yuriiformer.methods.coefficients import Coefficient
from yuriiformer.model import compiled
from yuriiformer.model.decode import ROWS, SOURCE, TOKENS, decoder
from yuriiformer.model.generate import Predictor, Sampling, stream

GREEDY = Sampling(temperature=0)
PROMPTS = ([[3, 1, 4]], [[1, 5, 9, 2], [6], [5, 3]], [[token] for token in range(1, 8)])
NO_LIST = "adam-like"  # it has a square root


@pytest.fixture(autouse=True)
def _need_compiler(need_tool):
    need_tool("cc")
    assert compiled.library(SOURCE) is not None


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Nothing is compiled yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled.library.cache_clear()
    yield tmp_path / "yuriiformer"
    compiled.library.cache_clear()


def check(net, prompts, steps):
    """Both ways along one text, beyond the context too."""
    ours, torchs = Predictor(net), Predictor(net)
    rows = [list(prompt) for prompt in prompts]
    with torch.inference_mode():
        ours.decoder = decoder(net, ours.cache, len(rows))
        assert ours.decoder is not None
        for _ in range(steps):
            expected = torchs(rows)
            torch.testing.assert_close(ours(rows), expected, rtol=1e-5, atol=1e-4)
            for row in rows:
                row.append(7 * len(row) % net.config.real_vocab)
    assert [slot.length for slot in ours.cache.slots] == [s.length for s in torchs.cache.slots]
    assert expected.std() > 0.01


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_logits(rule, oracles):
    net = unsettle(tiny(rule, oracles, d_model=24, n_head=2, vocab_size=37, valid_vocab=31)).eval()
    if rule == NO_LIST:
        assert decoder(net, Predictor(net).cache, 1) is None
        return
    for prompts in PROMPTS:
        check(net, prompts, 15)


def test_biases():
    net = tiny("nesterov-lie-trotter", bias=True)
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    check(net.eval(), PROMPTS[1], 3)


@pytest.mark.slow  # so some of these run where the compiler comes with the slow tests
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 11])
@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_sizes(rows, gelu, threads):
    """Enough for several threads, whole and broken vectors and tiles, gains and biases."""
    sizes = {"d_model": 200, "n_head": 2, "vocab_size": 331, "n_layer": 2, "context": 48}
    net = tiny("nesterov-lie-trotter", bias=True, gelu=gelu, **sizes)
    for parameter in net.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(net.eval(), torch.randint(331, (rows, 30)).tolist(), 25)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("shape", ["scalar", "head", "channel"])
def test_coefficients_and_numbers(shape):
    rule = yf.Rule(
        "mine",
        equations=(
            "Z = 2 * V\nV = -(b * V) / (1 + c) + norm(c * attn(X - mlp(Z))) - 0.5\n"
            "X = X + b / c * unit(V) * V + 0.1 * attn(V)"
        ),
        streams={"V": "normalized"},
        coefficients={
            "b": Coefficient("positive", 0.3, shape),
            "c": Coefficient("real", 0.7, shape, learned=False),
        },
    )
    check(unsettle(tiny(rule), 3).eval(), PROMPTS[1], 15)


def test_text_is_that_without_a_cache():
    net = unsettle(tiny(context=2 * TOKENS)).eval()
    found = list(stream(net, PROMPTS[1], TOKENS, GREEDY))
    assert found == list(stream(net, PROMPTS[1], TOKENS, GREEDY, cached=False))


@pytest.mark.parametrize("tokens", [TOKENS - 1, TOKENS])
def test_for_texts_of_some_length(monkeypatch, tokens):
    asked = []
    monkeypatch.setattr("yuriiformer.model.generate.decoder", lambda *a: asked.append(a))
    assert len(list(stream(tiny(), [[1, 2]], tokens, GREEDY))) == tokens
    assert len(asked) == (tokens == TOKENS)


def test_damaged_weights_are_found():
    net = tiny()
    net.blocks[1].mlp.up.weight.data[0, 0] = torch.nan
    with pytest.raises(InputError, match="no finite numbers"):
        list(stream(net, [[1, 2]], TOKENS, GREEDY))
    net = tiny()
    shown = stream(net, [[1, 2]], TOKENS, GREEDY)
    next(shown)
    net.blocks[0].attn.qkv.weight.data[0, 0] = torch.nan  # after the prompt
    with pytest.raises(InputError, match="no finite numbers"):
        list(shown)


def halved(net):
    net.blocks[0].mlp.register_forward_hook(lambda module, given, answer: 0.5 * answer)


def own_oracle(net):
    class Mine(type(net.blocks[0].mlp)):
        def forward(self, Y, context):
            return 0.5 * super().forward(Y, context)

    net.blocks[0].mlp.__class__ = Mine


def own_layer(net):
    class Mine(type(net.blocks[0].mlp.up)):
        def forward(self, x):
            return 0.5 * super().forward(x)

    net.blocks[0].mlp.up.__class__ = Mine


def other_norm(net):
    net.blocks[0].velocity_norms[0].eps = 0.1


def doubles(net):
    net.double()


def half_streams(net):
    net.stream_dtype = torch.bfloat16


@pytest.mark.parametrize(
    "change", [halved, own_oracle, own_layer, other_norm, doubles, half_streams]
)
def test_what_the_list_does_not_know_is_left_to_torch(change):
    net, cache = unsettle(tiny()), Predictor(tiny()).cache
    assert decoder(net, cache, 1) is not None
    change(net)
    assert decoder(net, cache, 1) is None
    assert len(list(stream(net, [[1, 2]], TOKENS, GREEDY))) == TOKENS


def test_many_rows_and_autocast_are_left_to_torch():
    net, cache = tiny(), Predictor(tiny()).cache
    assert decoder(net, cache, ROWS + 1) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert decoder(net, cache, 1) is None
    assert decoder(net, None, 1) is None


@pytest.mark.parametrize("compiler", ["", "no-such-compiler", "false"])
def test_without_a_compiler(monkeypatch, fresh, compiler):
    monkeypatch.setenv("CC", compiler)
    assert compiled.library(SOURCE) is None
    net = unsettle(tiny())
    assert len(list(stream(net, [[1, 2]], TOKENS, GREEDY))) == TOKENS
    assert list(fresh.glob("*")) == []


def test_where_nothing_can_be_written(monkeypatch, fresh):
    fresh.write_text("a file where the folder should be")
    assert compiled.library(SOURCE) is None


def test_compiled_once_and_again_for_other_code(monkeypatch, fresh, tmp_path):
    runs = []
    real = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: runs.append(a) or real(*a, **k))
    code = tmp_path / "code.c"
    for number, expected in ((1, 2), (1, 2), (2, 4)):
        code.write_text(f"int answer(void) {{ return {number}; }}")
        compiled.library.cache_clear()
        assert compiled.library(code).answer() == number
        assert len(runs) == expected
    assert len(list(fresh.glob("*"))) == 2
