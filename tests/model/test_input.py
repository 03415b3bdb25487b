"""Bad input: each one clear error naming the value and the remedy."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.model.tiny import tiny, tokens
from yuriiformer.errors import ConfigError, InputError, UnknownRuleError

CONFIGS = [
    ({"d_model": 100, "n_head": 12}, "d_model=100 is not divisible by n_head=12: take n_head=10"),
    ({"n_layer": 0}, "n_layer must be at least 1, not 0"),
    ({"n_layer": 2.0}, "n_layer must be a whole number, not 2.0"),
    ({"context": True}, "context must be a whole number"),
    ({"vocab_size": 10, "valid_vocab": 11}, "valid_vocab=11 is more than vocab_size=10"),
    ({"gelu": "fast"}, "gelu='fast' is not one of"),
    ({"velocity_norm": "none"}, "velocity_norm='none' is not one of"),
    ({"oracles": 3}, "oracles are named by text, not 3"),
    ({"oracles": "modem"}, "unknown oracles 'modem' (did you mean 'modern'?)"),
    ({"n_kv_head": 4}, "n_kv_head=4 has no meaning for oracles='paper'"),
    ({"oracles": "modern", "bias": True}, "have no biases"),
    ({"oracles": "modern", "n_kv_head": 5}, "n_kv_head=5 does not divide n_head=12"),
    ({"oracles": "modern", "d_model": 36}, "even head width, not d_model/n_head = 3"),
]


@pytest.mark.parametrize(("options", "reason"), CONFIGS)
def test_configurations(options, reason):
    with pytest.raises(ConfigError) as caught, torch.device("meta"):
        yf.YuriiFormer(yf.ModelConfig(**options))
    assert reason in str(caught.value)


def test_an_unknown_rule():
    with pytest.raises(UnknownRuleError, match=r"did you mean .*'verlet-ama'"):
        yf.ModelConfig("verlet-aam")


INPUTS = [
    (lambda ids: (ids.float(),), "tokens must be whole numbers, not torch.float32"),
    (lambda ids: (ids.bool(),), "tokens must be whole numbers, not torch.bool"),
    (lambda ids: (ids[0],), r"tokens must be (batch, token), not of shape (12,)"),
    (lambda ids: (torch.cat([ids, ids], 1),), "24 tokens do not fit: this model takes 1 to 12"),
    (lambda ids: (ids[:, :0],), "0 tokens do not fit"),
    (lambda ids: (ids + 29,), "is out of range: this model's vocabulary is 0 to 28"),
    (lambda ids: (ids - 29,), "is out of range"),
    (lambda ids: (ids, ids[:, 1:]), "targets have shape (2, 11), but tokens (2, 12)"),
    (lambda ids: (ids, ids + 29), "target id"),
    (lambda ids: (ids, ids.float()), "targets must be whole numbers"),
    (lambda ids: (ids.tolist(),), "tokens must be a tensor, not list"),
    (lambda ids: (ids.numpy(),), "tokens must be a tensor, not ndarray"),
]


@pytest.mark.parametrize(("arguments", "reason"), INPUTS)
def test_tokens(arguments, reason):
    model = tiny()
    with pytest.raises(InputError) as caught:
        model(*arguments(tokens(model)))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.int64]
)
def test_integers_of_any_size(dtype):
    model = tiny()
    ids = tokens(model)
    assert torch.equal(model(ids.to(dtype)), model(ids))
    torch.testing.assert_close(model(ids.to(dtype), ids.to(dtype)), model(ids, ids))


def test_every_error_is_a_value_error():
    assert issubclass(yf.YuriiError, ValueError)
    assert all(issubclass(e, yf.YuriiError) for e in (ConfigError, InputError, UnknownRuleError))
