"""Block diagrams: complete, consistent, and written as pictures."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

import yuriiformer as yf
from tests.methods.test_equations import ODD, RULES
from yuriiformer.errors import YuriiError
from yuriiformer.methods.drawing.layout import lay_out, oracle_of
from yuriiformer.methods.passes import Query

pytest.importorskip("matplotlib")


@pytest.mark.parametrize("name", RULES)
def test_everything_is_drawn_once(name):
    rule, diagram = RULES[name], lay_out(RULES[name])
    kinds = [box.kind for box in diagram.boxes]
    assert {oracle: kinds.count(oracle) for oracle in rule.oracle_calls} == rule.oracle_calls
    formulas = [box.label for box in diagram.boxes if box.kind == "function"]
    on_the_way = [arrow.via for arrow in diagram.arrows]
    norms = kinds.count("norm") + "".join(formulas + on_the_way).count(r"\mathrm{LN}_v")
    assert norms == rule.norm_calls
    marks = [mark for mark in diagram.marks if mark.kind == "name"]
    assert [mark.lane for mark in marks] == [*rule.streams, *rule.streams]
    shown = "".join(
        [arrow.label for arrow in diagram.arrows]
        + [mark.label for mark in diagram.marks]
        + [box.label for box in diagram.boxes]
    )
    for coefficient in rule.coefficients:
        letter = coefficient.partition("_")[0].rstrip("0123456789").replace("lam", "lambda")
        assert letter in shown or name == "scalar local", coefficient
    oracle_rows = [box.row for box in diagram.boxes if box.kind in rule.oracle_calls]
    assert oracle_rows == sorted(oracle_rows)
    order = [box.kind for box in diagram.boxes if box.kind in rule.oracle_calls]
    assert order == [step.oracle for step in rule.steps if isinstance(step, Query)]


@pytest.mark.parametrize("name", RULES)
def test_every_arrow_starts_at_a_value_and_nothing_overlaps(name):
    diagram = lay_out(RULES[name])
    for arrow in diagram.arrows:
        assert any(
            wire.lane == arrow.source and wire.top - 1e-6 <= arrow.row <= wire.bottom + 1e-6
            for wire in diagram.wires
        ), arrow
        assert arrow.source != arrow.target
    for lane in diagram.lanes:
        boxes = sorted((b.row, b.row + b.height) for b in diagram.boxes if b.lane == lane)
        assert all(first[1] < second[0] for first, second in pairwise(boxes))
        wires = sorted((w.top, w.bottom) for w in diagram.wires if w.lane == lane)
        assert all(one[1] <= two[0] + 1e-6 for one, two in pairwise(wires))
    assert all(0 <= wire.top < wire.bottom <= diagram.rows for wire in diagram.wires)


@pytest.mark.parametrize("name", RULES)
def test_every_answer_leaves_its_oracle_and_every_plus_has_two_inputs(name):
    diagram = lay_out(RULES[name])
    for box in diagram.boxes:
        below = [w for w in diagram.wires if w.lane == box.lane and w.top >= box.row + box.height]
        first = min(below, key=lambda w: w.top, default=None)
        assert first is not None, box
        assert first.top == pytest.approx(box.row + box.height)
        if oracle_of(box.lane):
            assert any(
                a.source == box.lane and first.top < a.row <= first.bottom + 1e-6
                for a in diagram.arrows
            ), box
    for mark in (mark for mark in diagram.marks if mark.kind == "plus"):
        arrows = [a for a in diagram.arrows if a.target == mark.lane and a.row == mark.row]
        above = [w for w in diagram.wires if w.lane == mark.lane and w.top < mark.row <= w.bottom]
        assert len(arrows) + len(above) >= 2, mark


def test_gains_add_up_as_the_rule_says():
    marks = [m.label for m in lay_out(RULES["own terms"]).marks if m.kind == "gain"]
    assert marks == [r"1 - \frac{1}{2}", "1 + 1"]
    labels = [a.label for a in lay_out(RULES["own terms"]).arrows]
    assert r"\frac{1}{3} \cdot 2" in labels


def test_a_lookahead_is_an_arrow_with_its_coefficient():
    arrows = lay_out(yf.rules["nesterov-lie-trotter"]).arrows
    ahead = [(a.source, a.target) for a in arrows if r"\mu" in a.label]
    assert ahead == [("V", "attn"), ("V", "mlp")]
    assert not [a for a in lay_out(yf.rules["polyak-lie-trotter"]).arrows if r"\mu" in a.label]


def test_the_hamiltonian_kicks_are_negative():
    labels = [a.label for a in lay_out(yf.rules["hamiltonian"]).arrows if r"\gamma" in a.label]
    assert len(labels) == 2
    assert all(label.startswith("-") for label in labels)


PLAIN = ("gd-lie-trotter", "verlet-mam", "adam")


@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_pictures(tmp_path, name):
    from yuriiformer.methods.drawing.diagram import draw_rule

    svg = draw_rule(RULES[name], tmp_path / "a.svg")
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    "name", [PLAIN[0], *(pytest.param(n, marks=pytest.mark.slow) for n in (*PLAIN[1:], *ODD))]
)
def test_pictures_are_the_same_again_and_of_every_kind(tmp_path, name):
    from PIL import Image

    from yuriiformer.methods.drawing.diagram import draw_rule

    one, two = (draw_rule(RULES[name], tmp_path / f"{each}.svg") for each in "ab")
    assert one.read_bytes() == two.read_bytes()
    with Image.open(draw_rule(RULES[name], tmp_path / "a.png")) as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(2**24)) > 20
    assert draw_rule(RULES[name], tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


def test_a_picture_of_a_very_long_rule_has_fewer_dots(tmp_path, monkeypatch):
    from PIL import Image

    from yuriiformer.methods.drawing import diagram

    monkeypatch.setattr(diagram, "MOST_PIXELS", 1500)
    long = yf.Rule("long", "X = X + attn(X)\nX = X + mlp(X)\n" * 20)
    with Image.open(diagram.draw_rule(long, tmp_path / "long.png")) as picture:
        assert 1000 < max(picture.size) < 1600  # a rim is added


def test_where_a_picture_cannot_go(tmp_path):
    from yuriiformer.methods.drawing.diagram import draw_rule

    with pytest.raises(YuriiError, match=r"written as \.svg, \.png, \.pdf"):
        draw_rule(yf.rules["gd-euler"], tmp_path / "a.gif")
    with pytest.raises(YuriiError, match="no folder"):
        draw_rule(yf.rules["gd-euler"], tmp_path / "none" / "a.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(YuriiError, match="cannot be written"):
        draw_rule(yf.rules["gd-euler"], tmp_path / "folder.svg")
