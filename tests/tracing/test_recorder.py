"""Traces: no bit changes, and every number is what a longhand computation gives."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import yuriiformer as yf
from tests.longhand import LONGHAND
from tests.model.tiny import EVERY, tiny, tokens, unsettle
from yuriiformer.model.context import Context
from yuriiformer.model.oracles import Attention, layer_norm
from yuriiformer.tracing.measures import principal
from yuriiformer.tracing.recorder import trace

CLOSE = {"rtol": 1e-9, "atol": 1e-9, "equal_nan": True}


def traced(rule, oracles="paper", length=9, **options):
    model = unsettle(tiny(rule, oracles, **options)).double()
    ids = tokens(model, length=length)[0]
    return model, ids, trace(model, ids)


def cosine(a, b):
    return F.cosine_similarity(a, b, dim=-1, eps=1e-300)


@pytest.mark.parametrize(("rule", "oracles"), EVERY)
def test_no_bit_of_the_logits_changes(rule, oracles):
    model = unsettle(tiny(rule, oracles))
    ids = tokens(model)[0]
    before = model(ids[None])[0]
    assert torch.equal(trace(model, ids).logits, before)
    assert torch.equal(model(ids[None])[0], before)


class Longhand:
    """A model of one of the paper's rules, run by hand, with every oracle call written down."""

    def __init__(self, name, model, ids):
        _, _, _, block = LONGHAND[name]
        streams = model.start_streams(ids[None], torch.arange(len(ids)))
        self.X, self.V = [streams["X"][0]], [streams.get("V", streams["X"])[0]]
        self.calls, self.velocities = [], []
        for layer, own in enumerate(model.blocks):
            norms = [own.velocity_norms[i] for i in own.norm_of_call]
            given = iter(norms)
            X, V = block(
                self.X[-1],
                self.V[-1],
                lambda Y, own=own, layer=layer: self.ask(own, "attn", layer, Y),
                lambda Y, own=own, layer=layer: self.ask(own, "mlp", layer, Y),
                own.coefficients(),
                lambda v, given=given, layer=layer: self.normalise(next(given), layer, v),
            )
            self.X.append(X)
            self.V.append(V)

    def ask(self, block, oracle, layer, Y):
        context = Context(torch.arange(len(Y)))
        answer = getattr(block, oracle)(Y[None], context)[0]
        self.calls.append((layer, oracle, block, Y, answer))
        return answer

    def normalise(self, norm, layer, v):
        self.velocities.append((layer, norm(v)))
        return self.velocities[-1][1]


def weights_by_hand(attn, Y):
    """Each head's causal softmax weights and log-partitions, a token at a time."""
    d_head = 16 // 4
    q, k, _ = attn.qkv(attn.norm(Y)).split(16, dim=-1)
    entropy, partition = torch.zeros(4, len(Y)).double(), torch.zeros(4, len(Y)).double()
    for head in range(4):
        own = slice(head * d_head, (head + 1) * d_head)
        for i in range(len(Y)):
            scores = [float(q[i, own] @ k[j, own]) / math.sqrt(d_head) for j in range(i + 1)]
            total = sum(map(math.exp, scores))
            partition[head, i] = math.log(total)
            shares = [math.exp(s) / total for s in scores]
            entropy[head, i] = -sum(p * math.log(p) for p in shares)
    return entropy, partition


def potential_by_hand(mlp, Y):
    u = mlp.up(mlp.norm(Y))
    below = 0.5 * (1 + torch.erf(u / math.sqrt(2)))
    density = (-u.square() / 2).exp() / math.sqrt(2 * math.pi)
    return (((u.square() - 1) * below + u * density) / 2 + 0.25).sum(-1)


