"""The browser that pages are opened in."""

from tests.pages import browser, explore, open_page  # noqa: F401
