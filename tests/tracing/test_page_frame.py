"""The depth page as text: the whole payload is in it, and nothing of it is markup."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tests.report.test_page import HOSTILE, Reader, hostile, payload_in
from tests.tracing import depths
from yuriiformer.display.page import CHARTS, LOOKS, POLICY, page_html
from yuriiformer.report.payload import PAGE as REPORT
from yuriiformer.tracing.page import PAGE

MAKERS = [depths.one, depths.two, depths.unlike, depths.odd, depths.single]
ASSETS = files("yuriiformer.tracing") / "assets"
SHARED = files("yuriiformer.display") / "assets"


@pytest.mark.parametrize("make", MAKERS)
def test_the_payload_is_in_the_page_whole(make):
    assert payload_in(page_html(PAGE, make())) == make()
    assert payload_in(page_html(PAGE, hostile(make()))) == hostile(make())


@pytest.mark.parametrize("make", MAKERS)
def test_no_text_becomes_markup(make):
    calm, wild = page_html(PAGE, make()), page_html(PAGE, hostile(make()))
    assert HOSTILE not in wild
    assert "<img" not in wild
    assert [tag for tag, _ in Reader(wild).tags] == [tag for tag, _ in Reader(calm).tags]


def test_nothing_is_fetched():
    html = page_html(PAGE, depths.odd())
    for tag, attributes in Reader(html).tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        assert not {"src", "srcset", "href"} & attributes.keys(), tag
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, re.S))
    assert "url(" not in styles
    assert "@import" not in styles
    metas = [attributes for tag, attributes in Reader(html).tags if tag == "meta"]
    assert {"http-equiv": "Content-Security-Policy", "content": POLICY} in metas


def test_own_scripts_make_no_markup_of_texts():
    for path in [*(ASSETS / name for name in PAGE.scripts), *(SHARED / name for name in CHARTS)]:
        name, text = path.name, path.read_text()
        assert "</script" not in text
        if not name.startswith("uPlot"):
            for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert way not in text


def test_every_asset_is_of_some_page():
    for page in (PAGE, REPORT):
        there = {path.name for path in (files(f"yuriiformer.{page.room}") / "assets").iterdir()}
        assert there == {page.body, *page.styles, *page.scripts}
    there = {path.name for path in SHARED.iterdir() if not path.name.endswith(".LICENSE")}
    assert there == {*CHARTS, *LOOKS, "page.html"}


def test_every_place_the_scripts_fill_is_in_the_template():
    template = (SHARED / "page.html").read_text() + (ASSETS / PAGE.body).read_text()
    ids = set(re.findall(r'id="([\w-]+)"', template))
    for name in PAGE.scripts:
        text = (ASSETS / name).read_text()
        made = set(re.findall(r'id: "([\w-]+)"', text))
        asked = set(re.findall(r'\$\("([\w-]+)"\)', text))
        assert asked <= ids | made, name


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_lacks_is_refused(number):
    payload = depths.one()
    payload["runs"][0]["texts"][0]["by_layer"]["norm_X"][0][0] = number
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_html(PAGE, payload)


@pytest.mark.parametrize("make", [*MAKERS, depths.large])
def test_the_made_up_payloads_are_of_the_right_form(make):
    for run in make()["runs"]:
        for text in run["texts"]:
            count, rows = len(text["pieces"]), run["n_layer"] + 1
            assert len(text["tokens"]) == len(text["target_pieces"]) == count
            for values in text["by_layer"].values():
                assert [len(row) for row in values] == [count] * rows
            for values in [*text["by_step"].values(), *text["heads"].values()]:
                assert len(values) == len(run["steps"])
            for pca in text["pca"].values():
                assert [place["row"] for place in pca["places"]][-1] == run["n_layer"]
                assert {len(points) for points in pca["points"]} == {count}