@torch.no_grad()
@pytest.mark.parametrize("rule", LONGHAND)
def test_oracles_and_streams_against_longhand(rule):
    model, ids, found = traced(rule)
    by_hand = Longhand(rule, model, ids)
    asked = [i for i, step in enumerate(found.steps) if step.kind != "assign"]
    # The last block leaves out what cannot reach the logits (the Hamiltonian's last kick).
    calls = by_hand.calls[: len(asked)]
    assert len(by_hand.calls) - len(asked) == (rule == "hamiltonian")
    for i, (layer, oracle, block, Y, answer) in zip(asked, calls, strict=True):
        assert (found.steps[i].layer, found.steps[i].kind) == (layer, oracle)
        read = {name: values[i] for name, values in found.by_step.items()}
        torch.testing.assert_close(read["norm"], answer.norm(dim=-1), **CLOSE)
        torch.testing.assert_close(read["argument_norm"], Y.norm(dim=-1), **CLOSE)
        if oracle == "attn":
            entropy, partition = weights_by_hand(block.attn, Y)
            torch.testing.assert_close(read["entropy"], entropy.mean(0), **CLOSE)
            torch.testing.assert_close(found.heads["entropy"][i], entropy, **CLOSE)
            torch.testing.assert_close(read["log_partition"], partition.mean(0), **CLOSE)
            assert read["potential"] is None
        else:
            potential = potential_by_hand(block.mlp, Y)
            torch.testing.assert_close(read["potential"], potential, **CLOSE)
            assert read["entropy"] is None
    X = torch.stack(by_hand.X)
    torch.testing.assert_close(found.by_layer["norm_X"], X.norm(dim=-1), **CLOSE)
    if "V" in model.streams:
        V = torch.stack(by_hand.V).norm(dim=-1)
        if rule == "hamiltonian":  # whose last velocity is never made
            V[-1] = torch.nan
        torch.testing.assert_close(found.by_layer["norm_V"], V, **CLOSE)
    else:
        assert "norm_V" not in found.by_layer
    moved = X[1:] - X[:-1]
    turned = cosine(moved[1:], moved[:-1]).clamp(-1, 1).arccos() * 180 / math.pi
    torch.testing.assert_close(found.by_layer["turning"][2:], turned, **CLOSE)
    assert found.by_layer["turning"][:2].isnan().all()


@torch.no_grad()
@pytest.mark.parametrize("rule", [name for name in LONGHAND if name != "hamiltonian"])
def test_ways_and_velocities_against_longhand(rule):
    """In these rules every update of X adds the velocity (or an oracle's answer) just made."""
    model, ids, found = traced(rule)
    by_hand = Longhand(rule, model, ids)
    updates = [i for i, step in enumerate(found.steps) if step.name == "X"]
    if rule == "gd-euler":
        made = [b - a for a, b in zip(by_hand.X, by_hand.X[1:], strict=False)]
    elif rule == "gd-lie-trotter":
        made = [answer for *_, answer in by_hand.calls]
    elif rule.startswith("imex"):
        made = by_hand.V[1:]
    else:
        made = [v for _, v in by_hand.velocities]
        before = [by_hand.V[0], *made]
        kept = [i for i, step in enumerate(found.steps) if step.name == "V"]
        for i, old, new in zip(kept, before, made, strict=False):
            torch.testing.assert_close(found.by_step["cosine_before"][i], cosine(old, new), **CLOSE)
    lengths = torch.stack([each.norm(dim=-1) for each in made])
    recorded = torch.stack([found.by_step["length"][i] for i in updates])
    torch.testing.assert_close(recorded, lengths, **CLOSE)
    torch.testing.assert_close(found.path["length"], lengths.sum(0), **CLOSE)
    per_layer = lengths.view(3, -1, len(ids)).sum(1)
    torch.testing.assert_close(found.by_layer["step_length"][1:], per_layer, **CLOSE)
    net = (by_hand.X[-1] - by_hand.X[0]).norm(dim=-1)
    torch.testing.assert_close(found.path["straightness"], net / lengths.sum(0), **CLOSE)
    for i, old, new in zip(updates[1:], made, made[1:], strict=False):
        turned = cosine(old, new).clamp(-1, 1).arccos() * 180 / math.pi
        torch.testing.assert_close(found.by_step["turning"][i], turned, rtol=1e-6, atol=1e-6)
    rows = [row for row, _ in found.places]
    per = len(made) // 3
    assert rows == pytest.approx([k / per for k in range(len(made) + 1)])


@torch.no_grad()
def test_cosines_with_the_velocity_of_that_moment():
    model, ids, found = traced("nesterov-lie-trotter")
    by_hand = Longhand("nesterov-lie-trotter", model, ids)
    asked = [i for i, step in enumerate(found.steps) if step.kind != "assign"]
    velocities = [by_hand.V[0], *(v for _, v in by_hand.velocities)]
    states = [by_hand.X[0]]
    for _, v in by_hand.velocities:
        states.append(states[-1] + v)
    for number, (i, (*_, answer)) in enumerate(zip(asked, by_hand.calls, strict=True)):
        read = found.by_step["cosine_velocity"][i], found.by_step["cosine_state"][i]
        torch.testing.assert_close(read[0], cosine(velocities[number], answer), **CLOSE)
        torch.testing.assert_close(read[1], cosine(states[number], answer), **CLOSE)


