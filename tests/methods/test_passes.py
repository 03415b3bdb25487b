"""The passes over the whole catalogue: streams, liveness, segments, lookahead."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.methods.worlds import World
from yuriiformer.methods.interpreter import evaluate
from yuriiformer.methods.passes import Query, structure, without_lookahead
from yuriiformer.methods.tree import Name

DELAYED = yf.Rule(  # what an oracle says reaches X only two blocks later
    "delayed",
    """
    X = X + attn(X) + H
    H = G
    G = mlp(X)
    """,
    streams={"G": "zero", "H": "zero"},
)
RULES = {**yf.rules, "delayed": DELAYED}


def start(rule: yf.Rule, world: World) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(9)
    values = {"X": world.X, "V": world.V}
    # Positive: a rule may take the root of a second moment.
    return {
        name: values.get(name, torch.rand(world.X.shape, generator=generator).double())
        for name in rule.streams
    }


def coefficients(rule: yf.Rule, world: World) -> dict[str, float]:
    return {name: world.coefficients.get(name, 0.7) for name in rule.coefficients}


@pytest.mark.parametrize("name", RULES)
def test_each_segment_needs_and_gives_just_what_it_says(name):
    """Run with nothing but the declared inputs, handing on nothing but the declared outputs."""
    rule, world = RULES[name], World(2)
    given = coefficients(rule, world)
    oracles = {"attn": world.attn, "mlp": world.mlp}
    values = {**start(rule, world), **given}
    norms = [world.norm] * rule.norm_calls
    for segment in rule.program.segments:
        inside = {key: values[key] for key in segment.inputs}
        for assign in segment.assigns:
            inside[assign.target] = evaluate(assign.value, inside, norms)
        if segment.query is not None:
            argument = evaluate(segment.query.argument, inside, norms)
            values[segment.query.target] = oracles[segment.query.oracle](argument)
        values.update({key: inside[key] for key in segment.outputs})
    whole = yf.run_rule(
        rule, start(rule, world), coefficients=given, velocity_norm=world.norm, **oracles
    )
    assert all(torch.equal(values[stream], whole[stream]) for stream in rule.streams)


@pytest.mark.parametrize("name", RULES)
def test_segments_hold_all_steps_in_order(name):
    rule = RULES[name]
    flat = []
    for segment in rule.program.segments:
        flat += [*segment.assigns, *([segment.query] if segment.query else [])]
    assert tuple(flat) == rule.steps == rule.program.steps
    assert len(rule.program.segments) == sum(rule.oracle_calls.values()) + 1


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("n_layer", [1, 2, 5])
def test_dead_steps_can_be_left_out(name, n_layer):
    """The programs give the same last X as whole blocks, bit for bit, with no step to spare."""
    rule, world = RULES[name], World(6)
    given = coefficients(rule, world)
    options = {"coefficients": given, "velocity_norm": world.norm}
    streams = start(rule, world)
    for _ in range(n_layer):
        streams = yf.run_rule(rule, streams, attn=world.attn, mlp=world.mlp, **options)
    calls = dict(world.calls)

    from yuriiformer.methods.interpreter import run_program

    oracles = {"attn": lambda y, _: world.attn(y), "mlp": lambda y, _: world.mlp(y)}
    lean = start(rule, world)
    for program in rule.programs(n_layer):
        lean = run_program(program, lean, oracles, given, [world.norm] * rule.norm_calls)
    assert set(lean) == {"X"}
    assert torch.equal(lean["X"], streams["X"])
    made = {key: world.calls[key] - calls[key] for key in calls}
    expected = {
        oracle: sum(
            isinstance(step, Query) and step.oracle == oracle
            for program in rule.programs(n_layer)
            for step in program.steps
        )
        for oracle in calls
    }
    assert made == expected


def test_the_last_hamiltonian_block_skips_its_mlp():
    programs = yf.rules["hamiltonian"].programs(4)
    assert [program.oracles() for program in programs] == [{"attn", "mlp"}] * 3 + [{"attn"}]
    assert "gamma_half" not in programs[-1].reads()
    assert programs[0] is programs[1] is programs[2]


def test_what_arrives_two_blocks_later_is_dead_in_the_last_two():
    programs = DELAYED.programs(4)
    oracles = [sorted(program.oracles()) for program in programs]
    assert oracles == [["attn", "mlp"]] * 2 + [["attn"]] * 2
    outputs = [set(program.outputs) for program in programs]
    assert outputs == [{"X", "H", "G"}, {"X", "H", "G"}, {"X", "H"}, {"X"}]


@pytest.mark.parametrize("name", yf.rules)
def test_every_step_of_the_catalogue_is_live_in_a_first_block(name):
    rule = yf.rules[name]
    assert rule.programs(2)[0].steps == rule.steps
    assert len({id(program) for program in rule.programs(12)}) <= 2


def test_streams_locals_and_constants():
    rule = yf.rules["nesterov-table"]
    assert dict(rule.streams) == {"X": "tables", "E": "tables", "V": "tables"}
    assert yf.rules["imex2-attn-mlp"].locals == ("W", "U")
    assert dict(yf.rules["imex2-attn-mlp"].streams) == {"X": "tables", "V": "tables"}
    assert not yf.rules["gd-table"].uses_velocity


def test_two_calls_of_an_oracle_are_numbered():
    queries = [s for s in yf.rules["verlet-ama"].steps if isinstance(s, Query)]
    assert [(q.oracle, q.call) for q in queries] == [("attn", 0), ("mlp", 0), ("attn", 1)]
    assert len({q.target for q in queries}) == 3


def test_nested_oracle_calls_are_taken_inside_out():
    rule = yf.Rule("nested", "X = X + mlp(X + attn(X))")
    first, second, _ = rule.steps
    assert (first.oracle, second.oracle) == ("attn", "mlp")
    assert Name(first.target) == second.argument.right


def polyak_pairs(rules):
    return [
        (one.name, two.name)
        for one in rules
        for two in rules
        if without_lookahead(one) == structure(two) and structure(one) != structure(two)
    ]


def test_nesterov_without_its_lookahead_is_polyak():
    # Told by the equations, not by names.
    assert polyak_pairs(yf.rules.values()) == [
        ("nesterov-euler", "polyak-euler"),
        ("nesterov-lie-trotter", "polyak-lie-trotter"),
        ("nesterov-lie-trotter-mlp-attn", "polyak-lie-trotter-mlp-attn"),
    ]


def test_the_lookahead_of_a_users_rule():
    mine = yf.Rule(
        "mine",
        """
        Z = X + mu2 * V
        V = norm(beta * V + gamma * attn(Z) - mlp(X + mu * V))
        X = X + V
        """,
        coefficients={"mu2": 0.5},
    )
    plain = yf.Rule("plain", "V = norm(beta * V + gamma * attn(X) - mlp(X))\nX = X + V")
    assert polyak_pairs([plain, mine]) == [("mine", "plain")]


def test_starts_and_coefficients_tell_rules_apart():
    nesterov = yf.get_rule("nesterov-euler+V=zero")
    assert polyak_pairs([nesterov, yf.rules["polyak-euler"]]) == []
    assert polyak_pairs([nesterov, yf.get_rule("polyak-euler+V=zero")]) != []
    assert polyak_pairs([nesterov, yf.get_rule("polyak-euler+V=zero+beta=0.5")]) == []
