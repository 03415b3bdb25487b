"""Properties of the whole model: every rule, both pairs of oracles."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

import yuriiformer as yf
from tests.model.tiny import EVERY, PAIRS, memorise, tiny, tokens, unsettle
from yuriiformer.model.context import Context


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_causal(rule, oracles):
    """Changing token j changes no logit before j, and changes one from j on."""
    model = unsettle(tiny(rule, oracles)).double()
    ids = tokens(model)
    before = model(ids)
    for j in (0, 5, ids.shape[1] - 1):
        changed = ids.clone()
        changed[:, j] = (changed[:, j] + 1) % model.config.vocab_size
        after = model(changed)
        assert torch.equal(before[:, :j], after[:, :j])
        assert (before[:, j:] - after[:, j:]).abs().amax() > 1e-6


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_deterministic_and_independent_of_the_batch(rule, oracles):
    one, two = tiny(rule, oracles), tiny(rule, oracles)
    ids = tokens(one)
    assert torch.equal(one(ids), one(ids))
    assert torch.equal(one(ids), two(ids))
    torch.testing.assert_close(one(ids)[:1], one(ids[:1]), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(one(ids)[:, :7], one(ids[:, :7]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_gradients_match_finite_differences(rule, oracles):
    """Along a random direction of the parameters of every name, and along all at once."""
    model = unsettle(tiny(rule, oracles, n_layer=2, context=5)).double()
    ids = tokens(model)
    targets = tokens(model, seed=7)
    model(ids, targets).backward()
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    generator = torch.Generator().manual_seed(3)
    directions = {
        n: F.normalize(torch.randn(p.shape, generator=generator).double().flatten(), dim=0)
        for n, p in parameters.items()
    }
    kinds = {re.sub(r"\d+", "", name) for name in parameters}
    groups = [[n for n in parameters if re.sub(r"\d+", "", n) == kind] for kind in sorted(kinds)]
    groups.append(list(parameters))
    h = 1e-5
    with torch.no_grad():
        for group in groups:
            slope = sum((parameters[n].grad.flatten() @ directions[n]).item() for n in group)
            values = []
            for sign in (1, -2):
                for n in group:
                    parameters[n].add_(sign * h * directions[n].view_as(parameters[n]))
                values.append(model(ids, targets).item())
            for n in group:
                parameters[n].add_(h * directions[n].view_as(parameters[n]))
            measured = (values[0] - values[1]) / (2 * h)
            assert measured == pytest.approx(slope, rel=1e-5, abs=1e-8), group


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
@pytest.mark.parametrize("velocity_norm", ["shared", "separate"])
def test_live_parameters_get_a_gradient_and_dead_ones_are_named(rule, oracles, velocity_norm):
    model = unsettle(tiny(rule, oracles, velocity_norm=velocity_norm))
    for parameter in model.parameters():
        parameter.requires_grad_(True)  # the frozen ones too: autograd is to find them dead
    ids = tokens(model)
    model(ids, ids).backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    if model.streams.get("V") == "zero":  # in the first block mu and beta weigh a velocity of 0
        rest = [f"blocks.0.coefficients.raw_{name}" for name in ("mu", "beta")]
        without = [name for name in without if name not in rest]
    assert without == model.dead_parameters()
    frozen = [n for n, p in tiny(rule, oracles).named_parameters() if not p.requires_grad]
    if velocity_norm == "shared":
        assert frozen == model.dead_parameters()


def test_the_dead_parameters_of_the_hamiltonian_rule():
    dead = tiny("hamiltonian").dead_parameters()
    assert dead == [
        "blocks.2.mlp.norm.weight",
        "blocks.2.mlp.up.weight",
        "blocks.2.mlp.down.weight",
        "blocks.2.coefficients.raw_gamma_half",
    ]
    assert [rule for rule in yf.rules if tiny(rule).dead_parameters()] == ["hamiltonian"]


def test_training_with_dead_parameters_does_not_fail():
    losses = memorise(tiny("hamiltonian"), 40)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("start", ["zero", "tied", "normalized", "tables"])
def test_where_the_velocity_starts(start):
    model = tiny(f"nesterov-lie-trotter+V={start}")
    ids, positions = tokens(model), torch.arange(model.config.context)
    streams = model.start_streams(ids, positions)
    main, own = model.starts["X_0"], dict(model.starts).get("V_0")
    embedded = main.tokens.weight[ids] + main.positions.weight
    assert torch.equal(streams["X"], embedded)
    if start == "zero":
        assert own is None
        assert not streams["V"].any()
    elif start == "tied":
        assert own is None
        assert torch.equal(streams["V"], embedded)
    else:
        raw = own.tokens.weight[ids] + own.positions.weight
        expected = F.layer_norm(raw, (16,)) if start == "normalized" else raw
        assert torch.equal(streams["V"], expected)


def test_a_normalized_x_leaves_a_tied_velocity_raw():
    model = tiny("nesterov-lie-trotter+X=normalized+V=tied")
    ids, positions = tokens(model), torch.arange(model.config.context)
    streams = model.start_streams(ids, positions)
    torch.testing.assert_close(streams["X"], F.layer_norm(streams["V"], (16,)))
    assert streams["V"].std() < 0.1


def test_a_constant_stream_reaches_every_block_unchanged():
    """`gd-table` written out: the second table is added before each block's two steps."""
    model = unsettle(tiny("gd-table"))
    ids, positions = tokens(model), torch.arange(model.config.context)
    X, E = (
        model.starts[f"{name}_0"].tokens.weight[ids] + model.starts[f"{name}_0"].positions.weight
        for name in "XE"
    )
    for block in model.blocks:
        X = X + block.coefficients()["lam"] * F.layer_norm(E, (16,))
        X = X + block.attn(X, Context(positions))
        X = X + block.mlp(X, Context(positions))
    logits = model.norm(X) @ model.token_table.T
    torch.testing.assert_close(model(ids), logits)


