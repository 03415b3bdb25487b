"""The charts of the depth page in a browser: what is drawn is what the payload says."""

from __future__ import annotations

import math
from statistics import fmean

import pytest

from tests.browser import choose
from tests.tracing import depths
from tests.tracing.depths import selected, spelled

pytestmark = pytest.mark.slow
LENS, CURVE = (
    f"depth.charts.{chart}.lines.map(({{run, series, token, x, y}}) => [run, series, token, x, y])"
    for chart in ("lens", "curve")
)


def mean(row, tokens):
    values = [row[token] for token in tokens if row[token] is not None]
    return fmean(values) if values else None


def test_the_hardest_tokens(explore):
    payload = depths.two()
    page = explore(payload)
    page.get_by_label("how many tokens").fill("4")
    page.get_by_role("button", name="with the highest loss").click()
    last = [run["texts"][0]["by_layer"]["lens_loss"][-1] for run in payload["runs"]]
    means = [(a + b) / 2 for a, b in zip(*last, strict=True) if a is not None]
    assert selected(page) == sorted(sorted(range(len(means)), key=lambda i: -means[i])[:4])


def test_tokens_have_the_colour_of_their_number(explore):
    payload = depths.two()
    page, texts = explore(payload), [run["texts"][0] for run in payload["runs"]]
    shares = "all => all.map(one => parseFloat(one.style.getPropertyValue('--share')))"
    page.locator("#token-controls select").select_option("path:path_net")
    values = [text["path"]["net"] for text in texts]
    low, high = min(map(min, values)), max(map(max, values))
    wanted = [100 * (value - low) / (high - low) for row in values for value in row]
    assert page.locator(".chip").evaluate_all(shares) == pytest.approx(wanted, abs=0.06)
    # Ranks by their logarithm, and after the layer that is chosen.
    page.locator("#token-controls select").select_option("here:lens_rank")
    page.evaluate("depth.goTo(0.5)")
    ranks = [rank for text in texts for rank in text["by_layer"]["lens_rank"][3]]
    logs = [math.log(rank) for rank in ranks if rank is not None]
    wanted = [
        0 if rank is None else 100 * (math.log(rank) - min(logs)) / (max(logs) - min(logs))
        for rank in ranks
    ]
    assert page.locator(".chip").evaluate_all(shares) == pytest.approx(wanted, abs=0.06)


def test_the_table_holds_the_likeliest_tokens(explore):
    payload = depths.two()
    page = explore(payload)
    for i, run in enumerate(payload["runs"]):
        text, table = run["texts"][0], page.locator(".lens").nth(i)
        cells = table.locator("tbody td").evaluate_all(
            "all => all.map(one => [+one.dataset.row, +one.dataset.token, one.textContent,"
            " one.classList.contains('true'), one.classList.contains('settles')])"
        )
        assert len(cells) == 7 * 10
        for row, token, words, true, settles in cells:
            best = text["top"][row][token][0][0]
            assert words == spelled(best)
            assert true == (best == text["target_pieces"][token])
            assert settles == (text["effective_depth"][token] == row)
        targets = table.locator("tfoot td").all_text_contents()
        assert targets == [spelled(text["target_pieces"][token]) for token in range(13, 23)]
    assert page.locator(".lens td.true").count() > 0


def test_lens_lines_are_means_over_the_selected(explore):
    payload = depths.two()
    page = explore(payload)
    page.evaluate("depth.data.select(0, [2, 5, 22])")
    for button, name in (("loss", "lens_loss"), ("rank", "lens_rank"), ("divergence", "lens_kl")):
        choose(page, button, "#prediction")
        for i, (run, _, _, x, y) in enumerate(page.evaluate(LENS)):
            rows = payload["runs"][i]["texts"][0]["by_layer"][name]
            assert (run, x) == (i, list(range(7)))
            assert y == pytest.approx([mean(row, [2, 5, 22]) for row in rows])
    choose(page, "each token", "#prediction")
    drawn = {(run, token): y for run, _, token, _, y in page.evaluate(LENS)}
    assert len(drawn) == 6
    for (i, token), y in drawn.items():
        rows = payload["runs"][i]["texts"][0]["by_layer"]["lens_kl"]
        assert y == [row[token] for row in rows]


