"""A tutorial is one Python script. Here it becomes a page and a notebook.

Cells begin with ``# %%``; in a cell that begins with ``# %% [markdown]`` the comments are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parents[1] / "tutorials"
ORDER = (
    "invent_a_rule",
    "finetune_and_upcycle",
    "reproduce_the_paper",
    "look_inside",
    "one_gpu_to_a_cluster",
)


@dataclass(frozen=True)
class Cell:
    kind: str  # "markdown" or "code"
    text: str


def cells(script: str) -> Iterator[Cell]:
    for part in re.split(r"^# %%", script, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if head.strip() == "[markdown]":
            text = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
            yield Cell("markdown", text.strip())
        else:
            yield Cell("code", body.strip("\n"))


def read(name: str) -> list[Cell]:
    return list(cells((FOLDER / f"{name}.py").read_text(encoding="utf-8")))


def markdown(name: str) -> str:
    parts = [
        cell.text if cell.kind == "markdown" else f"```python\n{cell.text}\n```"
        for cell in read(name)
    ]
    links = (
        f'<p class="files"><a href="../notebooks/{name}.ipynb" download>This page as a notebook</a>'
        f' · <a href="../notebooks/{name}.py" download>as a script</a></p>'
    )
    title, *rest = parts
    return "\n\n".join([title, f"```{{raw}} html\n{links}\n```", *rest]) + "\n"


def notebook(name: str) -> Any:
    made = nbformat.v4.new_notebook()
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    for number, cell in enumerate(read(name)):
        new = (
            nbformat.v4.new_markdown_cell if cell.kind == "markdown" else nbformat.v4.new_code_cell
        )
        made.cells.append(new(_linked(cell.text), id=f"cell-{number}"))  # the same every time
    return made


def _linked(text: str) -> str:
    """Links to pages of the site become their names: a notebook stands alone."""
    return re.sub(r"\[([^\]]+)\]\((?!https:)[^)]+\)", r"\1", text)


def write_tutorials(pages: Path, files: Path) -> None:
    pages.mkdir(parents=True, exist_ok=True)
    files.mkdir(parents=True, exist_ok=True)
    for name in ORDER:
        (pages / f"{name}.md").write_text(markdown(name), encoding="utf-8")
        nbformat.write(notebook(name), files / f"{name}.ipynb")
        (files / f"{name}.py").write_bytes((FOLDER / f"{name}.py").read_bytes())
