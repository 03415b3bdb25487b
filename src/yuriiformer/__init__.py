"""YuriiFormer: a transformer block is one iteration of an optimisation method.

Attention and MLP are two oracles; the rule that joins them is a few lines of equations, as text.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# The list of names is the stub beside this file: type checkers read it, and so do these lines. A
# name is imported when it is first used, so that ``yurii --help`` need not wait for torch.
_LIST = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").partition("__version__")[2]
_ENTRY = re.compile(r"from (?P<home>[\w.]+) import (?P<name>\w+) as \w+  # (?P<remark>.*)")
_HOMES = {entry["name"]: entry["home"] for entry in _ENTRY.finditer(_LIST)}
_LINES = _ENTRY.sub(lambda entry: f"    {entry['name']:<18}{entry['remark']}", _LIST)

__all__ = sorted(_HOMES)  # noqa: PLE0605
__doc__ = (__doc__ or "") + re.sub(r"^# ", "", _LINES.partition("\n")[2], flags=re.MULTILINE)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
