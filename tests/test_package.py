"""The package itself: what it offers, and what a checkout must not hold."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yuriiformer as yf

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_there():
    for name in yf.__all__:
        assert getattr(yf, name) is not None
        assert name in dir(yf)


def test_importing_the_package_is_light():
    code = "import sys, yuriiformer; assert not {'torch', 'numpy', 'tyro'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_dependency_is_pinned():
    """Direct ones by name; the installer's own answer covers what they pull in."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pins = {
        re.split("==", line)[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    names = {re.match(r"[A-Za-z0-9_.-]+", want)[0].lower().replace("_", "-") for want in wanted}
    assert names <= pins
