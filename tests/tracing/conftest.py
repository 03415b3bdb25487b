"""The browser that pages are opened in."""

from tests.pages import explore, open_page  # noqa: F401
