"""A malformed rule says which line and column is wrong, and why."""

from __future__ import annotations

import pytest

import yuriiformer as yf
from yuriiformer.errors import RuleError, UnknownRuleError

GOOD = "X = X + attn(X)\nX = X + mlp(X)"

CASES = {  # equations: (line, column, what the message must say)
    "X = X + atn(X) + mlp(X)": (1, 9, "unknown function 'atn' (did you mean 'attn'?)"),
    "X = X + attn(X) + mlp(X) + G": (1, 28, "unknown name 'G'"),
    "X = X + bta * attn(X) + mlp(X)": (1, 9, "unknown name 'bta'"),
    "G = G + attn(X)\nX = X + G + mlp(X)": (1, 5, "'G' is read before it is written"),
    "Y = X + attn(X) + mlp(X)": (1, 1, "X is never updated"),
    "X = attn(V) + mlp(V)": (1, 1, "X is overwritten before it is read"),
    "X = X + attn(X)": (1, 1, "oracle mlp is never called"),
    "V = norm(V + mlp(X))\nX = X + V": (2, 1, "oracle attn is never called"),
    "import os": (1, 1, "Import is not"),
    "X = X + attn(X) + mlp(X.T)": (1, 23, "Attribute is not arithmetic"),
    "X = X + attn(X) + mlp(X[0])": (1, 23, "Subscript is not arithmetic"),
    "X = X + attn(X) + mlp(X) ** 2": (1, 19, "square"),
    "X = X + attn(X) @ mlp(X)": (1, 9, "BinOp is not arithmetic"),
    "X = X + attn(X) + (lambda: 1)()": (1, 19, "called by a plain name"),
    "X = [attn(X), mlp(X)]": (1, 5, "List is not arithmetic"),
    "X = X + attn(X) if X else mlp(X)": (1, 5, "IfExp is not arithmetic"),
    "X = 'text'": (1, 5, "is not a number"),
    "X = X + attn(X) + mlp(X) + True": (1, 28, "is not a number"),
    "X = X + 1e999 * attn(X) + mlp(X)": (1, 9, "too large"),
    "X = X + attn(X, X) + mlp(X)": (1, 9, "attn takes 1 argument, not 2"),
    "X = X + attn(y=X) + mlp(X)": (1, 9, "attn takes 1 argument, not one by name"),
    "X = X + attn + mlp(X)": (1, 9, "'attn' is a function"),
    "norm = X": (1, 1, "'norm' is a function"),
    "X, V = attn(X), mlp(X)": (1, 8, "Tuple is not arithmetic"),
    "X = V = attn(X)": (1, 1, "every line is 'name = arithmetic'"),
    "X: int = attn(X)": (1, 1, "AnnAssign"),
    "X = X + attn(X) +": (1, 18, "not an equation"),
    "X = X + attn(2) + mlp(X)": (1, 9, "attn(...) needs a stream"),
    "X = X + attn(X) + mlp(X)\nX = 2": (2, 1, "cannot become a plain number"),
    "X = X + attn(X)\nY = mlp(X)": (2, 5, "never reaches X"),
    "X = X + μ * attn(X) + mlp(X)": (1, 9, "use ASCII"),
    "X = X + __class__ * attn(X) + mlp(X)": (1, 9, "use ASCII"),
    f"X = X + attn(X) + mlp(X) + {'-' * 70}X": (1, 88, "nested more than"),
    "X = X + attn(X)\n    V = norm(bta * V + mlp(X))\nX = X + V": (2, 14, "unknown name 'bta'"),
    'X = X + "ü" + atn(X)': (1, 9, "is not a number"),
    "X = X + attn(X) + mlp(X) * (1 / 0)": (1, 29, "this has no value: "),
    "c = 2 - 2\nX = X + attn(X) + mlp(X) * (1 / c)": (2, 29, "this has no value: "),
    "X = X + attn(X) + log(-1) * mlp(X)": (1, 19, "this has no value: "),
    "G_ = attn(X)\nX = X + G_ + mlp(X)": (1, 1, "'_' only between them"),
}


