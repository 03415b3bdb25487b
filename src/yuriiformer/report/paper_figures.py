"""The paper's five figures from runs: its panels, its methods, its cuts and its smoothing.

Cuts and widths of the smoothing are the paper's at its own number of steps; for shorter runs they
are the same part of the run. Lines are means over seeds, faint bands reach from the lowest to the
highest. A line is smoothed over all its points first and cut then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from yuriiformer.comparison.outcomes import Arm, Comparison
from yuriiformer.comparison.paper import is_papers_arm, minimum_step, paper_methods
from yuriiformer.display.curves import Floats
from yuriiformer.display.figures import (
    WIDTH,
    draw_band,
    draw_line,
    legend,
    look,
    new_figure,
    said,
    x_axis,
)
from yuriiformer.methods.catalog import paper
from yuriiformer.methods.drawing.diagram import draw_together
from yuriiformer.methods.drawing.layout import lay_out
from yuriiformer.report.curves import drawn_runs, smoothed_curves, styles
from yuriiformer.report.paper_layouts import SIX
from yuriiformer.report.paper_slots import Slots
from yuriiformer.report.paper_tables import MEDIUM, SMALL, TINY

FOUR, MOMENTUM = map(paper_methods, ("openwebtext_curves", "momentum_curves"))
SPLITTINGS, POLYAK = map(paper_methods, ("splitting_blocks", "polyak_block"))


@dataclass(frozen=True)
class Treatment:
    """What the paper does to curves: from which step on, and with which width (in steps) smoothed,
    at its own number of steps."""

    steps: int
    cut: int
    sigma: float = 0.0

    def apply(self, arm: Arm, kind: str) -> tuple[Any, Floats]:
        """Steps, and a row of values for each seed; from the beginning, if a run is not so far."""
        return smoothed_curves(
            drawn_runs(arm),
            kind,
            lambda run: self.sigma * run.steps / self.steps,
            lambda steps: self.cut * steps / self.steps,
        )


TRAIN = Treatment(10_000, 1000, 50)
VALIDATION = Treatment(10_000, 1000)
SIZES = Treatment(30_000, 3000, 200)
LATE = Treatment(30_000, 10_000)


@dataclass(frozen=True)
class Panel:
    title: str
    comparison: Comparison
    kind: str
    treatment: Treatment


@dataclass(frozen=True)
class PaperPicture:
    """A figure of the paper from runs (None: no run has it)."""

    name: str
    title: str
    caption: str
    figure: Figure | None
    remarks: Sequence[str] = ()


def paper_pictures(slots: Slots, *, chosen: bool = False, sigma: float = 0.0) -> list[PaperPicture]:
    """All five, in the paper's order. ``chosen``: draw every arm there is, not the paper's methods.
    ``sigma`` smooths Figure 5, in steps of its own runs; the paper states none."""
    return [
        PaperPicture(
            "figure-1-blocks",
            "Figure 1",
            "YuriiFormer with pre-LayerNorm: Euler discretization (left) and Lie–Trotter splitting "
            "(right), with the velocity LayerNorm LN_v after each velocity update.",
            draw_together([lay_out(paper[name]) for name in SPLITTINGS]),
        ),
        _tinystories(slots, chosen),
        _sizes(slots, chosen),
        PaperPicture(
            "figure-4-polyak-block",
            "Figure 4",
            "Polyak variant of YuriiFormer with Lie–Trotter splitting (no lookahead), with the "
            "velocity LayerNorm LN_v after each velocity update.",
            draw_together([lay_out(paper[name]) for name in POLYAK]),
        ),
        _momentum(slots, chosen, sigma),
    ]


def _tinystories(slots: Slots, chosen: bool) -> PaperPicture:
    name, title = "figure-2-tinystories", "Figure 2"
    comparison = slots.filled.get(TINY)
    if comparison is None:
        return PaperPicture(name, title, "", None, slots.remarks(TINY))
    panels = [
        Panel("Training loss", comparison, "train", TRAIN),
        Panel("Validation loss", comparison, "val", VALIDATION),
    ]
    steps = comparison.baseline.first.steps
    caption = (
        f"TinyStories ({slots.size(TINY)}): loss vs. training step (steps ≥ {_at(TRAIN, steps)}). "
        f"Training loss is Gaussian-smoothed (σ = {_sigma(TRAIN, steps)} steps)."
    )
    remarks = [*slots.remarks(TINY), *_minimum(comparison)]
    return PaperPicture(name, title, caption, _draw(panels, SIX, chosen), remarks)


def _minimum(comparison: Comparison) -> list[str]:
    """Where validation is lowest, beside what the paper says of its own."""
    papers = minimum_step(comparison.papers or "")
    found = [o.best_step.mean for o in comparison.outcomes if o.best_step.mean is not None]
    if papers is None or not found:
        return []
    low, high = (f"{round(step):,}" for step in (min(found), max(found)))
    here = low if low == high else f"{low} to {high}"
    return [f"Validation loss is lowest at step {here}; in the paper around step {papers:,}."]


def _sizes(slots: Slots, chosen: bool) -> PaperPicture:
    name, title = "figure-3-openwebtext", "Figure 3"
    if not slots.openwebtext:
        return PaperPicture(name, title, "", None, slots.remarks(SMALL, MEDIUM))
    panels = [Panel(slots.size(s), slots.filled[s], "val", SIZES) for s in slots.openwebtext]
    steps = panels[0].comparison.baseline.first.steps
    caption = (
        "OpenWebText: validation loss vs. training step, excluding the first "
        f"{_at(SIZES, steps)} steps and lightly Gaussian-smoothed (σ = {_sigma(SIZES, steps)} "
        "steps). Figure 5 compares Nesterov and Polyak."
    )
    remarks = slots.remarks(*slots.openwebtext)
    return PaperPicture(name, title, caption, _draw(panels, FOUR, chosen), remarks)


def _momentum(slots: Slots, chosen: bool, sigma: float) -> PaperPicture:
    name, title = "figure-5-nesterov-polyak", "Figure 5"
    if not slots.openwebtext:
        return PaperPicture(name, title, "", None, slots.remarks(SMALL, MEDIUM))
    panels = []
    for setting in slots.openwebtext:
        comparison = slots.filled[setting]
        own = sigma * LATE.steps / comparison.baseline.first.steps  # in steps of these runs
        panels.append(Panel(slots.size(setting), comparison, "val", replace(LATE, sigma=own)))
    steps = panels[0].comparison.baseline.first.steps
    smoothed = f", Gaussian-smoothed (σ = {sigma:g} steps)" if sigma else ""
    caption = (
        "OpenWebText: Nesterov vs. Polyak variants of YuriiFormer, validation loss (steps ≥ "
        f"{_at(LATE, steps)}){smoothed}."
    )
    remarks = slots.remarks(*slots.openwebtext)
    return PaperPicture(name, title, caption, _draw(panels, MOMENTUM, chosen), remarks)


def _at(treatment: Treatment, steps: int) -> str:
    return f"{round(treatment.cut * steps / treatment.steps, 2):g}"


def _sigma(treatment: Treatment, steps: int) -> str:
    return f"{round(treatment.sigma * steps / treatment.steps, 2):g}"


def _draw(panels: Sequence[Panel], rules: Sequence[str], chosen: bool) -> Figure:
    """Panels side by side with one legend, in the look of the paper's: a line for each method."""
    with look():
        figure = new_figure(WIDTH, 2.8)
        row = figure.subplots(1, len(panels), squeeze=False)[0]
        style = styles(*(panel.comparison for panel in panels))
        lines: dict[str, Line2D] = {}
        for axes, panel in zip(row, panels, strict=True):
            for arm in _arms(panel.comparison, rules, chosen):
                steps, values = panel.treatment.apply(arm, panel.kind)
                if not len(steps):
                    continue
                if len(values) > 1:
                    draw_band(axes, steps, values.min(axis=0), values.max(axis=0), style[arm.slug])
                line = draw_line(axes, steps, values.mean(axis=0), style[arm.slug])
                line.set_label(said(arm.label))
                lines.setdefault(arm.label, line)
            axes.set_title(said(panel.title))
            x_axis(axes, "training step")
            if not axes.has_data():
                axes.text(0.5, 0.5, "none recorded", ha="center", transform=axes.transAxes)
        row[0].set_ylabel("loss, nats per token")
        if lines:
            legend(figure, lines)
        return figure


def _arms(comparison: Comparison, rules: Sequence[str], chosen: bool) -> list[Arm]:
    """The paper's methods, in its order; or all."""
    if chosen:
        return comparison.arms
    found = {arm.rule.name: arm for arm in comparison.arms if is_papers_arm(arm)}
    return [found[name] for name in rules if name in found]
