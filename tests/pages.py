"""A browser without a network."""

from __future__ import annotations

import pytest

from yuriiformer.display.page import write_page
from yuriiformer.report.payload import PAGE as REPORT
from yuriiformer.tracing.page import PAGE as DEPTH

PAGES = {"report": REPORT, "depth": DEPTH}

READY = "html[data-ready=true]"


@pytest.fixture(scope="module")
def browser(need_tool):
    """One for all tests of a file; each opens its pages in contexts of its own."""
    from playwright.sync_api import sync_playwright

    chromium = need_tool("chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a payload's page; at the end no error may have been reported."""
    troubles, contexts = [], []

    def note(message):
        if message.type in {"error", "warning"}:
            troubles.append(message.text)

    def open_(payload, width=1200, kind="report", **options):
        write_page(PAGES[kind], payload, tmp_path / f"{kind}.html")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        context.set_offline(True)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: _is_local(request.url, troubles))
        page.goto((tmp_path / f"{kind}.html").as_uri())
        page.wait_for_selector(READY, state="attached")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def explore(open_page):
    """The same for a depth page."""

    def open_(payload, width=1200, **options):
        return open_page(payload, width, kind="depth", **options)

    return open_


def _is_local(url, troubles):
    if not url.startswith(("file:", "data:")):
        troubles.append(f"asked for {url}")
