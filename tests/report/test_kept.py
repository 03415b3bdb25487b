"""Figures are kept: drawn again if a record or a file has changed, and else not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.comparison.synthetic import arm
from yuriiformer.comparison.outcomes import compare_arms
from yuriiformer.files import read_json
from yuriiformer.report import kept
from yuriiformer.report.figures import write_figures

GD, NESTEROV = "gd-lie-trotter", "nesterov-lie-trotter"


@pytest.fixture
def drawn(monkeypatch):
    """The names of the files that are drawn."""
    names: list[str] = []

    def draw(figure, path, **_):
        names.append(path.name)
        path.write_text(f"{path.name} {sorted(str(axes.dataLim) for axes in figure.axes)}")
        return path

    monkeypatch.setattr(kept, "save_figure", draw)
    return names


def compared(folder: Path, gd: float = 1.1):
    return compare_arms([arm(folder, GD, {0: gd}), arm(folder, NESTEROV, {0: 1.0})])


def write(folder: Path, comparison, formats=("png",)) -> list[str]:
    return [path.name for path in write_figures([comparison], folder, formats)]


def test_what_has_not_changed_is_not_drawn_again(tmp_path, drawn, monkeypatch):
    first = write(tmp_path / "f", compared(tmp_path / "a"))
    assert sorted(drawn) == sorted(first)
    assert {"loss-curves.png", "ranking.png", f"coefficients-{NESTEROV}.png"} <= set(first)
    assert f"coefficients-{GD}.png" not in first  # it has nothing to show
    drawn.clear()
    made: list[str] = []
    monkeypatch.setattr(kept, "is_empty", lambda figure: made.append("figure"))
    assert write(tmp_path / "f", compared(tmp_path / "b")) == first  # read from other files
    assert (drawn, made) == ([], [])


def test_another_format_is_added(tmp_path, drawn):
    comparison = compared(tmp_path / "a")
    first = write(tmp_path / "f", comparison)
    drawn.clear()
    both = write(tmp_path / "f", comparison, ("png", "svg"))
    assert sorted(drawn) == sorted(name.replace(".png", ".svg") for name in first)
    assert set(both) == {*first, *drawn}


def test_a_changed_record_draws_what_shows_it(tmp_path, drawn):
    before = compared(tmp_path / "a")
    first = write(tmp_path / "f", before)
    ranking = (tmp_path / "f" / "ranking.png").read_text()
    drawn.clear()
    write(tmp_path / "f", compared(tmp_path / "b", gd=1.2))
    # The coefficients of the other arm are the same.
    assert sorted(drawn) == sorted(set(first) - {f"coefficients-{NESTEROV}.png"})
    assert (tmp_path / "f" / "ranking.png").read_text() != ranking


def test_one_changed_number_is_enough(tmp_path, drawn):
    write(tmp_path / "f", compared(tmp_path / "a"))
    drawn.clear()
    comparison = compared(tmp_path / "b")
    curves = comparison.arms[0].first.curves
    curves.loss[3] += 1e-9
    write(tmp_path / "f", comparison)
    assert "loss-curves.png" in drawn
    drawn.clear()
    comparison.arms[1].first.curves.coefficients[-1][1]["beta"][0] += 1e-9
    write(tmp_path / "f", comparison)
    assert f"coefficients-{NESTEROV}.png" in drawn


def test_another_version_draws_again(tmp_path, drawn, monkeypatch):
    first = write(tmp_path / "f", compared(tmp_path / "a"))
    drawn.clear()
    monkeypatch.setattr(kept, "__version__", "later")
    write(tmp_path / "f", compared(tmp_path / "b"))
    assert sorted(drawn) == sorted(first)


@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_file_is_drawn_again(tmp_path, drawn, damage):
    comparison = compared(tmp_path / "a")
    write(tmp_path / "f", comparison)
    path = tmp_path / "f" / "ranking.png"
    whole = path.read_bytes()
    drawn.clear()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(whole[:5] if damage == "cut" else whole[:-1] + b"?")
    write(tmp_path / "f", comparison)
    assert drawn == ["ranking.png"]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("text", ["", "[]", "{", '{"ranking": 3}', '{"ranking": {"from": "x"}}'])
def test_a_damaged_record_of_what_was_made(tmp_path, drawn, text):
    comparison = compared(tmp_path / "a")
    first = write(tmp_path / "f", comparison)
    drawn.clear()
    (tmp_path / "f" / kept.MADE).write_text(text)
    assert write(tmp_path / "f", comparison) == first
    assert sorted(drawn) == sorted(first)
    assert set(read_json(tmp_path / "f" / kept.MADE)) >= {"ranking", "loss-curves"}
