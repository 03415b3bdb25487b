"""The browser that pages are opened in."""

from tests.pages import browser, open_page  # noqa: F401
