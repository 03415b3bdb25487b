"""Runs to resume."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.training.runs import StopAt, StopRun, small, tales
from yuriiformer.training.session import train


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """``whole``: a run of 8 steps. ``begun``: the same, ended after 7, with ``last`` of step 6."""
    home = tmp_path_factory.mktemp("runs")
    train(small(), tales(), home / "whole")
    with pytest.raises(StopRun):
        train(small(), tales(), home / "begun", listener=lambda *_: StopAt(7))
    return home


@pytest.fixture
def begun(runs, tmp_path) -> Path:
    """A copy of the run that is not finished."""
    shutil.copytree(runs / "begun", tmp_path / "out")
    return tmp_path / "out"
