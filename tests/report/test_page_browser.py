"""The report page in a browser without a network: what people do, and what it then shows."""

from __future__ import annotations

import io

import pytest

from tests.browser import choose, no_overflow, wait
from tests.report import payloads
from tests.report.test_page import hostile
from yuriiformer.methods.references import get_rule
from yuriiformer.methods.rule import Rule
from yuriiformer.report.payload import block_svg

pytestmark = pytest.mark.slow

LONG = Rule(
    "long",
    equations="""
        A = attn(X)
        B = attn(X + gamma * A)
        C = attn(X + gamma * B)
        D = attn(X + C)
        X = X + gamma * (A + 2 * B + 2 * C + D)
        V = norm(beta * V + gamma * mlp(X + mu * V))
        X = X + V
        E = mlp(X)
        X = X + mu * E + mu * mlp(X + mu * E)
    """,
)


def rows_of(page):
    script = "rows => rows.map(row => row.dataset.arm)"
    return page.locator("#results table").first.locator("tbody tr").evaluate_all(script)


def test_every_part_is_shown(open_page):
    payload = payloads.small()
    page, group = open_page(payload), payload["groups"][0]
    text = page.locator("body").inner_text()
    for part in [payload["title"], payload["subtitle"], *payload["headline"], *payload["remarks"]]:
        assert part in text
    assert page.locator("#results table").first.locator("tr.baseline").count() == 1
    assert page.locator("#results table strong").count() == 1
    assert page.locator("#results table").count() == 2
    assert "[object" not in text
    assert page.locator("#curves canvas").count() == 2
    assert page.locator(".intervals .mean").count() == 3
    assert page.locator(".intervals .seed").count() == 6
    assert page.locator("#coefficients canvas").count() == 3
    assert page.locator("#blocks img").count() == 2
    pictures = page.locator("#blocks img")
    pictures.first.evaluate("image => image.decode()")
    assert pictures.first.evaluate("image => image.naturalWidth") > 0
    assert "There is no diagram." in text
    assert "No sample for this prompt." in text
    assert group["arms"][0]["equations"][0] in text
    assert page.locator("#commands .command").count() == 2


def test_tables_are_sorted_both_ways_with_nulls_last(open_page):
    page = open_page(payloads.small())
    button = page.locator("#results").get_by_role("button", name="Validation loss", exact=True)
    header = button.locator("xpath=..")
    assert rows_of(page) == ["arm-0", "arm-1", "arm-2"]
    button.click()
    assert rows_of(page) == ["arm-2", "arm-1", "arm-0"]
    assert header.get_attribute("aria-sort") == "ascending"
    button.click()
    assert rows_of(page) == ["arm-0", "arm-1", "arm-2"]
    assert header.get_attribute("aria-sort") == "descending"

    difference = page.locator("#results").get_by_role("button", name="To baseline", exact=True)
    difference.focus()
    page.keyboard.press("Enter")
    assert rows_of(page) == ["arm-2", "arm-1", "arm-0"]
    page.keyboard.press("Space")
    assert rows_of(page) == ["arm-1", "arm-2", "arm-0"]
    assert header.get_attribute("aria-sort") is None
    # More is better here: the first click brings the most to the top.
    page.locator("#results").get_by_role("button", name="Tokens/s", exact=True).click()
    assert rows_of(page) == ["arm-0", "arm-1", "arm-2"]


def test_prompts_can_be_chosen(open_page):
    page = open_page(payloads.small())
    chosen = page.locator("#samples .prompt").first
    assert chosen.text_content() == payloads.PROMPTS[0]
    page.locator("#samples select").select_option(index=1)
    assert chosen.text_content() == payloads.PROMPTS[1]


def test_help_is_shown_for_headers_and_cells(open_page):
    payload = payloads.small()
    page, table = open_page(payload), payload["groups"][0]["table"]
    shown = page.locator("#results table").first
    titles = "all => all.map(one => one.title)"
    headers = shown.locator("thead button").evaluate_all(titles)
    assert headers == [column["help"] for column in table["columns"]]
    cells = shown.locator("tbody tr > *").evaluate_all(titles)
    keys = [column["key"] for column in table["columns"]]
    assert cells == [row["cells"][key].get("help", "") for row in table["rows"] for key in keys]
    assert any(cells)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 700])
