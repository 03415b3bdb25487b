"""What pages show of a rule: MathML, SVG, the rule as a file. No library draws them."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

import pytest

import yuriiformer as yf
from tests.methods.test_equations import RULES
from yuriiformer.methods.drawing.equations import unicode_equations
from yuriiformer.methods.drawing.layout import lay_out
from yuriiformer.methods.drawing.listing import toml_text
from yuriiformer.methods.drawing.markup import mathml, svg_text
from yuriiformer.methods.drawing.svg import svg_diagram

SVG = "{http://www.w3.org/2000/svg}"


def signs(text: str) -> Counter[str]:
    """Letters, numbers and signs, whether they stand on the line or below it."""
    plain = str.maketrans("ₜᵥ₊₋₀₁₂₃₄₅₆₇₈₉²*", "tv+-01234567892∗")
    text = re.sub(r"[\s(){}|,·√_/]", "", text.translate(plain)).replace("−", "-")
    text = re.sub(r"(\d)e-0*(\d)", r"\g<1>10-\2", text)
    return Counter(text)


@pytest.mark.parametrize("name", RULES)
def test_mathml_shows_what_unicode_does(name):
    root = ElementTree.fromstring(mathml(RULES[name]))
    shown = "".join(root.itertext())
    assert len(root[0]) == len(RULES[name].assigns)
    assert signs(shown) == signs("".join(unicode_equations(RULES[name])))


@pytest.mark.parametrize("name", RULES)
def test_the_svg_has_every_part_of_the_layout(name):
    root, diagram = ElementTree.fromstring(svg_diagram(RULES[name])), lay_out(RULES[name])
    oracles = sum(box.kind in ("attn", "mlp") for box in diagram.boxes)
    small = sum(bool(arrow.via) for arrow in diagram.arrows)
    small += sum(mark.kind == "gain" for mark in diagram.marks)
    assert len(root.findall(f"{SVG}rect")) == len(diagram.boxes) + oracles + small
    texts = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert texts.count("Attn") == RULES[name].oracle_calls["attn"]
    assert texts.count("MLP") == RULES[name].oracle_calls["mlp"]
    _, top, _, height = map(float, root.get("viewBox").split())
    for text in root.iter(f"{SVG}text"):
        assert top <= float(text.get("y")) <= top + height


def test_indices_stand_below_and_return_to_the_line():
    inside = svg_text(r"\beta_{t+\frac{1}{2}} V")
    spans = ElementTree.fromstring(f"<text>{inside}</text>")
    assert ["".join(span.itertext()) for span in spans] == ["β", "t", "+", "½", "V"]
    # A shift is in em of the span's own letters; small ones have 0.72 of the size.
    shifts = [
        float(span.get("dy", "0em")[:-2]) * float(span.get("font-size", "1em")[:-2])
        for span in spans
    ]
    assert sum(shifts) == pytest.approx(0, abs=2e-3)
    assert shifts[1] > 0.1


def test_markup_in_a_label_is_escaped():
    rule = yf.Rule("x", "X = X + attn(X) + mlp(X)", label='<b>"&')
    assert ElementTree.fromstring(svg_diagram(rule)).get("aria-label").endswith('<b>"&')


@pytest.mark.parametrize("name", RULES)
def test_the_file_of_a_rule_is_the_rule(name, tmp_path):
    path = tmp_path / "rule.toml"
    path.write_text(toml_text(RULES[name]), encoding="utf-8")
    assert yf.load_rule(path) == RULES[name]


def test_the_file_of_a_variation(tmp_path):
    rule = yf.get_rule("nesterov-lie-trotter+V=zero+mu=t/(t+3)+fixed=mu+channel=beta")
    path = tmp_path / "rule.toml"
    path.write_text(toml_text(rule), encoding="utf-8")
    assert yf.load_rule(path) == rule
    assert 'mu = { initial = "t/(t+3)", learned = false }' in toml_text(rule)
    assert "gamma" not in toml_text(rule).partition("[coefficients]")[2]