@pytest.mark.parametrize("equations", CASES)
def test_says_where_and_why(equations):
    line, column, reason = CASES[equations]
    with pytest.raises(RuleError) as caught:
        yf.Rule("mine", equations)
    assert reason in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)
    assert f"rule 'mine', line {line}, column {column}: " in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("equations", ["", "   \n # nothing\n", 7, None, "\x00", "(" * 300])
def test_text_that_is_no_text_of_equations(equations):
    with pytest.raises(RuleError):
        yf.Rule("mine", equations)


DECLARATIONS = [
    ({"streams": {"W": "zero"}}, "stream 'W' is declared but never read"),
    ({"streams": {"X": "zero"}}, "X cannot start as 'zero'"),
    ({"streams": {"X": "tied"}}, "X cannot start as 'tied'"),
    ({"streams": {"X": "table"}}, "cannot start as 'table'; known are tables"),
    ({"coefficients": {"lam": 0.5}}, "coefficient 'lam' is declared but never used"),
    ({"note": 3}, "'note' must be text, not 3"),
    ({"label": ["x"]}, "'label' must be text"),
    ({"streams": ["X"]}, "'streams' must be a table"),
    ({"coefficients": 3}, "'coefficients' must be a table"),
]


@pytest.mark.parametrize(("options", "reason"), DECLARATIONS)
def test_declarations_that_do_not_fit(options, reason):
    with pytest.raises(RuleError, match=r"rule 'mine'") as caught:
        yf.Rule("mine", GOOD, **options)
    assert reason in str(caught.value)


COEFFICIENTS = [
    ({"mu": {"initial": 1.5}}, "lies between 0 and 1"),
    ({"mu": {"initial": 1}}, "unless fixed"),
    ({"mu": {"initial": "t +"}}, "not an equation"),
    ({"mu": {"initial": "x / 2"}}, "unknown name 'x'"),
    ({"mu": {"initial": "attn(t)"}}, "needs a tensor"),
    ({"mu": {"initial": None}}, "must be a number or a formula"),
    ({"mu": {"shape": "token"}}, "shape 'token' is not one of scalar, channel, head"),
    ({"mu": {"range": "half"}}, "range 'half' is not one of unit, positive, real"),
    ({"mu": {"learned": "yes"}}, "learned must be true or false"),
    ({"mu": {"intial": 0.5}}, "unknown option 'intial' (did you mean 'initial'?)"),
    ({"lam": {"range": "real"}}, "without an initial value"),
    ({"mu": {"initial": 0.99999999}}, "too near the end of its range"),
    ({"gamma": {"initial": 1e-320}}, "too near the end of its range"),
    ({"gamma": {"initial": 1e300}}, "between 0 and 1e+30"),
    ({"lam": 10**400}, "too large a number"),
    ({"mu": {3: 4}}, "unknown option 3"),
]


@pytest.mark.parametrize(("options", "reason"), COEFFICIENTS)
def test_coefficients_that_cannot_be(options, reason):
    name = next(iter(options))
    with pytest.raises(RuleError, match=f"coefficient '{name}'") as caught:
        yf.Rule("mine", f"X = X + {name} * attn(X)\nX = X + mlp(X)", coefficients=options)
    assert reason in str(caught.value)


def test_a_schedule_is_checked_at_every_layer():
    spec = yf.Coefficient("unit", "1 / t", learned=False)
    with pytest.raises(RuleError, match="at layer 0"):
        spec.value(0, 4)
    assert spec.value(1, 4) == 1.0
    with pytest.raises(RuleError, match="between 0 and 1"):
        yf.Coefficient("unit", "t", learned=False).value(2, 4)


