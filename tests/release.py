"""A release, checked before it is one.

    python -m tests.release              build, twine check, install into fresh environments, test
    python -m tests.release --tag v0.1   ... and the tag must be that of the version

The wheel is installed with the core alone and the sdist with all extras, at pinned versions. The
quick tests then run from the unpacked sdist, whose own sources are taken away: what is tested is
what was installed. `make release-check` does this; a slow test does the same with packages that are
already here.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yuriiformer as yf

ROOT = Path(__file__).parents[1]
EXTRAS = "cli,data,log,report,cluster,hf,eval,docs,dev"
TOOLS = ("pytest", "hypothesis", "pytest-timeout", "pytest-xdist")
# What needs no extra: rules, interpreter, model, the lab.
CORE = (
    "tests/methods/test_apply.py",
    "tests/methods/test_equations.py",
    "tests/methods/test_errors.py",
    "tests/methods/test_passes.py",
    "tests/methods/test_pictures.py",
    "tests/lab/test_plain.py",
    "tests/model/test_loss.py",
    "tests/model/test_init.py",
    "tests/test_package.py",
)


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path


def build(out: Path, *, isolated: bool = True) -> Built:
    """Both files, checked by twine."""
    own = [] if isolated else ["--no-isolation"]
    run([sys.executable, "-m", "build", *own, "--outdir", str(out), str(ROOT)])
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
    return Built(wheel, sdist)


def unpack(sdist: Path, folder: Path) -> Path:
    """The sdist's folder, whose tests and pages are then those of what was installed."""
    with tarfile.open(sdist) as tar:
        tar.extractall(folder, filter="data")
    [root] = folder.iterdir()
    return root


def environment(folder: Path) -> Path:
    """A fresh one; its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def environment_of(folder: Path, names: Iterable[str]) -> Path:
    """One with these distributions, taken from the present environment instead of an index."""
    python = environment(folder)
    [target] = folder.glob("lib/python3*/site-packages")
    for name in names:
        found = importlib.metadata.distribution(name)
        for top in {entry.parts[0] for entry in found.files or ()} - {"..", "__pycache__"}:
            if not (target / top).exists():
                (target / top).symlink_to(str(found.locate_file(top)))
    return python


def run(command: list[str], cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def quick_tests(python: Path, root: Path, names: tuple[str, ...] = ()) -> str:
    """Their last line. An import must find what was installed, not the sources beside the tests."""
    where = run([str(python), "-c", "import yuriiformer; print(yuriiformer.__file__)"], root)
    assert "site-packages" in where, where
    command = [str(python), "-m", "pytest", "-q", "-n", "2", "-m", "not slow", *names]
    return run([*command, "-p", "no:cacheprovider"], root).strip().splitlines()[-1]


def check_tag(tag: str) -> None:
    if tag != f"v{yf.__version__}":
        raise SystemExit(f"the tag is {tag!r}, but the version is {yf.__version__}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--tag", default="")
    options.add_argument("--out", type=Path, default=ROOT / "dist")
    chosen = options.parse_args()
    if chosen.tag:
        check_tag(chosen.tag)
    shutil.rmtree(chosen.out, ignore_errors=True)
    built = build(chosen.out)
    pins = ["-c", str(ROOT / "constraints.txt")]
    with tempfile.TemporaryDirectory() as folder:
        root = unpack(built.sdist, Path(folder) / "unpacked")
        python = environment(Path(folder) / "core")
        run([str(python), "-m", "pip", "install", "-q", *pins, str(built.wheel), *TOOLS])
        print(f"wheel, core alone: {quick_tests(python, root, CORE)}", flush=True)
        python = environment(Path(folder) / "all")
        run([str(python), "-m", "pip", "install", "-q", *pins, f"{built.sdist}[{EXTRAS}]"])
        print(f"sdist, all extras: {quick_tests(python, root)}", flush=True)


if __name__ == "__main__":
    main()