def test_one_velocity_norm_a_block_or_one_a_call():
    shared, separate = tiny("verlet-ama"), tiny("verlet-ama", velocity_norm="separate")
    assert [len(b.velocity_norms) for b in shared.blocks] == [1, 1, 1]
    assert [len(b.velocity_norms) for b in separate.blocks] == [3, 3, 3]
    ids = tokens(shared)
    assert torch.equal(shared(ids), separate(ids))  # all gains start at 1
    with torch.no_grad():
        separate.blocks[1].velocity_norms[2].weight.mul_(2.0)
    assert not torch.equal(shared(ids), separate(ids))


DOCS = {
    "adams-bashforth": yf.Rule(
        "adams-bashforth",
        "F = attn(X) + mlp(X)\nX = X + gamma * (1.5 * F - 0.5 * G)\nG = F",
        streams={"G": "zero"},
    )
}


@pytest.mark.parametrize(
    ("rule", "oracles"), [*EVERY, *((rule, pair) for rule in DOCS for pair in PAIRS)]
)
def test_streams_stay_float32_under_autocast(rule, oracles):
    """Oracles work in bfloat16; streams, locals, LN_v and sums of answers do not."""
    model = tiny(DOCS.get(rule, rule), oracles)
    seen, inside = [], []
    model.blocks[0].attn.out.register_forward_hook(lambda *a: inside.append(a[2].dtype))
    ids, positions = tokens(model), torch.arange(model.config.context)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        streams = model.start_streams(ids, positions)
        for block in model.blocks:
            streams = block(
                streams, Context(positions), lambda step, value, _: seen.append(value.dtype)
            )
        loss = model(ids, ids)
    loss.backward()
    assert set(inside) == {torch.bfloat16}
    assert set(seen) == {torch.float32}
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(model(ids, ids).item(), rel=0.03)


class Recorder(torch.nn.Module):
    """Passes an oracle's calls on, and remembers how each was numbered."""

    def __init__(self, oracle, calls):
        super().__init__()
        self.oracle, self.calls = oracle, calls

    def forward(self, Y, context):
        self.calls.append(context.call)
        assert torch.equal(context.positions, torch.arange(Y.shape[1]))
        return self.oracle(Y, context)


@pytest.mark.parametrize("rule", yf.rules)
def test_oracles_are_told_which_call_of_the_block_it_is(rule):
    model = tiny(rule)
    block, calls = model.blocks[0], {"attn": [], "mlp": []}
    block.attn, block.mlp = Recorder(block.attn, calls["attn"]), Recorder(block.mlp, calls["mlp"])
    model(tokens(model))
    expected = {oracle: list(range(n)) for oracle, n in yf.rules[rule].oracle_calls.items()}
    assert calls == expected


def test_the_start_of_a_stream_that_nothing_reads_is_dead():
    """In a shallow model a delayed answer never arrives; DDP would wait for its gradient."""
    rule = yf.Rule(
        "delayed",
        "X = X + attn(X) + H\nH = G\nG = mlp(X)",
        streams={"G": "tables", "H": "tables"},
    )
    model = tiny(rule, n_layer=1)
    ids = tokens(model)
    model(ids, ids).backward()
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert sorted(without) == sorted(model.dead_parameters())
    assert {"starts.G_0.tokens.weight", "starts.G_0.positions.weight"} < set(without)
    assert all(not p.requires_grad for n, p in model.named_parameters() if n in without)
    assert not any("starts" in n for n in tiny(rule, n_layer=2).dead_parameters())


def test_fake_tensors():
    """Shapes and dtypes without memory, for planning."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        model = tiny()
        ids = torch.zeros(2, 12, dtype=torch.long)
        assert model(ids).shape == (2, 12, 29)
        model(ids, ids).backward()
        assert model.token_table.grad.shape == (29, 16)


def test_the_model_is_differentiable_in_the_velocity_table():
    """v0 is part of the model: its table is trained through the first lookahead."""
    model = tiny()
    ids = tokens(model)
    model(ids, ids).backward()
    grad = model.starts["V_0"].tokens.weight.grad
    used = torch.zeros(29, dtype=torch.bool).index_fill(0, ids.flatten(), True)
    assert (grad.abs().sum(1) > 0).equal(used)


@pytest.mark.parametrize("rule", ["gd-lie-trotter", "hamiltonian", "nesterov-classical"])
def test_a_deep_copy_is_a_model_of_its_own(rule):
    import copy

    model = unsettle(tiny(rule))
    twin = copy.deepcopy(model)
    ids = tokens(model)
    assert torch.equal(twin(ids), model(ids))
    assert twin.dead_parameters() == model.dead_parameters()
    with torch.no_grad():
        twin.token_table.add_(1.0)
    assert not torch.equal(twin(ids), model(ids))
