"""Heavy modules, imported when a test first uses them: collecting tests needs none of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A module by name."""

    __test__ = False  # pytest asks every object of a test file, which would import the module

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
