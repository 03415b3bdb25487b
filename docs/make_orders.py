"""Measure every listed rule as an integrator, and write what was found where it is read:
``src/yuriiformer/lab/measured.toml`` (``yurii rules show``) and the table of ``docs/lab.md``.

    python docs/make_orders.py            about a minute
    python docs/make_orders.py --table    only the table, from measured.toml
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yuriiformer as yf
from yuriiformer.lab.measured import CONSISTENT, measured_rules, rounded
from yuriiformer.lab.order import order_results
from yuriiformer.lab.setting import OrderLab

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "src" / "yuriiformer" / "lab" / "measured.toml"
PAGE = ROOT / "docs" / "lab.md"
HEAD = "# Written by docs/make_orders.py: what 'yurii lab order --rules all' measures.\n"
BETWEEN = re.compile(r"(<!-- orders -->\n).*?(<!-- end of orders -->)", re.DOTALL)


def measured_text() -> str:
    parts = [HEAD]
    for each in order_results(list(yf.rules.values()), OrderLab())["rules"]:
        lines = [f"{key} = {_toml(value)}" for key, value in rounded(each).items()]
        parts.append("\n".join([f"[{each['rule']['name']}]", *lines]) + "\n")
    return "\n".join(parts)


def _toml(value: float | str) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def table_text() -> str:
    """Rules of equal measures in one row."""
    rows: dict[str, list[str]] = {}
    for name, found in measured_rules().items():
        order = "0, not consistent" if found["order"] < CONSISTENT else f"{found['order']:.2f}"
        cells = [found["flow"], order, *(_cell(found.get(k)) for k in ("reversible", "symplectic"))]
        cells += [
            _cell(found.get("lookahead")),
            f"{found['drift']:+.2f}" if "drift" in found else "–",
        ]
        rows.setdefault(" | ".join(cells), []).append(f"`{name}`")
    lines = [
        "| rules | flow | order | reversible | symplectic | symplectic at μ = 1 | energy |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {', '.join(names)} | {cells} |" for cells, names in rows.items()]
    return "\n".join(lines) + "\n"


def _cell(defect: float | None) -> str:
    return "–" if defect is None else "yes" if defect == 0 else f"no, {defect:.2f}"


def page_text() -> str:
    return BETWEEN.sub(lambda found: found[1] + table_text() + found[2], PAGE.read_text("utf-8"))


if __name__ == "__main__":
    if "--table" not in sys.argv[1:]:
        MEASURED.write_text(measured_text(), encoding="utf-8")
        measured_rules.cache_clear()
    PAGE.write_text(page_text(), encoding="utf-8")
