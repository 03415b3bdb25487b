"""A rule's block around modules of one's own, and the groups that an own loop trains."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from yuriiformer.errors import InputError
from yuriiformer.methods.catalog import rules
from yuriiformer.model.block import RuleBlock
from yuriiformer.model.config import ModelConfig
from yuriiformer.model.context import Context
from yuriiformer.model.model import YuriiFormer
from yuriiformer.model.parameters import parameter_groups


class WithContext(nn.Module):
    """A model's oracle as one of a single tensor."""

    def __init__(self, oracle: nn.Module, tokens: int) -> None:
        super().__init__()
        self.oracle, self.context = oracle, Context(torch.arange(tokens))

    def forward(self, Y):
        return self.oracle(Y, self.context)


@pytest.mark.parametrize("name", rules)
def test_it_is_the_block_of_a_model(name):
    config = ModelConfig(name, n_layer=2, n_head=2, d_model=16, vocab_size=31, context=8)
    block = YuriiFormer(config, seed=1).blocks[0]
    own = RuleBlock(
        name,
        WithContext(block.attn, 6),
        WithContext(block.mlp, 6),
        d_model=16,
        n_head=2,
        n_layer=2,
    )
    streams = {each: torch.rand(3, 6, 16) for each in rules[name].streams}  # a root needs S > 0
    expected = block(dict(streams), Context(torch.arange(6)))
    found = own(streams)
    for each, value in expected.items():
        assert torch.equal(found[each], value)


class Own(nn.Module):
    """A model of somebody else's, with PyTorch's attention and a tied output."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 31, bias=False)
        self.table = nn.Embedding(31, 16)
        self.head.weight = self.table.weight
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.block = RuleBlock(
            "nesterov-lie-trotter",
            nn.Identity(),
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)),
            d_model=16,
        )
        self.block.attn = _SelfAttention(self.attention)

    def forward(self, tokens):
        X = self.table(tokens)
        streams = self.block({"X": X, "V": X})
        return self.head(streams["X"])


class _SelfAttention(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, Y):
        return self.attention(Y, Y, Y, need_weights=False)[0]


def test_groups_hold_every_trained_parameter_once():
    model = Own()
    model.attention.in_proj_bias.requires_grad_(False)
    groups = parameter_groups(model)
    found = [id(each) for group in groups.values() for each in group]
    assert sorted(found) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    assert [each is model.table.weight for each in groups["embeddings"]] == [True]
    assert len(groups["coefficients"]) == 6
    assert all(each.ndim == 2 for each in groups["muon"])
    assert list(groups) == ["muon", "embeddings", "norms", "coefficients"]


def test_coefficients_are_learned_within_their_ranges():
    torch.manual_seed(0)
    model = Own()
    optimizer = torch.optim.SGD(parameter_groups(model)["coefficients"], lr=100.0)
    tokens = torch.randint(31, (4, 6))
    before = {name: float(value) for name, value in model.block.coefficients().items()}
    for _ in range(5):
        logits = model(tokens)
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    after = {name: float(value) for name, value in model.block.coefficients().items()}
    assert all(before[name] != after[name] for name in before)
    assert all(0 <= after[name] <= 1 for name in after if name.startswith(("mu", "beta")))
    assert all(after[name] >= 0 for name in after if name.startswith("gamma"))


def test_a_missing_stream_is_named():
    block = RuleBlock("polyak-euler", nn.Identity(), nn.Identity(), d_model=4)
    with pytest.raises(InputError, match="stream 'V'"):
        block({"X": torch.zeros(1, 2, 4)})
