"""The browser that pages are opened in."""

from tests.pages import open_page  # noqa: F401