def test_the_arm_stays_while_a_wide_table_scrolls(open_page, width, scheme):
    page = open_page(payloads.small(), width, color_scheme=scheme)
    wait(page, "document.querySelector('#results .wide') !== null")
    seen = page.evaluate(
        """() => {
          const box = document.querySelector("#results .scroll"), ends = [];
          const left = box.getBoundingClientRect().left;
          box.scrollIntoView({ behavior: "instant" });
          box.scrollLeft = 150;
          for (const cell of box.querySelectorAll("th:first-child")) {
            const { x, y, width, height } = cell.getBoundingClientRect();
            const top = document.elementFromPoint(x + width - 3, y + height / 2);
            ends.push({ x: x - left, height, part: width / box.clientWidth, top: cell.contains(top),
              colour: getComputedStyle(cell).backgroundColor });
          }
          const page = getComputedStyle(document.body).backgroundColor;
          return { moved: box.scrollLeft, ends, page };
        }"""
    )
    assert seen["moved"] == 150
    assert all(end["x"] == pytest.approx(0) and end["top"] for end in seen["ends"])
    assert max(end["part"] for end in seen["ends"]) <= (0.46 if width == 360 else 0.7)
    if width == 700:
        assert all(end["height"] < 45 for end in seen["ends"][2:])  # one line
    header, baseline, *others = [end["colour"] for end in seen["ends"]]
    assert {header, *others} == {seen["page"]}
    assert baseline != seen["page"]
    assert all(colour.startswith("rgb(") for colour in (header, baseline))  # opaque


SHOWN = "all => all.filter(one => !one.hidden).map(one => one.textContent)"


def columns_of(page):
    return page.locator("#results table").first.locator("thead th").evaluate_all(SHOWN)


def scrolls(page):
    """Whether the table is wider than its place; the hint must say so."""
    box = page.locator("#results .scroll").first
    wide = box.evaluate("one => one.scrollWidth > one.clientWidth")
    assert page.locator("#results .hint").first.is_visible() == wide
    assert box.evaluate("one => one.parentNode.matches('.more')") == wide
    return wide


def with_many_columns():
    """As the results of a real study: more columns than a page has room for."""
    payload = payloads.small()
    table = payload["groups"][0]["table"]
    for column in table["columns"][3:]:
        column["drop"] = 1
    for number in range(2, 12):
        table["columns"].append({**table["columns"][4], "key": str(number), "drop": number})
        table["columns"][-1]["title"] = f"Column {number}"
        for row in table["rows"]:
            row["cells"][str(number)] = {"text": f"{number}.000 ± 0.001", "value": number}
    return payload, [column["title"] for column in table["columns"]]


def test_a_table_shows_the_columns_that_fit(open_page):
    payload, titles = with_many_columns()
    page = open_page(payload, 1100)
    some = columns_of(page)
    assert 4 < len(some) < len(titles)
    assert some == titles[: len(some)]  # the most important ones
    assert not scrolls(page)
    page.set_viewport_size({"width": 900, "height": 900})
    shown = (
        "document.querySelector('#results table').querySelectorAll('th[scope=col]:not([hidden])')"
    )
    wait(page, f"{shown}.length < {len(some)}")
    assert not scrolls(page)
    page.set_viewport_size({"width": 360, "height": 900})
    wait(page, "document.querySelector('#results .wide') !== null")
    assert columns_of(page) == titles[:3]  # these stay
    assert scrolls(page)
    page.locator("#results .scroll").first.evaluate("box => { box.scrollLeft = 9999; }")
    wait(page, "document.querySelector('#results .more') === null")


def test_the_other_columns_can_be_chosen(open_page):
    payload, titles = with_many_columns()
    page = open_page(payload, 1100)
    some, chooser = columns_of(page), page.locator("#results .columns").first
    count = chooser.locator("summary")
    assert count.inner_text() == f"Columns ({len(titles) - len(some)} more)"
    count.click()
    assert chooser.get_by_role("checkbox", checked=True).count() == len(some) - 3
    chooser.get_by_label("Column 11").check()
    assert columns_of(page) == [*some, "Column 11"]
    chooser.get_by_label("Tokens/s").uncheck()
    assert "Tokens/s" not in columns_of(page)
    chooser.get_by_role("button", name="All").click()
    assert columns_of(page) == titles
    assert scrolls(page)
    assert count.inner_text() == "Columns"
    page.locator("#results").get_by_role("button", name="Column 11", exact=True).click()
    chooser.get_by_role("button", name="Those that fit").click()
    assert columns_of(page) == some
    assert not scrolls(page)


@pytest.mark.parametrize("width", [390, 1100])
def test_diagrams_of_long_rules_stay_readable(open_page, width):
    payload = payloads.small()
    one, two, _ = payload["groups"][0]["arms"]
    for arm, rule in ((one, get_rule("nesterov-lie-trotter")), (two, LONG)):
        arm["diagram"], arm["rule"] = block_svg(rule), rule.name
    page = open_page(payload, width)
    assert no_overflow(page)
    for image in page.locator("#blocks img").all():
        image.evaluate("image => image.decode()")
        # Drawn in points of a 72nd of an inch: a letter of 9 to 12 of them has as many pixels.
        scale = "image => image.getBoundingClientRect().width / (image.naturalWidth * 0.75)"
        assert 0.66 < image.evaluate(scale) <= 1.01
    broad = page.locator("#blocks .broad")
    assert broad.count() == 1
    wide = "box => box.scrollWidth > box.clientWidth"
    assert broad.locator(".diagram").evaluate(wide) == (width == 390)


