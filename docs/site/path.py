"""The path of a rule on the quadratic as a small picture. Needs no library: the browser draws it
with the same code."""

from __future__ import annotations

import math
from collections.abc import Sequence

from yuriiformer.lab.plain import PlainQuadratic, PlainResult
from yuriiformer.lab.setting import SHIFT

SIZE, REACH = 260.0, 1.5  # pixels of a side, and how many starts the picture shows to each side
LEVELS = (0.25, 0.5, 0.75, 1.0, 1.25)  # of the start's distance, as the picture measures it


def path_svg(problem: PlainQuadratic, found: PlainResult, size: float = SIZE) -> str:
    """Both axes are in units of the start, so the level lines are circles."""
    across, up = problem.start

    def place(point: Sequence[float]) -> tuple[float, float]:
        x, y = (min(max(z, -50.0), 50.0) for z in (point[0] / across, point[1] / up))
        return size * (0.5 + x / (2 * REACH)), size * (0.5 - y / (2 * REACH))

    shown = [place(point) for point in found.path if all(map(math.isfinite, point))]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in shown)
    middle, scale = size / 2, size / (2 * REACH)
    circles = "".join(
        f'<circle cx="{middle}" cy="{middle}" r="{math.sqrt(2) * level * scale:.1f}"/>'
        for level in LEVELS
    )
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>' for x, y in shown)
    parts = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
        for x, y in (place((s * SHIFT, s * SHIFT)) for s in (1, -1) if problem.shifted)
    )
    cross = f"M{middle - 5} {middle}h10M{middle} {middle - 5}v10"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="path" viewBox="0 0 {size:g} {size:g}" '
        f'width="{size:g}" height="{size:g}" role="img" '
        f'aria-label="Path of X on a quadratic, {len(found.path) - 1} blocks">'
        f'<g fill="none" stroke="currentColor" stroke-opacity="0.18">{circles}</g>'
        f'<path d="{cross}" stroke="currentColor" stroke-width="1.4"/>'
        f'<g fill="none" stroke="var(--diagram-other, #AA5A88)" stroke-width="1.6">{parts}</g>'
        f'<polyline points="{line}" fill="none" stroke="var(--diagram-v, #0072B2)" '
        f'stroke-width="1.4"/><g fill="var(--diagram-v, #0072B2)">{dots}</g></svg>'
    )
