"""The engine of the rule editor: Pyodide and the package's own sources, as two scripts.

A page from the file system may load scripts and nothing else, so what Pyodide would fetch is inside
them, packed. The npm registry has Pyodide as a plain archive; `npm pack` brings it. Its Python is
3.11, the oldest that the package runs on and that of the checks, so that Python's own words in an
error are the same in both.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

from yuriiformer.costs.flops import model_work
from yuriiformer.methods.catalog import BASELINE, rules
from yuriiformer.training.presets import preset

ROOT = Path(__file__).parents[2]
VERSION = "0.25.1"
SHA512 = (
    "cb49c9fdf2c0ddbc43da2651cef5536cfd8efb0a781309b6c1385f5781c5d01c"
    "ad43a86ca2a4c914b358e2eb0b39c09506b2bc4d35aa16aae6b153f31dee2bb3"
)
FILES = ("pyodide.js", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
SETTING = "tinystories-small"  # the model whose costs the editor tells

# What the editor imports, and nothing that needs torch, NumPy or matplotlib.
SOURCES = (
    "src/yuriiformer/__init__.py",
    "src/yuriiformer/__init__.pyi",
    "src/yuriiformer/errors.py",
    "src/yuriiformer/reading.py",
    "src/yuriiformer/display/__init__.py",
    "src/yuriiformer/display/colours.py",
    "src/yuriiformer/lab/__init__.py",
    "src/yuriiformer/lab/plain.py",
    "src/yuriiformer/lab/setting.py",
    "src/yuriiformer/methods/*.py",
    "src/yuriiformer/methods/drawing/*.py",
    "docs/site/editor.py",
    "docs/site/path.py",
)


def write_engine(static: Path, cache: Path) -> str | None:
    """Write both scripts; a line that says why there is no engine, if there is none."""
    script = cache / f"pyodide-{VERSION}.js"
    if not script.exists():
        archive = _archive(cache)
        if isinstance(archive, str):
            return archive
        script.write_text(_assigned("YURII_PYODIDE", _packed(archive)), encoding="utf-8")
    shutil.copy(script, static / "pyodide.js")
    write_package(static)
    return None


def write_package(static: Path) -> None:
    data = {"package.zip": base64.b64encode(_sources()).decode(), "costs": oracle_costs()}
    (static / "package.js").write_text(_assigned("YURII_PACKAGE", data), encoding="utf-8")


def _assigned(name: str, data: object) -> str:
    return f"self.{name} = {json.dumps(data)};\n"


def _archive(cache: Path) -> Path | str:
    """Pyodide's archive, checked."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed: the rule editor is built without its engine"
    cache.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", f"pyodide@{VERSION}", "--silent"]
    done = subprocess.run(command, cwd=cache, capture_output=True, text=True, check=False)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["npm failed"])[-1]
        return f"npm has no pyodide {VERSION} ({why:.100}): the rule editor is without its engine"
    path = cache / f"pyodide-{VERSION}.tgz"
    found = hashlib.sha512(path.read_bytes()).hexdigest()
    if found != SHA512:
        raise SystemExit(f"{path}: not the archive of pyodide {VERSION} that is known")
    return path


def _packed(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        members = {name: tar.extractfile(f"package/{name}") for name in FILES}
        raw = {name: member.read() for name, member in members.items() if member is not None}
    return {
        name: base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
        for name, data in raw.items()
    }


def _sources() -> bytes:
    """The same sources give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for pattern in SOURCES:
            for path in sorted(ROOT.glob(pattern)):
                name = path.relative_to(ROOT).as_posix().removeprefix("src/")
                entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
                packed.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def oracle_costs() -> dict[str, float]:
    """FLOPs per token in the paper's small model, forward: of a call of each oracle, of the
    output."""
    config = preset(SETTING, BASELINE).model
    work, layers = model_work(config), config.n_layer
    assert rules[BASELINE].oracle_calls == {"attn": 1, "mlp": 1}
    attention = work.projections.forward + work.scores.forward
    return {
        "attn": attention / layers,
        "mlp": work.mlp.forward / layers,
        "output": work.output.forward,
        "layers": layers,
    }
