"""The tutorials run: as scripts, and as notebooks from top to bottom."""

from __future__ import annotations

import os
import runpy

import pytest

from docs.site import tutorials
from tests.launcher import warm_suites

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # those of other packages


@pytest.mark.parametrize("name", tutorials.ORDER)
def test_as_a_script(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with warm_suites():
        runpy.run_path(str(tutorials.FOLDER / f"{name}.py"))
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", tutorials.ORDER)
def test_as_a_notebook(name, tmp_path, monkeypatch):
    """Without warm processes and without the folder of the project: as a reader runs it."""
    from nbclient import NotebookClient

    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    notebook = tutorials.notebook(name)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=None, kernel_name="python3", resources=resources).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any(output.output_type == "stream" for cell in code for output in cell.outputs)