def test_curves_by_step_are_split_by_step(explore):
    payload = depths.two()
    page = explore(payload)
    page.evaluate("depth.data.select(0, [1, 8])")
    page.locator("#curve-controls select").select_option("by_step:norm")
    lines = {(run, series): (x, y) for run, series, _, x, y in page.evaluate(CURVE)}
    assert len(lines) == 4 + 6
    for i, run in enumerate(payload["runs"]):
        block = len(run["steps"]) // 6
        for series, first in (("attn[0]#0", 0), ("Xₜ₊½#0", block // 2 - 1)):
            x, y = lines[i, series]
            rows = run["texts"][0]["by_step"]["norm"][first::block]
            assert x == [0, 1, 2, 3, 4, 5]  # layers, as in model.blocks
            assert y == pytest.approx([mean(row, [1, 8]) for row in rows])
    colours = "Object.fromEntries(depth.charts.curve.lines.map((l) => [l.series, l.colour]))"
    before = page.evaluate(colours)
    assert len(set(before.values())) == 6
    legend = page.locator("#curve-legend button").all_text_contents()
    assert legend == ["attn[0]", "Vₜ₊½", "Xₜ₊½", "mlp[0]", "Vₜ₊₁", "Xₜ₊₁"]
    page.locator("[data-series='attn[0]#0']").click()
    assert page.evaluate(colours) == {k: v for k, v in before.items() if k != "attn[0]#0"}


def test_curves_of_the_whole_text_and_by_share_of_depth(explore):
    payload = depths.unlike()
    page = explore(payload)
    assert "a selection of its own" in page.locator("#text").inner_text()
    page.locator("#curve-controls select").select_option("whole:log_energy")
    page.locator("#curves").get_by_label("share of the depth").check()
    assert page.locator("#prediction").get_by_label("share of the depth").is_checked()
    for (_, _, _, x, y), run in zip(page.evaluate(CURVE), payload["runs"], strict=True):
        assert y == run["texts"][0]["whole"]["log_energy"]
        assert x == pytest.approx([row / run["n_layer"] for row in range(run["n_layer"] + 1)])
    page.locator(".chips").nth(1).locator(".chip").nth(0).click()
    assert 0 in selected(page, 1)
    assert 0 not in selected(page, 0)
    page.evaluate("depth.goTo(0.5)")
    assert page.locator(".layer-name").inner_text() == "after 4 of 8 · 2 of 3 blocks"


def test_the_plane_shows_the_ways_at_one_scale(explore):
    payload = depths.two()
    page = explore(payload)
    choose(page, "2 and 3", "#trajectory")
    choose(page, "as they are", "#trajectory")
    for i, run in enumerate(payload["runs"]):
        points = run["texts"][0]["pca"]["raw"]["points"]
        plane = f"depth.charts.planes[{i}]"
        drawn = page.evaluate(f"{plane}.trajectories.map((t) => [t.token, t.points])")
        assert [token for token, _ in drawn] == list(range(13, 23))
        for token, places in drawn:
            assert places == [place[token][1:] for place in points]
        pixels = page.evaluate(
            f"[[0, 0], [1, 0], [0, 1]].map((p) => depth.charts.planes[{i}].toPixel(p))"
        )
        (x, y), (right, _), (_, up) = pixels
        assert right - x == pytest.approx(y - up)
    assert (
        page.evaluate("depth.charts.planes[0].axisText(1)") == "component 2 · 21 % of the variance"
    )
    page.locator("#planes canvas").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "in layer 0: Attnₜ(Xₜ)" in page.locator(".tip.floating").inner_text()


def test_much_stays_fluent(explore):
    page = explore(depths.large())
    took = page.evaluate(
        """() => {
          const all = [...depth.payload.runs[0].texts[0].tokens.keys()], now = performance.now();
          depth.data.select(0, all);
          const then = performance.now();
          for (let i = 0; i < 5; i++) depth.goTo(i / 24);
          return [then - now, (performance.now() - then) / 5];
        }"""
    )
    print(f"all tokens {took[0]:.0f} ms, a layer {took[1]:.0f} ms")
    assert took[0] < 4000
    assert took[1] < 1000
    assert page.locator(".lens").first.locator("thead th").count() == 33
    assert "The first 32 of 256" in page.locator("#prediction").inner_text()
