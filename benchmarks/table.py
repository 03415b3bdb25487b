"""The table of the README, from the rounds in results.json."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measuring import SUBJECTS, Rounds, Row

HERE = Path(__file__).parent
RESULTS, README = "results.json", "README.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
HEAD = ("what", "against", "aim", "measured", "command")


def read_results(folder: Path = HERE) -> dict[str, Any]:
    path = folder / RESULTS
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def add_result(folder: Path, name: str, rounds: Rounds, seconds: float) -> None:
    """One subject's rounds, in the place of its earlier ones, and the README's table anew."""
    results = read_results(folder)
    rounded = {way: [float(f"{value:.6g}") for value in values] for way, values in rounds.items()}
    results[name] = {"rounds": rounded, "took": round(seconds, 1), "machine": machine()}
    ordered = {key: results[key] for key in SUBJECTS if key in results}
    text = json.dumps(ordered, indent=1, ensure_ascii=False)
    (folder / RESULTS).write_text(text + "\n", encoding="utf-8")
    readme = folder / README
    if readme.exists():
        readme.write_text(with_table(readme.read_text("utf-8"), ordered), encoding="utf-8")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    names = [
        line.partition(":")[2].strip()
        for line in _lines(Path("/proc/cpuinfo"))
        if line.startswith("model name")
    ]
    packages = {name: version(name) for name in ("torch", "transformers", "lm_eval")}
    kind = names[0] if names else platform.machine()
    own = {"processor": kind, "cores": os.cpu_count(), "python": platform.python_version()}
    return own | packages


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def with_table(text: str, results: Mapping[str, Any]) -> str:
    """The README's text with the table of these results."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def table(results: Mapping[str, Any]) -> str:
    """In Markdown; a row that was not measured says so."""
    lines = [HEAD, ("---", "---", "---:", "---:", "---")]
    for each in SUBJECTS.values():
        found = results.get(each.name)
        for row in each.rows:
            shown = measured(row, found["rounds"]) if found else "not measured"
            aim = f"{row.aim} {row.unit}".strip() if row.aim else ""
            lines.append((row.what, row.against, aim, shown, f"`{each.command}`"))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def measured(row: Row, rounds: Rounds) -> str:
    """The figure, its lowest and highest over the rounds, and whether the aim was missed."""
    values = row.values(rounds)
    shown = f"{digits(row.figure(rounds))} {row.unit}".strip()
    if len(values) > 1:
        shown += f" ({digits(min(values))}–{digits(max(values))})"
    return f"{shown}, missed" if row.reached(rounds) is False else shown


def digits(value: float) -> str:
    """Three decimals up to 2, where aims are near 1; three digits elsewhere."""
    if value < 0.01:
        return f"{value:.1e}"
    if value < 2:
        return f"{value:.3f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"
