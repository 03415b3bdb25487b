"""Heavy modules, imported when a test first uses them: collecting tests needs none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A module by name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks every object of a test file what it is
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
