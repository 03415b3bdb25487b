"""Whatever stands in a rule file: it becomes a rule or a RuleError, and nothing is executed."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import yuriiformer as yf
from tests.drawn import examples
from tests.methods.worlds import World
from yuriiformer.errors import RuleError
from yuriiformer.methods.parse import NO_FILE

# Python reports these to audit hooks whatever way they are reached.
FORBIDDEN = ("exec", "import", "open", "os.", "subprocess.", "socket.", "ctypes.", "shutil.")
_watching: list[str] | None = None


def _audit(event: str, arguments: tuple) -> None:
    if event == "open" and arguments[0] == NO_FILE:
        return  # Python's own look for the text of a syntax error, in a file that cannot be
    if _watching is not None and event.startswith(FORBIDDEN):
        _watching.append(f"{event} {arguments!r:.200}")


sys.addaudithook(_audit)  # it cannot be taken away again, so it listens only when asked to


@contextmanager
def nothing_happens():
    global _watching  # noqa: PLW0603
    _watching = []
    try:
        yield
        assert _watching == []
    finally:
        _watching = None


def read(text: str) -> yf.Rule | None:
    with nothing_happens():
        try:
            rule = yf.Rule("fuzz", text)
        except RuleError as error:
            message = str(error)
        else:
            assert yf.Rule.from_dict(rule.to_dict()) == rule  # what is saved can be loaded
            return rule
    assert "\n" not in message
    return None


ATTACKS = """
__import__('os').system('touch {canary}')
X = __import__('os').system('touch {canary}')
X = X + attn(X) + mlp(X) + __import__('os').system('touch {canary}')
X = (lambda: open('{canary}', 'w'))()
X = [open('{canary}', 'w') for _ in (1,)]
X = attn.__class__.__bases__[0].__subclasses__()
X = X.__class__
X = f"{{open('{canary}', 'w')}}"
X = (Y := open('{canary}', 'w'))
X = eval("open('{canary}', 'w')")
X = exec("open('{canary}', 'w')")
X = attn(*open('{canary}', 'w'))
X = attn(**open('{canary}', 'w'))
X: open('{canary}', 'w') = 3
X[open('{canary}', 'w')] = 3
X.a = open('{canary}', 'w')
from os import system
def attn(x): open('{canary}', 'w')
class X: open('{canary}', 'w')
@open('{canary}', 'w')
with open('{canary}', 'w') as X: pass
X = yield open('{canary}', 'w')
X = await open('{canary}', 'w')
X = attn(X) if open('{canary}', 'w') else mlp(X)
X = attn(X) and open('{canary}', 'w')
del X
global X
assert open('{canary}', 'w')
raise open('{canary}', 'w')
match open('{canary}', 'w'):
X = {{open('{canary}', 'w'): 1}}
X = 9 ** 9 ** 9 ** 9
""".strip().splitlines()


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused(attack, tmp_path):
    canary = tmp_path / "canary"
    text = attack.format(canary=canary)
    assert read(text) is None
    assert read(f"X = X + attn(X)\n{text}\nX = X + mlp(X)") is None
    with pytest.raises(RuleError), nothing_happens():
        yf.Coefficient("real", text)
    assert not canary.exists()


def test_the_watch_would_see_an_execution(tmp_path):
    with pytest.raises(AssertionError), nothing_happens():
        eval(compile("1 + 1", "x", "eval"))
    with pytest.raises(AssertionError), nothing_happens():
        (tmp_path / "file").write_text("x")


WORDS = [
    *[
        "X",
        "V",
        "Y",
        "mu",
        "beta",
        "gamma_half",
        "attn",
        "mlp",
        "norm",
        "unit",
        "sqrt",
        "maximum",
        "lambda",
        "if",
        "else",
        "for",
        "in",
        "import",
    ],
    *[
        "(",
        ")",
        "(",
        ")",
        "+",
        "-",
        "*",
        "/",
        "=",
        "=",
        ",",
        ".",
        "0.5",
        "2",
        "1e400",
        "**",
        "[",
        "]",
        ":",
        "'",
        '"',
        "#",
        "\\",
        ";",
        "@",
        "!",
        "+=",
        "//",
        "%",
        "{",
        "}",
        "_",
    ],
    *("None", "True", "async", "\n", "\n", " ", " ", "é", "\x00", "\r", "\t", "\ufeff"),
    *("\u2028", "\x0c", "\ud800"),
]


@examples(1500)
@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_row_of_words(words):
    read("".join(words))


@examples(500)
@given(st.text(max_size=200))
def test_any_text(text):
    read(text)


ATOMS = st.sampled_from(["X", "V", "mu", "beta", "0.5", "2"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["attn", "mlp", "norm", "unit", "tanh", "-"]), inner).map(
            lambda t: f"{t[0]}({t[1]})"
        ),
    ),
    max_leaves=12,
)
LINES = st.tuples(st.sampled_from(["X", "V", "Y", "Z"]), EXPRESSIONS).map(
    lambda t: f"{t[0]} = {t[1]}"
)


def python_says(rule_lines: list[str], world: World, values: dict) -> dict:
    """The same lines run by Python itself: they are our own, so that is safe here."""
    scope = dict(values, attn=world.attn, mlp=world.mlp, norm=world.norm, tanh=torch.tanh)
    scope["unit"] = lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:])
    for line in rule_lines:
        exec(line, scope)
    return scope


@examples(400)
@given(st.lists(LINES, min_size=1, max_size=5))
def test_a_rule_means_what_python_would_mean(lines):
    """Random valid rules, run by the interpreter and by Python: the same numbers."""
    rule = read("\n".join(lines))
    if rule is None:
        return
    world = World(1)
    values = {"X": world.X, "V": world.V, **world.coefficients}
    streams = {name: values[name] for name in rule.streams}
    try:
        expected = python_says(lines, world, values)
    except (TypeError, ZeroDivisionError):
        return  # tanh(0.5), 1/0 of plain numbers: Python's own limits, not the rule's
    out = yf.run_rule(
        rule,
        streams,
        attn=world.attn,
        mlp=world.mlp,
        coefficients=world.only(rule.coefficients),
        velocity_norm=world.norm,
    )
    for name in rule.streams:
        torch.testing.assert_close(out[name], expected[name], rtol=0, atol=0, equal_nan=True)


@examples(300)
@given(st.text(max_size=120), st.text(max_size=40))
def test_any_toml(tmp_path_factory, text, value):
    path = tmp_path_factory.mktemp("fuzz") / "rule.toml"
    for content in (text, f'equations = """{value}"""'):
        path.write_text(content, encoding="utf-8", errors="ignore")
        with pytest.raises(RuleError) as caught:  # neither calls both oracles
            yf.load_rule(path)
        assert str(path) in str(caught.value)


VALUES = st.one_of(
    st.integers(),
    st.integers(min_value=10**300, max_value=10**400),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=20),
    st.dates(),
    st.lists(st.integers(), max_size=2),
    st.sampled_from(["unit", "positive", "real", "scalar", "channel", "head", "t/(t+3)", "1/t"]),
)
OPTIONS = st.dictionaries(
    st.sampled_from(["range", "initial", "shape", "learned", "rnage"]), VALUES, max_size=4
)


@examples(1000)
@given(
    st.dictionaries(st.sampled_from(["mu", "lam", "nu"]), VALUES | OPTIONS, max_size=3),
    st.dictionaries(st.sampled_from(["X", "V", "G"]), VALUES, max_size=2),
)
def test_any_declaration(coefficients, streams):
    equations = "V = mu * V + attn(X)\nX = X + lam * V + mlp(X)"
    try:
        rule = yf.Rule("fuzz", equations, coefficients=coefficients, streams=streams)
    except RuleError:
        return
    assert yf.Rule.from_dict(rule.to_dict()) == rule
    for spec in rule.coefficients.values():
        for layer in range(3):
            try:
                value = spec.value(layer, 3)
            except RuleError:
                continue
            assert abs(value) < 3e38