@torch.no_grad()
def test_energies_of_the_streams():
    model, _, found = traced("gd-lie-trotter", length=5)
    recorded = {}
    model.norm.register_forward_pre_hook(lambda _, args: recorded.update(X=args[0]))
    model(found.tokens[None])
    X = recorded["X"][0]
    E = sum(math.exp(float(a @ b)) for a in X for b in X)
    assert found.whole["log_energy"][-1].item() == pytest.approx(math.log(E))
    below = 0.5 * (1 + torch.erf(X / math.sqrt(2)))
    density = (-X.square() / 2).exp() / math.sqrt(2 * math.pi)
    F_ = (((X.square() - 1) * below + X * density) / 2 + 0.25).sum()
    assert found.whole["potential_energy"][-1].item() == pytest.approx(F_.item())
    for i, x in enumerate(X):
        mean = sum(math.exp(float(cosine(x, y))) for y in X) / len(X)
        assert found.by_layer["interaction"][-1, i].item() == pytest.approx(math.log(mean))


OWN = yf.Rule(
    "own",
    """
    a = 0.5 * mu
    G = beta * G + attn(X)
    V = norm(V + a * G)
    X = X + V + lam * unit(E)
    X = X + mlp(X + a * V)
    """,
    streams={"G": "zero", "E": "tied"},
    coefficients={"lam": {"range": "real", "initial": 0.3, "shape": "channel"}},
)


@torch.no_grad()
def test_own_rules_with_more_streams_and_locals():
    model, ids, found = traced(OWN)
    assert torch.equal(found.logits, model(ids[None])[0])
    names = [step.name for step in found.steps if step.layer == 0]
    assert names == ["a", "attn[0]", "G", "V", "X", "mlp[0]", "X"]
    assert found.by_step["norm"][0] is None  # made of coefficients alone: no vector of a token's
    E = found.by_layer["norm_E"]
    assert torch.equal(E, E[:1].expand_as(E))  # constant over depth
    assert (found.by_layer["norm_G"][0] == 0).all()
    assert found.by_step["cosine_before"][2].isnan().all()  # a zero vector has no direction
    assert [row for row, _ in found.places[:3]] == [0.0, 0.5, 1.0]
    own = model.blocks[1].coefficients()
    assert found.coefficients[1]["lam"] == pytest.approx(own["lam"].mean().item())


def test_oracles_that_say_nothing_of_themselves_are_traced_too():
    class Mute(Attention):
        scores = property()  # hasattr is False

    class Plain(torch.nn.Module):
        def __init__(self, config):
            super().__init__()
            self.map = torch.nn.Linear(config.d_model, config.d_model)

        def forward(self, Y, context):
            return self.map(Y).tanh()

    yf.register_oracles("mute", yf.OraclePair(Mute, Plain, layer_norm))
    model, ids, found = traced("verlet-ama", "mute")
    assert torch.equal(found.logits, model(ids[None])[0])
    for name in ("entropy", "log_partition", "potential"):
        assert not any(value is not None for value in found.by_step[name])


def test_a_single_token_and_bad_input():
    model = tiny()
    found = trace(model, torch.tensor([3]))
    assert found.by_layer["interaction"].shape == (4, 1)
    assert found.lens.loss.isnan().all()
    for bad in (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)):
        with pytest.raises(yf.YuriiError, match="one text"):
            trace(model, bad)
    with pytest.raises(yf.YuriiError, match="context"):
        trace(model, torch.zeros(13, dtype=torch.int64))
    with pytest.raises(yf.YuriiError):
        trace(model, torch.tensor([29]))
    ids = tokens(model, length=3)[0]
    for bad in (ids[:2], ids + 29, ids.float()):
        with pytest.raises(yf.YuriiError):
            trace(model, ids, bad)


def test_principal_components():
    generator = torch.Generator().manual_seed(0)
    ways = torch.randn(6, 4, 3, dtype=torch.float64, generator=generator) * torch.tensor([3, 1, 2])
    found = principal(ways)
    assert found.explained.sum().item() == pytest.approx(1)
    assert (found.explained.diff() <= 0).all()
    flat, seen = ways.flatten(0, 1), found.points.flatten(0, 1)
    torch.testing.assert_close(torch.cdist(seen, seen), torch.cdist(flat, flat))
    centred = flat - flat.mean(0)
    values = torch.linalg.svdvals(centred).square()
    torch.testing.assert_close(found.explained, values / values.sum())
    thin = principal(ways[..., :2])
    assert thin.points.shape == (6, 4, 3)
    assert (thin.points[..., 2] == 0).all()
    still = principal(torch.ones(3, 2, 4, dtype=torch.float64))
    assert (still.points == 0).all()
