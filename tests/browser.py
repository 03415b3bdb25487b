"""What tests do with a report page in a browser (the fixture ``open_page``)."""

from __future__ import annotations

import time

LINES = "report.charts.curves.lines.map(({group, seed, x, y}) => ({group, seed, x, y}))"
VISIBLE = "report.charts.curves.lines.map((line) => line.group).sort()"


def choose(page, value, where="#curves"):
    page.locator(where).get_by_role("radio", name=value, exact=True).check()


def wait(page, condition):
    # Not page.wait_for_function: it polls with eval, which the page's own policy forbids.
    until = time.monotonic() + 30
    while not page.evaluate(condition):
        assert time.monotonic() < until, condition
        page.wait_for_timeout(50)


def no_overflow(page):
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")
