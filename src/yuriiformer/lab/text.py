"""The lab's results as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yuriiformer.display.columns import aligned, printable, wrapped
from yuriiformer.lab.measured import CONSISTENT, EXACT

LETTERS = {"mu": "μ", "beta": "β", "gamma": "γ", "delta": "δ"}
SPLITS = {
    "even": "half of it each, the same minimum",
    "spectrum": "two parts that do not commute, the same minimum",
    "shifted": "half of it each, with minima apart",
}
FIRST = ("rule", "A+M", "h", "coefficients")
USUAL = "h is in the oracles; γ = δ = 1 unless shown; velocities start at rest."


def lab_text(data: Mapping[str, Any], width: int = 120) -> str:
    """Head, table and notes; remarks continue in further lines where the terminal is narrow."""
    head, titles, rows, notes = CONTENTS[data["problem"]](data)
    if data["options"].get("norm") and data["options"]["dim"] == 2:
        notes.append("In 2 dimensions LN_v leaves only the directions ±(1, -1): try --dim 16.")
    shown = aligned([titles, *rows], len(titles), ruled=True, width=width)
    lines = [line for note in notes for line in wrapped(note, width)]
    return "\n".join([*head, "", *shown, "", *lines])


Content = tuple[list[str], list[str], list[list[str]], list[str]]  # head, titles, rows, notes


def _quadratic(data: Mapping[str, Any]) -> Content:
    options = data["options"]
    d = options["dim"]
    closed = ", ".join(f"{name} {rate:.4f}" for name, rate in data["closed_forms"].items())
    head = [
        f"quadratic: {d} dimension{'s' * (d > 1)}, condition number {options['condition']:g}; "
        f"attention and MLP see {SPLITS[options['split']]}",
        f"textbook rates per block for the whole gradient: {closed}",
    ]
    titles = [*FIRST, "theory", "fitted", "per call", "off by", "remarks"]
    rows = []
    for each in data["rules"]:
        theory, fitted = each["theory"], each["fitted"]
        call = theory["call"] if theory["call"] is not None else fitted["call"]
        rates = [_rate(theory["block"]), _rate(fitted["block"]), _rate(call)]
        rows.append([*_name(each), *rates, _number(each["bias"]), "; ".join(each["remarks"])])
    notes = [
        "theory: spectral radius of the block's matrix; fitted: to the measured distances; both "
        "per block. per call: theory (if none, fitted) per oracle call. off by: distance of the "
        "limit from the minimum.",
        USUAL,
    ]
    return head, titles, rows, notes


def _particles(data: Mapping[str, Any]) -> Content:
    options = data["options"]
    kind = {
        "gradient": "the exact gradient of J",
        "attention": "softmax attention itself, no gradient of one function",
    }[options["oracle"]]
    head = [
        f"particles: {options['tokens']} tokens in {options['dim']} dimensions; "
        f"attention's oracle is {kind}",
        "J = -½ Σ log Z_i + (c/4) Σ (|x_i|² - r²)², Z_i = Σ_j exp<x_i, x_j>, "
        f"c = {data['ring']['stiffness']:g}, r = {data['ring']['radius']:g}",
    ]
    titles = [*FIRST, "J", "log E", "clusters", "blocks", "remarks"]
    rows = [
        [
            *_name(each),
            _from_to(each["value"]),
            _from_to(each["log_energy"]),
            f"{each['clusters'][0]} → {each['clusters'][-1]}",
            str(settled(each["clusters"])),
            "; ".join(each["remarks"]),
        ]
        for each in data["rules"]
    ]
    notes = [
        f"clusters: groups of tokens joined at distances below {options['distance']:g}; blocks: "
        "until their last number was reached for good.",
        USUAL,
    ]
    return head, titles, rows, notes


def _order(data: Mapping[str, Any]) -> Content:
    options = data["options"]
    head = [
        f"integrators: a smooth convex function in {options['dim']} dimensions, the flow from "
        f"t = {options['time'] / 2:g} to {1.5 * options['time']:g}",
        "accelerated flow x' = v, v' = -∇f(x) - a v with "
        f"a = {options['damping']:g}; gradient flow x' = -∇f(x)",
    ]
    titles = ["rule", "A+M", "flow", "drifts", "order", "reversible", "symplectic", "energy"]
    rows = []
    for each in data["rules"]:
        calls = each["calls"]
        cells = [order_word(each["order"])]
        cells += [_defect(each["reversible"]), _defect(each["symplectic"])]
        rows.append(
            [
                printable(each["rule"]["name"]),
                f"{calls['attn']}+{calls['mlp']}",
                each["flow"] or "–",
                "–" if each["flow"] != "accelerated" else f"{each['drifts']:.3g}",
                *cells,
                "–" if each["drift"] is None else f"{each['drift']:+.3f}",
                "; ".join(each["remarks"]),
            ]
        )
    fewest = sorted(options["blocks"])[-4:]
    notes = [
        f"order: slope of the error over the step, fitted to {', '.join(map(str, fewest))} blocks, "
        "with mu = beta. 0: not consistent with its flow.",
        f"At beta = 1, mu = 0 and a step of {options['step']:g}: reversible |RΦRΦ - 1| (gradient "
        "flow: |Φ(-H)Φ(H) - 1|), symplectic |JᵀΩJ - Ω|, energy: its change over "
        f"{options['drift_time']:g} units of time. Without LN_v.",
    ]
    return head, [*titles, "remarks"], rows, notes


def order_word(order: float | None) -> str:
    """As measured; an order below a half is that of no integrator."""
    return "–" if order is None else "0" if order < CONSISTENT else f"{order:.2f}"


def _defect(value: float | None) -> str:
    return "–" if value is None else "yes" if value < EXACT else f"no, {value:.2f}"


CONTENTS = {"quadratic": _quadratic, "particles": _particles, "order": _order}


def settled(counts: Sequence[int]) -> int:
    """The first index from which a sequence no longer changes."""
    index = len(counts) - 1
    while index > 0 and counts[index - 1] == counts[-1]:
        index -= 1
    return index


def _name(each: Mapping[str, Any]) -> list[str]:
    calls = each["calls"]
    return [
        printable(each["rule"]["name"]),
        f"{calls['attn']}+{calls['mlp']}",
        f"{each['step_size']:.4g}",
        short_coefficients(each["coefficients"]),
    ]


def short_coefficients(values: Mapping[str, Sequence[float]]) -> str:
    """``μ=β=0.82``: those of one value together; first and last where blocks differ. A γ or δ of 1
    is not shown, nor an index that changes nothing."""
    texts = {
        name: f"{first:.3g}" if first == last else f"{first:.3g}…{last:.3g}"
        for name, (first, last) in values.items()
    }
    shown = {}
    for name, text in texts.items():
        base = name.removesuffix("_half")
        if base in ("gamma", "delta") and text == "1":
            continue
        same = texts.get(base) == texts.get(f"{base}_half", texts.get(base))
        letter = LETTERS.get(base, base)
        shown[letter if same or base == name else f"{letter}½"] = text
    groups: dict[str, list[str]] = {}
    for letter in sorted(shown, key=_rank):
        groups.setdefault(shown[letter], []).append(letter)
    return " ".join(f"{'='.join(group)}={text}" for text, group in groups.items()) or "–"


def _rate(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.6f}" if 0.9995 < value < 1.0005 else f"{value:.4f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _from_to(values: Sequence[float | None]) -> str:
    ends = (values[0], values[-1])
    return " → ".join(
        "–" if end is None else f"{end:.1f}" if abs(end) < 1e6 else f"{end:.1e}" for end in ends
    )


def _rank(letter: str) -> int:
    known = [*LETTERS.values()]
    base = letter.removesuffix("½")
    return known.index(base) if base in known else len(known)
