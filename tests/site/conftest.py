"""A built site, once for all tests of a run, and a browser on it."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import threading

import pytest
from filelock import FileLock

from docs.site.engine import ROOT
from tests.pages import browser  # noqa: F401  a fixture


@pytest.fixture(scope="session")
def site(tmp_path_factory, need_tool):
    """Built by the first worker that needs it; the others wait."""
    need_tool("npm")
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own
    out, done = shared / "site", shared / "site-is-built"
    with FileLock(shared / "site.lock"):
        if not done.exists():
            # In a process of its own: warnings of other packages are no errors there.
            command = [sys.executable, "-m", "docs.site.build", "--out", str(out)]
            command += ["--work", str(shared / "site-work")]
            made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert made.returncode == 0, made.stderr
            assert "engine" not in made.stderr
            done.touch()
    return out


@pytest.fixture
def served(site):
    """The address of the site on a local server."""
    handler = functools.partial(_Silent, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


@pytest.fixture
def visit(browser):  # noqa: F811
    """Open an address; at the end no error may have been reported, and nothing have been asked of
    another host."""
    troubles, contexts = [], []

    def open_(address, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        origin = address.split("/")[2]

        def request(asked):
            local = (
                asked.url.startswith(("file:", "data:", "blob:"))
                or asked.url.split("/")[2] == origin
            )
            if not local:
                troubles.append(f"asked for {asked.url}")

        def failed(asked):
            if asked.failure != "net::ERR_ABORTED":  # by a visit to the next page
                troubles.append(f"failed: {asked.url}")

        page.on("console", lambda m: m.type in {"error", "warning"} and troubles.append(m.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", request)
        page.on("requestfailed", failed)
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert troubles == []
