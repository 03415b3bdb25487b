"""The paper's experiment five times over: 85 runs of 10,000 steps, as files and page."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.comparison.synthetic import configuration, falling, write_run
from tests.pages import READY
from yuriiformer.cli.main import main
from yuriiformer.methods.catalog import paper

pytestmark = pytest.mark.slow
STEPS, SEEDS = 10_000, range(5)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    home = tmp_path_factory.mktemp("large")
    chance = np.random.default_rng(0)
    for number, rule in enumerate(paper):
        for seed in SEEDS:
            config = configuration(rule, seed=seed, steps=STEPS, every=100)
            final = 1.1 - 0.005 * number + 0.002 * float(chance.standard_normal())
            write_run(
                home / "runs" / f"{rule}-{seed}", config, val=falling(final, STEPS), noise=0.05
            )
    words = ["report", home / "runs", "--out", home / "out", "--no-samples"]
    began = time.process_time()
    assert main([str(word) for word in words]) == 0
    print(f"report: {time.process_time() - began:.1f} s of processor time")
    return home / "out"


def test_the_page_is_small_enough(report):
    size = (report / "report.html").stat().st_size
    print(f"{size / 1e6:.2f} MB")
    assert size <= 8e6


def test_the_papers_figures_stand_beside(report):
    """These are the paper's own settings."""
    table = (report / "tables" / "results.md").read_text()
    assert "1.107" in table  # the paper's Best of gd-euler
    assert "†" in table  # IMEX: of unclear label
    tex = (report / "tables" / "results.tex").read_text()
    assert "Non-standard compute" in tex


def test_the_page_opens_and_shows_every_arm(report, browser):
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    context.set_offline(True)
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto((report / "report.html").as_uri())
    page.wait_for_selector(READY, state="attached", timeout=60_000)
    print(f"ready after {page.evaluate('performance.now()') / 1000:.2f} s")
    text = page.inner_text("body")
    context.close()
    assert not problems
    for rule in paper.values():
        assert rule.label in text
