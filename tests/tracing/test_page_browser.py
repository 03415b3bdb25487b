"""The depth page in a browser without a network: what people do, and what it then shows."""

from __future__ import annotations

import pytest

from tests.browser import no_overflow, wait
from tests.report.test_page import hostile
from tests.tracing import depths
from tests.tracing.depths import selected, spelled
from tests.tracing.test_page import payload as payload_of
from tests.tracing.test_page import traced
from yuriiformer.tracing.page import reading

pytestmark = pytest.mark.slow
CURVE = "depth.charts.curve.lines.map(({x, y}) => [x, y])"


def test_every_part_is_shown(explore):
    payload = depths.two()
    page = explore(payload)
    words = page.locator("body").inner_text()
    for part in ("title", "subtitle", "made"):
        assert payload[part] in words
    for run in payload["runs"]:
        assert words.count(run["label"]) >= 4
        assert all(line in words for line in run["equations"])
    assert all(reading["text"] in words for reading in payload["reading"])
    assert page.locator("nav a").count() == page.locator("main section").count() == 9
    assert page.locator("#commands .command").count() == 1
    assert page.locator(".chip").count() == 2 * len(depths.WORDS)
    assert page.locator("#planes canvas").count() == 2
    assert page.locator("#coefficients canvas").count() == 3
    assert page.locator("#heads .heat rect").count() == 2 * 6 * 4
    assert page.locator("#maps .heat rect").count() == 2 * 6 * 4
    assert "NaN" not in words
    assert "undefined" not in words


def test_maps_of_the_heads(explore):
    payload = depths.two()
    page = explore(payload)
    for name in ("alignment", "value_output_attraction"):
        page.locator("#map-controls select").select_option(name)
        shown = page.locator("#maps .heat title").evaluate_all("all => all.map(o => o.textContent)")
        values = [
            value
            for run in payload["runs"]
            for each in run["maps"]
            if each["name"] == name
            for layer in each["layers"]
            for value in layer
        ]
        assert len(shown) == len(values)
        numbers = [float(text.rsplit(": ", 1)[1].replace("−", "-")) for text in shown]
        assert numbers == pytest.approx(values, abs=0.01)
        assert page.locator("#maps .below").count() == sum(value < 0 for value in values)
    bare = depths.one()
    bare["runs"][0]["maps"] = []
    assert "Nothing is known" in explore(bare).locator("#maps").inner_text()


def test_tokens_are_selected_for_both_runs(explore):
    page = explore(depths.two())
    chips = [page.locator(".chips").nth(run).locator(".chip") for run in (0, 1)]
    assert selected(page) == selected(page, 1) == list(range(13, 23))
    page.get_by_role("button", name="none", exact=True).click()
    assert selected(page) == []
    assert "No token is selected." in page.locator("#prediction").inner_text()
    chips[0].nth(3).click()
    chips[1].nth(6).click(modifiers=["Shift"])
    chips[0].nth(5).click()
    assert selected(page) == selected(page, 1) == [3, 4, 6]
    pressed = "all => all.map(one => one.getAttribute('aria-pressed') === 'true')"
    for run in (0, 1):
        states = chips[run].evaluate_all(pressed)
        assert [i for i, on in enumerate(states) if on] == selected(page)
    page.get_by_role("button", name="all", exact=True).click()
    assert selected(page) == list(range(23))


def test_a_range_and_the_keyboard(explore):
    page = explore(depths.one())
    chips = page.locator(".chip")
    page.get_by_role("button", name="none", exact=True).click()
    chips.nth(7).click()
    chips.nth(4).click(modifiers=["Shift"])
    assert selected(page) == [4, 5, 6, 7]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    assert selected(page) == [3, 4, 5, 6, 7]
    page.keyboard.press("Shift+ArrowLeft")
    assert selected(page) == [2, 3, 4, 5, 6, 7]
    assert chips.evaluate_all("all => all.filter(one => one.tabIndex === 0).length") == 1


def test_a_cell_says_more_to_the_pointer_and_the_keyboard(explore):
    payload = depths.one()
    page, text = explore(payload), payload["runs"][0]["texts"][0]
    tip = page.locator(".tip.floating")
    page.locator("#prediction td[data-row='2'][data-token='15']").hover()
    words = tip.inner_text()
    assert all(spelled(piece) in words for piece, _ in text["top"][2][15])
    assert f"rank {text['by_layer']['lens_rank'][2][15]:,}" in words
    page.mouse.move(0, 0)
    page.locator("#prediction td[tabindex='0']").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    where = "[+document.activeElement.dataset.row, +document.activeElement.dataset.token]"
    assert page.evaluate(where) == [3, 14]
    assert "seen after 3 blocks" in tip.inner_text()


def test_what_a_cell_says_goes_along_with_it(explore):
    page = explore(depths.one(), 360)
    page.locator("#prediction td[tabindex='0']").focus()
    for _ in range(8):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)  # what scrolls has come to rest
    tip, cell = page.evaluate(
        """[document.querySelector(".tip.floating"), document.activeElement].map((one) => {
          const { left, right, top, bottom } = one.getBoundingClientRect();
          return { left, right, top, bottom };
        })"""
    )
    assert cell["left"] >= 0
    assert cell["right"] <= 360
    assert tip["left"] <= cell["right"] + 5
    assert tip["right"] >= cell["left"] - 25
    below, above = tip["top"] - cell["bottom"], cell["top"] - tip["bottom"]
    assert 0 <= below < 10 or 0 <= above < 10  # above where there is no room below


