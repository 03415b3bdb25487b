"""The depth page as text: the whole payload is in it, and nothing of it is markup."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tests.render import depths
from tests.render.test_page import HOSTILE, Reader, hostile, payload_in
from yuriiformer.render.page import PAGES, POLICY, page_html

MAKERS = [depths.one, depths.two, depths.unlike, depths.odd, depths.single]
ASSETS = files("yuriiformer.render") / "assets"


@pytest.mark.parametrize("make", MAKERS)
def test_the_payload_is_in_the_page_whole(make):
    assert payload_in(page_html(make(), "depth")) == make()
    assert payload_in(page_html(hostile(make()), "depth")) == hostile(make())


@pytest.mark.parametrize("make", MAKERS)
def test_no_text_becomes_markup(make):
    calm, wild = page_html(make(), "depth"), page_html(hostile(make()), "depth")
    assert HOSTILE not in wild
    assert "<img" not in wild
    assert [tag for tag, _ in Reader(wild).tags] == [tag for tag, _ in Reader(calm).tags]


def test_nothing_is_fetched():
    html = page_html(depths.odd(), "depth")
    for tag, attributes in Reader(html).tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        assert not {"src", "srcset", "href"} & attributes.keys(), tag
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, re.S))
    assert "url(" not in styles
    assert "@import" not in styles
    metas = [attributes for tag, attributes in Reader(html).tags if tag == "meta"]
    assert {"http-equiv": "Content-Security-Policy", "content": POLICY} in metas


def test_own_scripts_make_no_markup_of_texts():
    for name in PAGES["depth"].scripts:
        text = (ASSETS / name).read_text()
        assert "</script" not in text
        if not name.startswith("uPlot"):
            for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert way not in text


def test_every_asset_is_of_some_page():
    used = {
        name for page in PAGES.values() for name in (page.body, *page.styles, *page.scripts)
    } | {"page.html"}  # the frame of all
    there = {path.name for path in ASSETS.iterdir() if not path.name.endswith(".LICENSE")}
    assert there == used


def test_every_place_the_scripts_fill_is_in_the_template():
    template = (ASSETS / "page.html").read_text() + (ASSETS / PAGES["depth"].body).read_text()
    ids = set(re.findall(r'id="([\w-]+)"', template))
    for name in PAGES["depth"].scripts:
        if not name.startswith("depth"):
            continue
        text = (ASSETS / name).read_text()
        made = set(re.findall(r'id: "([\w-]+)"', text))
        asked = set(re.findall(r'\$\("([\w-]+)"\)', text))
        assert asked <= ids | made, name


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_lacks_is_refused(number):
    payload = depths.one()
    payload["runs"][0]["texts"][0]["by_layer"]["norm_X"][0][0] = number
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_html(payload, "depth")


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