def test_an_error_in_a_file_names_the_files_line_and_column(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('label = "Mine"\n\nequations = """\nX = X + attn(X)\n  X = X + mpl(X)\n"""\n')
    with pytest.raises(RuleError) as caught:
        yf.load_rule(path)
    assert str(caught.value).startswith(f"{path}, line 5, column 11: unknown function 'mpl'")
    path.write_text('equations = "X = X + attn(X) + mpl(X)"')
    with pytest.raises(RuleError) as caught:
        yf.load_rule(path)
    assert (caught.value.line, caught.value.column) == (1, 32)


def test_an_error_in_a_declaration_names_its_line(tmp_path):
    path = tmp_path / "mine.toml"
    head = 'equations = """\nG = G + attn(X)\nX = X + lam * G + mlp(X)\n"""\n'
    path.write_text(head + '[streams]\nG = "zer"\n[coefficients]\nlam = 1\n')
    with pytest.raises(RuleError, match=r"mine.toml, line 6, column 1: stream 'G' cannot start"):
        yf.load_rule(path)
    path.write_text(head + '[streams]\nG = "zero"\n[coefficients]\nlam = { rang = "unit" }\n')
    with pytest.raises(RuleError, match=r"line 8, column 1: coefficient 'lam': unknown option"):
        yf.load_rule(path)


@pytest.mark.parametrize(
    ("declared", "line"),
    [
        ("[coefficients.lam]\nrang = 'unit'", 3),
        ("[ coefficients . lam ]\nrang = 'unit'", 3),
        ("coefficients.lam.rang = 'unit'", 3),
        ("[coefficients]\nother = 1.0\nlam.rang = 'unit'", 5),
        ("[coefficients]\n'lam' = { rang = 'unit' }", 4),
        ("coefficients = { lam = { rang = 'unit' } }", None),
    ],
)
def test_every_way_to_declare_is_found(tmp_path, declared, line):
    path = tmp_path / "mine.toml"
    path.write_text(f'label = "lam"\nequations = "X = X + lam * attn(X) + mlp(X)"\n{declared}\n')
    with pytest.raises(RuleError, match="coefficient 'lam': unknown option 'rang'") as caught:
        yf.load_rule(path)
    assert caught.value.line == line


def test_the_place_is_right_or_said_to_be_within_the_equations(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('note = "X = X + atn(X)"\nequations = "X = X + atn(X)"\n')
    with pytest.raises(RuleError, match=r"mine.toml, line 2, column 22: "):
        yf.load_rule(path)
    path.write_text('label = "x"\nequations = """\nX = X + \\\n  atn(X)\n"""\n')
    with pytest.raises(RuleError, match=r"mine.toml, in the equations, line 1, column 9: "):
        yf.load_rule(path)


FILES = {
    "equations = 3": "equations must be text",
    'equation = "X = X"': "unknown key 'equation' (did you mean 'equations'",
    "label = 'x'": "has no 'equations'",
    "equations = ": "not TOML",
    f'equations = """{GOOD}"""\nstreams = 3': "'streams' must be a table",
    f'equations = """{GOOD}"""\n[streams]\nX = 3': "cannot start as 3",
}


@pytest.mark.parametrize("text", FILES)
def test_files_that_are_no_rule(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(RuleError) as caught:
        yf.load_rule(path)
    assert FILES[text] in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(RuleError, match="no rule file"):
        yf.get_rule(str(tmp_path / "none.toml"))
    with pytest.raises(RuleError, match="cannot be read: embedded null byte"):
        yf.load_rule("no\0ne.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RuleError, match=r"bytes\.toml: not TOML"):
        yf.load_rule(tmp_path / "bytes.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(RuleError, match="cannot be read"):
        yf.load_rule(tmp_path / "folder.toml")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownRuleError, match="did you mean 'nesterov-lie-trotter'"):
        yf.get_rule("nestrov-lie-trotter")
    with pytest.raises(KeyError):
        yf.rules["x"]
    assert "x" not in yf.rules
    assert yf.rules.get("x") is None
    with pytest.raises(RuleError, match="named by text"):
        yf.get_rule(3)


def test_a_strange_sign_is_named_whatever_stands_before_it():
    """Python 3.11.3 reports the number before it, 3.11.7 the sign."""
    with pytest.raises(yf.YuriiError, match="invalid character '½'") as caught:
        yf.Rule("x", "X = X + attn(X)  # ½ of it\nX = X + 0.5½ * mlp(X)")
    assert (caught.value.line, caught.value.column) == (2, 12)
