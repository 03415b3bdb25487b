"""The report page as text: everything of the payload is in it, and nothing of it is markup."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from tests.report import payloads
from yuriiformer.display.curves import BASELINE_COLOUR, COLOURS, DASHES, line_style
from yuriiformer.display.page import POLICY, page_html, write_page
from yuriiformer.report.payload import PAGE

HOSTILE = '</script><img src=x onerror="alert(1)"><!--{{data}}<script>'


class Reader(HTMLParser):
    """What a browser would take for elements, and the texts of the scripts."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags:
            self.texts.setdefault(self.tags[-1][0], []).append(data)


def payload_in(html: str):
    """The payload as the page's script reads it."""
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1]
    data = json.loads(text)

    def whole(node):
        if isinstance(node, list):
            return [whole(value) for value in node]
        if not isinstance(node, dict):
            return node
        if "@list" in node:
            return data["pool"][node["@list"]]
        return {key: whole(value) for key, value in node.items()}

    return whole(data["payload"])


def hostile(data):
    """The payload with every text a person may have written made hostile."""
    if isinstance(data, dict):
        keep = {"id", "arm", "baseline", "key"}
        return {k: v if k in keep else hostile(v) for k, v in data.items()}
    if isinstance(data, list):
        return [hostile(value) for value in data]
    return data + HOSTILE if isinstance(data, str) else data


@pytest.mark.parametrize("make", [payloads.small, payloads.two_groups, payloads.bare])
def test_the_payload_is_in_the_page_whole(make):
    assert payload_in(page_html(PAGE, make())) == make()
    assert payload_in(page_html(PAGE, hostile(make()))) == hostile(make())


def test_steps_are_kept_once():
    payload = payloads.small()
    steps = ",".join(map(str, payload["groups"][0]["arms"][0]["curves"]["train"]["0"]["step"]))
    assert page_html(PAGE, payload).count(steps) == 1


def test_no_text_becomes_markup():
    calm, wild = page_html(PAGE, payloads.small()), page_html(PAGE, hostile(payloads.small()))
    assert HOSTILE not in wild
    assert "<img" not in wild
    assert [tag for tag, _ in Reader(wild).tags] == [tag for tag, _ in Reader(calm).tags]
    assert "".join(Reader(wild).texts["title"]).startswith("tales-tiny</script><img")


def test_no_place_of_the_template_is_left_or_filled_twice():
    html = page_html(PAGE, payloads.small())
    assert not re.search(r"\{\{\w+\}\}", html)
    assert page_html(PAGE, payloads.small() | {"title": "{{data}}"}).count('"groups":') == 1


def test_nothing_is_fetched():
    html = page_html(PAGE, payloads.small())
    for tag, attributes in Reader(html).tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        assert not {"src", "srcset", "href"} & attributes.keys(), tag
    styles = "".join(re.findall(r"<style>(.*?)</style>", html, re.S))
    assert "url(" not in styles
    assert "@import" not in styles
    metas = [attributes for tag, attributes in Reader(html).tags if tag == "meta"]
    assert {"http-equiv": "Content-Security-Policy", "content": POLICY} in metas
    assert POLICY.startswith("default-src 'none'")


def test_own_scripts_make_no_markup_of_texts():
    assets = files("yuriiformer.report") / "assets"
    for name in PAGE.scripts:
        text = (assets / name).read_text()
        assert "</script" not in text
        if not name.startswith("uPlot"):
            for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
                assert way not in text


def test_the_licence_of_what_is_carried_is_carried():
    licence = (files("yuriiformer.display") / "assets" / "uPlot.LICENSE").read_text().strip()
    assert "Leon Sorokin" in licence
    assert licence in page_html(PAGE, payloads.bare())


def test_same_payload_same_page(tmp_path):
    write_page(PAGE, payloads.small(), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text == page_html(PAGE, payloads.small())
    assert list(tmp_path.iterdir()) == [tmp_path / "report.html"]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_json_lacks_is_refused(number):
    payload = payloads.small()
    payload["groups"][0]["ranking"][0]["mean"] = number
    with pytest.raises(ValueError, match="not JSON compliant"):
        page_html(PAGE, payload)


def test_every_line_looks_different():
    number = len(COLOURS) * len(DASHES)
    looks = [line_style(style) for style in range(1, number + 1)]
    assert len(set(looks)) == number
    assert [colour for colour, _ in looks[: len(COLOURS)]] == list(COLOURS)
    assert all(dash is None for _, dash in looks[: len(COLOURS)])
    assert line_style(0) == (BASELINE_COLOUR, None)
    assert line_style(number + 1) == line_style(1)


def test_a_page_needs_no_torch():
    code = "import sys, yuriiformer.display.page; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
