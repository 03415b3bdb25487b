"""The catalogue against the paper, written out by hand."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from tests.longhand import LONGHAND, imex, imex_ln
from tests.methods.worlds import World
from yuriiformer.methods.catalog import _imex_named, controls, further, paper, upcycling


def test_the_papers_rules_come_first_and_in_its_order():
    assert list(paper) == list(LONGHAND)
    assert list(yf.rules) == [*LONGHAND, *controls, *upcycling, *further]
    assert len(paper) == 17


@pytest.mark.parametrize("name", LONGHAND)
@pytest.mark.parametrize("seed", range(3))
def test_equals_longhand(name, seed):
    world = World(seed)
    names, _, _, block = LONGHAND[name]
    rule = yf.rules[name]
    velocity = world.V if rule.uses_velocity else None
    coefficients = world.only(names.split())
    X, V = yf.apply_rule(
        rule,
        world.X,
        velocity,
        attn=world.attn,
        mlp=world.mlp,
        coefficients=coefficients,
        velocity_norm=world.norm,
    )
    X_hand, V_hand = block(world.X, velocity, world.attn, world.mlp, coefficients, world.norm)
    torch.testing.assert_close(X, X_hand, rtol=0, atol=1e-12)
    if rule.uses_velocity:
        torch.testing.assert_close(V, V_hand, rtol=0, atol=1e-12)
    else:
        assert V is None


@pytest.mark.parametrize("name", LONGHAND)
def test_says_and_makes_the_papers_oracle_calls(name):
    names, attn, mlp, _ = LONGHAND[name]
    rule, world = yf.rules[name], World(0)
    assert rule.oracle_calls == {"attn": attn, "mlp": mlp}
    assert set(rule.coefficients) == set(names.split())
    assert rule.uses_velocity == bool(names)
    V = world.V if rule.uses_velocity else None
    yf.apply_rule(
        rule, world.X, V, attn=world.attn, mlp=world.mlp, coefficients=world.only(names.split())
    )
    assert world.calls == {"attn": attn, "mlp": mlp}


def test_coefficients_are_named_in_order_of_appearance():
    rule = yf.rules["nesterov-lie-trotter"]
    seen = sorted(rule.coefficients, key=rule.equations.replace("_half", "☆").find)
    assert (
        list(rule.coefficients)[:3]
        == ["beta", "gamma", "mu"]
        == [name for name in seen if not name.endswith("_half")]
    )


def test_no_rule_is_known_by_name_outside_the_catalogue():
    """Nothing in the source may switch on a rule's name."""
    from pathlib import Path

    import yuriiformer

    root = Path(yuriiformer.__file__).parent
    allowed = {root / "methods" / "catalog.py"}
    for path in root.rglob("*.py"):
        if path in allowed:
            continue
        code = [line.split("#")[0] for line in path.read_text().splitlines()]
        for name in yf.rules:
            hits = [line for line in code if f'"{name}"' in line or f"'{name}'" in line]
            # The one default of the configuration is a choice, not a test.
            hits = [line for line in hits if "default: Rule | str =" not in line]
            assert not hits, f"{path}: {hits}"


@pytest.mark.parametrize("order", ["attn-mlp", "mlp-attn"])
@pytest.mark.parametrize("normalized", ["", "ln-"])
def test_imex_with_any_number_of_refinements(order, normalized):
    """The listed ones are of the same pattern; each refinement is one more line, and converges."""
    for k in (1, 2):
        name = f"imex{k}-{normalized}{order}"
        assert _imex_named(name).equations == paper[name].equations
    three = yf.rules[f"imex3-{normalized}{order}"]
    assert three.oracle_calls == {order.split("-")[0]: 1, order.split("-")[1]: 3}
    lines = three.equations.splitlines()
    assert len(lines) == len(paper[f"imex2-{normalized}{order}"].equations.splitlines()) + 1
    assert lines[2] == lines[3]
    assert three.name not in list(yf.rules)
    assert three.name in yf.rules
    world = World(1)
    X, V = yf.apply_rule(
        three,
        world.X,
        world.V,
        attn=world.attn,
        mlp=world.mlp,
        coefficients=world.only(list(three.coefficients)),
        velocity_norm=world.norm,
    )
    oracles = {"attn": world.attn, "mlp": world.mlp}
    block = imex_ln if normalized else imex
    explicit, implicit = (oracles[name] for name in order.split("-"))
    coefficients = world.only(list(three.coefficients))
    wanted = block(explicit, implicit, 3, world.X, world.V, coefficients, world.norm)
    torch.testing.assert_close((X, V), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("imex0-attn-mlp", "from 1 to 99 refinements, not 0"),
        ("imex100-ln-mlp-attn", "from 1 to 99 refinements, not 100"),
        (f"imex{'9' * 5000}-attn-mlp", "from 1 to 99 refinements, not 9"),
        ("imex3-atn-mlp", "did you mean 'imex3-attn-mlp'"),
        ("imex12-ln-mlp-atn", "did you mean 'imex12-ln-mlp-attn'"),
        ("imex3-attn-attn", "did you mean"),
        ("imex03-attn-mlp", "did you mean"),
        ("imex-3-attn-mlp", "did you mean"),
    ],
)
def test_imex_names_that_are_none(wrong, said):
    with pytest.raises(yf.YuriiError, match="unknown rule") as caught:
        yf.get_rule(wrong)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 200
    assert wrong not in yf.rules