def test_the_chosen_layer_is_shown_everywhere(explore):
    page = explore(depths.one())
    page.get_by_role("slider", name="depth").focus()
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    assert page.evaluate("depth.state.depth") == pytest.approx(2 / 6)
    assert page.locator(".lens tr.chosen").get_attribute("data-row") == "2"
    assert page.evaluate("[depth.charts.lens.shown.mark, depth.charts.curve.shown.mark]") == [2, 2]
    page.locator("#prediction").get_by_role("button", name="choose: after 5 blocks").click()
    assert page.locator(".layer-name").inner_text() == "after 5 of 6 blocks"
    page.get_by_role("button", name="Play").click()
    wait(page, "depth.state.depth === 1 && document.querySelector('#play').textContent === 'Play'")


def test_another_text(explore):
    page = explore(depths.two())
    page.locator("#toolbar select").select_option(index=1)
    assert page.locator(".chip").count() == 2 * 9
    assert selected(page, 1) == list(range(9))
    assert page.evaluate("depth.charts.planes[1].trajectories.length") == 9


def test_a_coefficient_may_be_called_as_something_of_javascripts(explore):
    payload = depths.two()
    names = ("toString", "constructor", "__proto__", "hasOwnProperty")
    one, other = payload["runs"]
    one["coefficients"] = {name: [0.1 * k for k in range(6)] for name in names}
    other["coefficients"] = {"beta": [0.5] * 4}
    page = explore(payload)
    assert page.locator("#coefficients canvas").count() == len(names) + 1
    captions = page.locator("#coefficients figcaption").all_inner_texts()
    assert captions == [f"{name} · {one['label']}" for name in names] + [f"beta · {other['label']}"]


def test_odd_pieces_are_seen_and_stay_texts(explore):
    page = explore(depths.odd(), 360)
    page.get_by_role("button", name="all", exact=True).click()
    chips = page.locator(".chip").all_text_contents()
    assert chips[:4] == ["<script>", "'\"", "↵", "·"]
    assert chips[5:8] == ["∅", "⇥U+202E", "</td>"]
    assert all(chips)
    page.locator("#curve-controls select").select_option("by_layer:norm_X")
    assert "Nothing to draw" in page.locator("#curve-chart").inner_text()
    page.locator("#curve-controls select").select_option("by_layer:own_measure")
    assert page.evaluate(CURVE) == [[[0, 1, 2], [None, 1, 2]]]
    page.locator("#curve-controls select").select_option("by_step:norm")
    legend = page.locator("#curve-legend button").all_text_contents()
    assert legend == ["attn[0]", "X (first)", "mlp[0]", "X (second)"]
    assert "There are no learned coefficients." in page.locator("#coefficients").inner_text()
    assert page.locator("main img, main script").count() == 0
    assert no_overflow(page)


@pytest.mark.parametrize("make", [depths.two, depths.odd])
def test_hostile_texts_stay_texts(explore, make):
    page = explore(hostile(make()), 390)
    assert page.locator("main img, main script").count() == 0
    assert "<img src=x" in page.locator("h1").inner_text()
    assert no_overflow(page)


@pytest.mark.parametrize(
    "rules", [("gd-lie-trotter", "hamiltonian"), ("verlet-ama", "imex2-ln-mlp-attn")]
)
def test_real_traces_are_explained_and_drawn(explore, rules):
    """Blocks that ask an oracle twice, or skip a step in the last layer."""
    page = explore(payload_of(*map(traced, rules)))
    options = page.locator("#curve-controls option")
    for value in options.evaluate_all("all => all.map(one => one.value)"):
        page.locator("#curve-controls select").select_option(value)
        assert page.evaluate(CURVE), value
        assert page.locator("#curve-help").inner_text(), value
    # A length of one move is explained; that of the whole trajectory is something else.
    helps = page.locator("#token-controls option").evaluate_all(
        "all => Object.fromEntries(all.map(one => [one.value, one.title]))"
    )
    assert helps["path:path_straightness"]
    assert helps["path:path_length"] != reading()["length"]
    assert "undefined" not in page.locator("body").inner_text()


def test_one_token(explore):
    words = explore(depths.single(), 360).locator("body").inner_text()
    assert "1 of 1 tokens selected." in words
    assert "NaN" not in words
    assert "Infinity" not in words
    explore({**depths.single(), "runs": []})


@pytest.mark.parametrize("width", [360, 768, 1600])
@pytest.mark.parametrize("make", [depths.one, depths.unlike])
def test_the_page_fits_its_window(explore, make, width):
    page = explore(make(), width)
    assert no_overflow(page)
    tops = page.locator(".chips").evaluate_all("all => all.map(one => one.offsetTop)")
    if make is depths.unlike:
        assert (tops[0] == tops[1]) == (width == 1600)
    page.emulate_media(media="print")
    assert page.locator("#toolbar").is_hidden()


def test_the_keyboard_shows_where_it_is(explore):
    page = explore(depths.one(), 700)
    marked = """() => {
      const one = document.activeElement, look = getComputedStyle(one);
      const beside = one.type === "radio" ? getComputedStyle(one.nextElementSibling) : null;
      return { tag: one.tagName, text: one.textContent.slice(0, 40),
        seen: (look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2)
          || (beside !== null && beside.boxShadow !== "none") };
    }"""
    tags = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        stop = page.evaluate(marked)
        if stop["tag"] == "BODY":
            break
        tags.add(stop["tag"])
        assert stop["seen"], stop
    assert tags >= {"A", "BUTTON", "CANVAS", "INPUT", "PRE", "SELECT", "TD"}


def test_light_and_dark(explore):
    background = "getComputedStyle(document.body).backgroundColor"
    page = explore(depths.one(), color_scheme="dark")
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(background) == "rgb(255, 255, 255)" != dark
