"""The scaling section of a report: tables, figure, page."""

from __future__ import annotations

import pytest

from tests.comparison.ladder_runs import LAWS, write_ladder
from yuriiformer.comparison.outcomes import compare_arms
from yuriiformer.display.figures import is_empty
from yuriiformer.report.figures_scaling import scaling_figure
from yuriiformer.report.payload import Extras, payload
from yuriiformer.report.scaling import GAINS, SIZES, scaling_tables
from yuriiformer.report.scaling import LAWS as LAW_TABLE
from yuriiformer.report.tables import markdown


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    return compare_arms(write_ladder(tmp_path_factory.mktemp("ladder"), LAWS))


def test_tables_and_figure(comparison):
    tables = scaling_tables(comparison)
    assert list(tables) == [SIZES, LAW_TABLE, GAINS]
    assert len(tables[SIZES].rows) == 5 * len(LAWS)
    text = markdown(tables[GAINS])
    gain = {each.label: each for each in comparison.scaling.gains}["nesterov-lie-trotter"]
    assert f"{gain.large.value:.2f} [{gain.large.low:.2f}, {gain.large.high:.2f}]" in text
    figure = scaling_figure(comparison)
    dots = [line for line in figure.axes[0].lines if line.get_linestyle() == "None"]
    assert [len(line.get_xdata()) for line in dots] == [10] * len(LAWS)
    assert not is_empty(figure)


def test_nothing_where_sizes_are_equal(tmp_path):
    one = compare_arms(write_ladder(tmp_path, widths=(48,)))
    assert scaling_tables(one) == {}
    assert is_empty(scaling_figure(one))
    assert payload([one], Extras())["groups"][0]["scaling"] is None


@pytest.mark.slow
def test_the_page_draws_every_run_and_the_laws(comparison, open_page):
    page = open_page(payload([comparison], Extras()))
    lines = "report.charts.scaling.lines.map(({x, y, points, low}) => ({x, y, points, low}))"
    drawn = page.evaluate(lines)
    runs = sum(len(line["y"]) for line in drawn if line.get("points"))
    assert runs == sum(len(each.losses) for each in comparison.scaling.families)
    assert sum(line.get("low") is not None for line in drawn) == len(LAWS)
    short = max(line["x"][-1] for line in drawn)
    page.get_by_label("as far as the paper’s sizes").check()
    assert max(line["x"][-1] for line in page.evaluate(lines)) > short + 2
    assert "a picture, not a forecast" in page.locator("#scaling").inner_text()
    page.locator("#scaling").get_by_role("radio", name="tokens", exact=True).check()
    assert all(line.get("low") is None for line in page.evaluate(lines))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
