"""torch.compile: no graph break, few graphs, no recompilation, the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import yuriiformer as yf
from tests.model.tiny import EVERY, tiny, tokens

pytestmark = pytest.mark.filterwarnings("default")  # the compiler's own remarks on itself


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def count_graphs(rule: str | yf.Rule, oracles: str, backend: str, layers: int = 12) -> int:
    """Three training steps of compiled layers; compares with the model as it is."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    plain = tiny(rule, oracles, n_layer=layers)
    compiled = tiny(rule, oracles, n_layer=layers).compile_blocks(backend=counter)
    for step in range(3):
        ids = tokens(plain, seed=step)
        losses = [model(ids, ids) for model in (plain, compiled)]
        for model, loss in zip((plain, compiled), losses, strict=True):
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-4)
    return counter.frame_count


@pytest.mark.parametrize("rule", ["nesterov-lie-trotter", "hamiltonian"])
def test_all_layers_share_at_most_two_graphs(rule):
    """One graph more for a layer more would show with four: a first, two inner, a last."""
    assert 1 <= count_graphs(rule, "paper", "eager", layers=4) <= 2


def test_the_whole_model_has_no_graph_break():
    model = tiny(n_layer=2)
    ids = tokens(model)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids), model(ids))
    torch.testing.assert_close(compiled(ids, ids), model(ids, ids))


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_no_rule_breaks_the_graph(rule, oracles):
    """The whole model of each rule, with one pair of oracles; its blocks, where a break is an error
    too, with both."""
    if oracles == ("paper", "modern")[list(yf.rules).index(rule) % 2]:
        model = tiny(rule, oracles, n_layer=2)
        ids = tokens(model)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        loss = compiled(ids, ids)
        loss.backward()
        torch.testing.assert_close(loss, model(ids, ids))
    assert count_graphs(rule, oracles, "aot_eager", layers=4) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["gd-lie-trotter", "nesterov-lie-trotter"])
def test_with_the_default_compiler(rule, need_tool):
    need_tool("g++")
    assert count_graphs(rule, "paper", "inductor") <= 2


@pytest.mark.slow
@pytest.mark.parametrize("oracles", ["paper", "modern"])
def test_own_rules_compile_too(oracles):
    rule = yf.Rule(
        "adam-like",
        """
        G = attn(X) + mlp(X)
        S = beta * S + (1 - beta) * square(G)
        X = X + gamma * G / sqrt(S + 0.001)
        """,
        streams={"S": "zero"},
    )
    assert count_graphs(rule, oracles, "aot_eager") <= 2
