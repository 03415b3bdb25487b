"""C code of this package, compiled for this processor where there is a compiler.

The library is kept in the user's cache folder (``$XDG_CACHE_HOME/yuriiformer``), under a name that
depends on the code, the compiler and the processor. Without a compiler, or where something fails,
there is none, and torch does the work. ``CC`` names another compiler; with ``CC=`` there is none.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch  # noqa: F401  (brings the OpenMP that the library shares with it)

COMPILE = ("-O3", "-march=native", "-ffp-contract=fast", "-fPIC", "-fopenmp", "-c")
LINK = (
    "-shared",
)  # without OpenMP's library: torch's is used, so that there is one set of threads
LONGEST = 60  # seconds


@cache
def library(source: Path) -> ctypes.CDLL | None:
    """The compiled code of a file; None where there is no compiler or it fails."""
    compiler = _compiler()
    if compiler is None:
        return None
    try:
        place = _folder() / f"{source.stem}-{_key(source, compiler)}.so"
        if not place.exists():
            _compile(source, compiler, place)
        return ctypes.CDLL(str(place))
    except (OSError, subprocess.SubprocessError):
        return None


def _compiler() -> list[str] | None:
    words = shlex.split(os.environ.get("CC", "cc"))
    found = shutil.which(words[0]) if words else None
    return None if found is None else [found, *words[1:]]


def _folder() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "yuriiformer"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _key(source: Path, compiler: list[str]) -> str:
    """A home may be shared by machines of several kinds."""
    real = Path(compiler[0]).resolve()
    parts = (
        source.read_text(),
        compiler,
        COMPILE,
        str(real),
        real.stat().st_mtime_ns,
        _processor(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))


def _compile(source: Path, compiler: list[str], place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        parts, whole = f"{folder}/code.o", f"{folder}/code.so"
        for words in (
            [*compiler, *COMPILE, str(source), "-o", parts],
            [*compiler, *LINK, parts, "-o", whole],
        ):
            subprocess.run(words, check=True, capture_output=True, timeout=LONGEST)
        os.replace(whole, place)
