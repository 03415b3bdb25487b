"""What ``yurii lab order`` measured of the listed rules, without measuring it again.

``measured.toml`` holds it. ``python docs/make_orders.py`` writes it anew, and a test measures every
rule and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from yuriiformer.files import packaged_table
from yuriiformer.methods.catalog import rules
from yuriiformer.methods.rule import Rule

KEYS = ("flow", "order", "cold_order", "reversible", "symplectic", "drift")
EXACT = 1e-10  # a defect below it is rounding
CONSISTENT = 0.5  # an order below it: the error does not vanish with the step


@cache
def measured_rules() -> Mapping[str, Mapping[str, Any]]:
    """By rule; what has no meaning for a rule is left out."""
    return packaged_table("lab/measured.toml")


def rounded(found: Mapping[str, Any]) -> dict[str, Any]:
    """A rule's measures as the table keeps them: rounded, and 0 where only rounding is left."""
    kept: dict[str, Any] = {key: found[key] for key in KEYS if found[key] is not None}
    if found["lookahead"] is not None:
        kept["lookahead"] = found["lookahead"]["symplectic"]
    for key, value in kept.items():
        if not isinstance(value, str):
            small = key in ("reversible", "symplectic", "lookahead") and value < EXACT
            kept[key] = 0.0 if small else float(f"{value:.2f}") + 0.0
    return kept


def integrator_text(rule: Rule) -> str:
    """A line on a rule as an integrator; how to measure it if it is not a listed one."""
    if rules.get(rule.name) != rule or rule.name not in measured_rules():
        return f"as an integrator: not measured; yurii lab order --rules {rule.name}"
    found = measured_rules()[rule.name]
    parts = [f"{found['flow']} flow, {order_text(found['order'])}"]
    if "cold_order" in found and abs(found["cold_order"] - found["order"]) > 0.3:
        parts.append(f"{order_text(found['cold_order'])} from the start of a model")
    parts += [_said(name, found[name]) for name in ("reversible", "symplectic") if name in found]
    if "lookahead" in found:
        parts.append(f"with lookahead {_said('symplectic', found['lookahead'])}")
    return f"as an integrator without LN_v (yurii lab order): {'; '.join(parts)}"


def order_text(order: float) -> str:
    return "not consistent (order 0)" if order < CONSISTENT else f"order {order:.2f}"


def _said(name: str, defect: float) -> str:
    return name if defect == 0 else f"not {name} ({defect:.2g})"