def test_diagrams_are_dark_in_the_dark(open_page):
    import numpy as np
    from PIL import Image

    def brightness(page):
        box = page.locator("#blocks .diagram").first
        box.locator("img").evaluate("image => image.decode()")
        return np.asarray(Image.open(io.BytesIO(box.screenshot())).convert("L"))

    payload = payloads.small()
    payload["groups"][0]["arms"][0]["diagram"] = block_svg(get_rule("gd-lie-trotter"))
    light = brightness(open_page(payload))
    dark = brightness(open_page(payload, color_scheme="dark"))
    assert np.median(light) > 240
    assert np.median(dark) < 30
    assert dark.max() > 180  # the lines and letters


def test_the_keyboard_shows_where_it_is(open_page):
    page = open_page(payloads.small(), 360)
    marked = """() => {
      const one = document.activeElement, look = getComputedStyle(one);
      const beside = one.type === "radio" ? getComputedStyle(one.nextElementSibling) : null;
      return { tag: one.tagName, text: one.textContent.slice(0, 40),
        outline: look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2,
        shadow: beside !== null && beside.boxShadow !== "none" };
    }"""
    tags = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        stop = page.evaluate(marked)
        if stop["tag"] == "BODY":
            break
        tags.add(stop["tag"])
        assert stop["outline"] or stop["shadow"], stop
    assert tags == {"A", "BUTTON", "DIV", "INPUT", "PRE", "SELECT", "SUMMARY"}


def test_the_keyboard_finds_no_header_under_the_arms(open_page):
    page = open_page(payloads.small(), 360)
    wait(page, "document.querySelector('#results .wide') !== null")
    page.locator("#results .scroll").first.evaluate("box => { box.scrollLeft = 150; }")
    buttons = page.locator("#results thead").first.get_by_role("button")
    buttons.nth(3).focus()
    page.keyboard.press("Shift+Tab")
    assert buttons.nth(2).evaluate("one => document.activeElement === one")
    edge = buttons.nth(0).bounding_box()
    box = buttons.nth(2).bounding_box()
    assert edge["x"] + edge["width"] <= box["x"] + 1


def test_intervals_say_their_level(open_page):
    page = open_page(payloads.small())
    assert "95 % interval" in page.locator("#results .note").last.inner_text()
    assert "95 % interval" in page.locator("#difference-note").inner_text()
    titles = page.locator(".intervals title").all_text_contents()
    assert all("95 % interval" in title for title in titles)


def test_light_and_dark(open_page):
    background = "getComputedStyle(document.body).backgroundColor"
    backgrounds = {}
    for scheme in ("light", "dark"):
        page = open_page(payloads.small(), color_scheme=scheme)
        backgrounds[scheme] = page.evaluate(background)
        page.locator("#theme").click()
        backgrounds[f"not {scheme}"] = page.evaluate(background)
    assert backgrounds["light"] == backgrounds["not dark"] != backgrounds["dark"]
    assert backgrounds["dark"] == backgrounds["not light"]


@pytest.mark.parametrize("width", [360, 768, 1600])
def test_the_page_fits_its_window(open_page, width):
    page = open_page(payloads.small(), width)
    assert no_overflow(page)
    choose(page, "training")
    page.locator("#arm-details details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert no_overflow(page)
    # Turned, as a telephone is: the charts follow.
    page.set_viewport_size({"width": 500, "height": 800})
    wait(page, "report.charts.curves.u.width < 500")
    assert no_overflow(page)


def test_nothing_yet_is_said_in_words(open_page):
    text = open_page(payloads.bare(), 360).locator("body").inner_text()
    for words in (
        "No arm has results yet.",
        "No run has finished yet.",
        "No validation loss to draw",
        "No paired difference",
        "No arm has learned coefficients recorded.",
        "There is no diagram.",
        "No texts were sampled.",
    ):
        assert words in text
    assert "NaN" not in text
    assert "undefined" not in text
    open_page({**payloads.bare(), "groups": []})


def test_hostile_texts_stay_texts(open_page):
    page = open_page(hostile(payloads.small()))
    assert page.locator("img").evaluate_all("all => all.every(one => one.src.startsWith('data:'))")
    assert "<img src=x" in page.locator("h1").inner_text()
    assert page.locator("main script").count() == 0


def test_copying(open_page):
    page = open_page(payloads.small(), permissions=["clipboard-read", "clipboard-write"])
    button = page.locator("#commands .copy").first
    button.click()
    wait(page, "document.querySelector('#commands .copy').textContent != 'Copy'")
    if button.inner_text() == "Copied":
        copied = page.evaluate("navigator.clipboard.readText()")
    else:
        copied = page.evaluate("String(getSelection())")
    assert copied == payloads.small()["commands"][0]["command"]
