"""Help and listings answer at once: they import no package that takes seconds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.training.runs import tales
from yuriiformer.cli.completion import read_pages

HEAVY = (
    "torch scipy matplotlib transformers pandas datasets pyarrow lm_eval sklearn huggingface_hub "
    "tensorboard wandb submitit safetensors.torch"
).split()
# Each command in turn, in one process: the first that imports something heavy is named.
CHECK = """
import io, sys
from contextlib import redirect_stdout
from yuriiformer.cli.main import main
for line in sys.stdin.read().splitlines():
    words = line.split("\\t")
    said = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with redirect_stdout(said):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    assert not code and said.tell(), (words, code)
    found = [name for name in {heavy!r} if name in sys.modules]
    assert not found, f"{{' '.join(words)}} imports {{', '.join(found)}}"
    print(" ".join(words))
"""
LISTINGS = [
    ["--version"],
    ["rules"],
    ["rules", "--json"],
    ["rules", "show", "nesterov-lie-trotter"],
    ["rules", "show", "nesterov-lie-trotter+V=zero", "--format", "json"],
    ["presets"],
    ["presets", "--json"],
    ["completion", "bash"],
]


def checked(commands: list[list[str]], heavy: list[str] = HEAVY) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", CHECK.format(heavy=heavy)],
        input="\n".join("\t".join(words) for words in commands),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_help_and_listings_import_nothing_heavy():
    helps = [[*page.split(), "--help"] for page in read_pages()]
    assert ["--help"] in helps
    assert ["prepare", "tales", "--help"] in helps
    commands = [*helps, *LISTINGS, ["data", "show", str(tales())]]
    assert len(checked(commands)) == len(commands)


def test_what_is_heavy_would_be_found():
    with pytest.raises(AssertionError, match="rules imports json"):
        checked([["rules"]], ["json"])


def test_rules_are_parsed_and_analysed_without_torch():
    """Not even numpy is needed: they run where neither can be installed."""
    code = """
import importlib, pkgutil, sys
import yuriiformer.methods as methods
for name in ("torch", "numpy", "matplotlib"):
    sys.modules[name] = None
for module in pkgutil.walk_packages(methods.__path__, "yuriiformer.methods."):
    name = module.name.rpartition(".")[2]
    if name not in ("interpreter", "straight", "frugal", "diagram"):  # run and draw
        importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
