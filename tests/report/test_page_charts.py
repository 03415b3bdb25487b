"""The charts of the report page in a browser: what is drawn is what the payload says."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest

from tests.browser import LINES, VISIBLE, choose
from tests.report import payloads

pytestmark = pytest.mark.slow


def test_the_legend_hides_lines(open_page):
    page = open_page(payloads.small())
    entry = page.locator("#legend [data-arm=arm-1]")
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-1", "arm-2"]
    entry.click()
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-2"]
    assert page.evaluate("report.charts.difference.lines.map((line) => line.group)") == ["arm-2"]
    assert entry.get_attribute("aria-pressed") == "false"
    entry.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-1", "arm-2"]
    page.get_by_role("button", name="none", exact=True).click()
    assert page.evaluate(VISIBLE) == []
    assert "Every line is switched off." in page.locator("#curves").inner_text()
    page.get_by_role("button", name="all", exact=True).click()
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-1", "arm-2"]


def test_axes_show_the_right_numbers(open_page):
    payload = payloads.small()
    page, arms = open_page(payload), {a["id"]: a for a in payload["groups"][0]["arms"]}
    page.get_by_label("cut the warm-up").uncheck()
    expected = {
        "step": lambda arm, step: step,
        "tokens": lambda arm, step: step * arm["tokens_a_step"],
        "FLOPs": lambda arm, step: step * arm["tokens_a_step"] * arm["flops_a_token"],
        "time": lambda arm, step: step * arm["curves"]["time"]["seconds"][-1] / 1000,
    }
    units = {"step": 1, "tokens": 1e6, "FLOPs": 1e12, "time": 60}
    for axis, of in expected.items():
        choose(page, axis)
        assert page.evaluate("report.unit.factor") == units[axis]
        for line in page.evaluate(LINES):
            arm = arms[line["group"]]
            wanted = [of(arm, step) / units[axis] for step in arm["curves"]["val"]["step"]]
            assert line["x"] == pytest.approx(wanted)
        most = max(of(arm, 1000) for arm in arms.values()) / units[axis]
        for chart in ("curves", "difference"):
            scale = page.evaluate(
                f"(({{min, max}}) => [min, max])(report.charts.{chart}.u.scales.x)"
            )
            assert scale == pytest.approx([0, most])
    page.get_by_label("cut the warm-up").check()
    assert page.evaluate("report.charts.curves.u.scales.x.min") == pytest.approx(most / 10)


def test_what_is_drawn_is_the_payload(open_page):
    payload = payloads.small()
    page, arms = open_page(payload), {a["id"]: a for a in payload["groups"][0]["arms"]}

    def drawn():
        return {(line["group"], line.get("seed")): line["y"] for line in page.evaluate(LINES)}

    assert drawn() == {(key, None): arm["curves"]["val"]["loss"] for key, arm in arms.items()}
    assert page.locator("#smoothing").is_hidden()
    choose(page, "training")
    for button, sigma in (("none", "0"), ("σ 10", "10"), ("σ 200", "200"), ("σ 50", "50")):
        choose(page, button)
        wanted = {(key, None): a["curves"]["train"][sigma]["loss"] for key, a in arms.items()}
        assert drawn() == wanted
    choose(page, "every run")
    assert drawn() == {
        (key, run["seed"]): run["curves"]["train"]["50"]["loss"]
        for key, arm in arms.items()
        for run in arm["runs"]
    }
    differences = page.evaluate("report.charts.difference.lines.map(({y, low}) => [y, low])")
    assert differences == [
        [arm["difference"]["mean"], arm["difference"]["low"]] for arm in list(arms.values())[1:]
    ]
    page.get_by_label("log y axis").check()
    assert page.evaluate("report.charts.curves.u.scales.y.distr") == 3


def test_zoom_and_back(open_page):
    page = open_page(payloads.small())
    scale = "(({min, max}) => [min, max])(report.charts.{}.u.scales.x)"
    before = page.evaluate(scale.replace("{}.u", "curves.u"))

    def drag():
        over = page.locator("#curve-chart .u-over")
        over.scroll_into_view_if_needed()
        box = over.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60, steps=4)
        page.mouse.up()
        return box

    reset = page.get_by_role("button", name="Reset zoom")
    assert reset.is_disabled()
    drag()
    width = before[1] - before[0]
    zoomed = [before[0] + width * 0.25, before[0] + width * 0.5]
    for chart in ("curves", "difference"):
        seen = page.evaluate(scale.replace("{}.u", f"{chart}.u"))
        assert seen == pytest.approx(zoomed, abs=width / 100)
    reset.click()
    assert page.evaluate(scale.replace("{}.u", "curves.u")) == before
    box = drag()
    page.mouse.dblclick(box["x"] + 100, box["y"] + 100)
    assert page.evaluate(scale.replace("{}.u", "curves.u")) == before


def test_hovering_lists_the_values_in_order(open_page):
    page = open_page(payloads.small())
    over = page.locator("#curve-chart .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 4)
    tip = page.locator("#curve-chart .tip")
    tip.wait_for(state="visible")
    values = [float(text) for text in tip.locator(".tip-value").all_inner_texts()]
    assert len(values) == 3
    assert all(one <= next_ for one, next_ in pairwise(values))
    assert tip.locator(".near .tip-name").inner_text() == "Heavy ball, Lie–Trotter"
    assert page.evaluate("report.charts.curves.near") == "arm-2"
    page.mouse.move(2, 2)
    assert tip.is_hidden()


def test_coefficients_over_depth_and_over_training(open_page):
    payload = payloads.small()
    page, arms = open_page(payload), payload["groups"][0]["arms"]
    drawn = "report.charts.coefficients.map((chart) => chart.lines.map((line) => line.y))"
    page.locator("#coefficient-controls select").select_option(label=arms[1]["label"])
    values = list(arms[1]["coefficients"]["values"].values())
    assert page.evaluate(drawn) == [[rows[0], rows[-1]] for rows in values]
    choose(page, "training", "#coefficients")
    by_layer = [[list(layer) for layer in zip(*rows, strict=True)] for rows in values]
    assert page.evaluate(drawn) == by_layer


def test_groups(open_page):
    page = open_page(payloads.two_groups())
    assert page.locator("#results section").count() == 2
    assert "No run has finished yet." in page.locator("#results-1").inner_text()
    choose(page, "medium")
    # Nothing is validated there, so the training loss is what can be shown.
    assert page.evaluate("report.state.loss") == "train"
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-1"]
    choose(page, "validation")
    assert "No validation loss to draw" in page.locator("#curves").inner_text()
    choose(page, "small")
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-1", "arm-2"]


def test_missing_numbers_break_nothing(open_page):
    payload = payloads.small()
    arms = payload["groups"][0]["arms"]
    arms[1] |= {"curves": None, "tokens_a_step": None}
    arms[2]["curves"]["val"]["loss"][10:13] = [None] * 3
    arms[2]["curves"]["time"] = None
    arms[2]["runs"][0] |= {"curves": None, "step": None}
    payload["groups"][0]["ranking"][0] |= {"low": None, "high": None}
    page = open_page(payload)
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-2"]
    assert "Nothing to draw here for: Nesterov" in page.locator("#curve-note").inner_text()
    choose(page, "tokens")
    choose(page, "time")
    assert page.evaluate(VISIBLE) == ["arm-0"]
    choose(page, "every run")
    assert page.evaluate(VISIBLE) == ["arm-0", "arm-0", "arm-1", "arm-1", "arm-2"]
    assert "NaN" not in page.content()


def test_many_arms_and_runs(open_page, tmp_path):
    payload = payloads.big()
    begun = time.perf_counter()
    page = open_page(payload)
    seconds = time.perf_counter() - begun
    size = (tmp_path / "report.html").stat().st_size
    print(json.dumps({"written and ready, s": round(seconds, 2), "MB": round(size / 1e6, 2)}))
    assert size < 8e6
    choose(page, "training")
    choose(page, "every run")
    choose(page, "time")
    assert len(page.evaluate("report.charts.curves.lines.map((line) => line.x.length)")) == 85
    assert page.evaluate("report.charts.curves.labels.size") == 0
    page.get_by_role("button", name="none", exact=True).click()
    for number in range(8):
        page.locator(f"#legend [data-arm=arm-{number}]").click()
    assert page.evaluate("report.charts.curves.labels.size") == 8
