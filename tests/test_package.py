"""What the package offers: one list, every name of it there and explained."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys

import pytest

import yuriiformer as yf


@pytest.mark.parametrize("name", yf.__all__)
def test_every_name_is_there_and_explained(name):
    value = getattr(yf, name)
    assert f"    {name} " in yf.__doc__
    assert name in dir(yf)
    assert inspect.getdoc(value)


def test_help_begins_with_the_list():
    text = pydoc.render_doc(yf, renderer=pydoc.plaintext)
    assert text.index("rules by name") < text.index("CLASSES")
    assert len(yf.__all__) > 20


def test_completion_offers_the_list_and_nothing_else():
    getattr(yf, yf.__all__[0])  # then it is in the module too
    assert [name for name in dir(yf) if not name.startswith("__")] == yf.__all__


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        yf.trian  # noqa: B018


def test_importing_the_package_imports_no_torch():
    code = "import sys, yuriiformer as yf; yf.Rule; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
