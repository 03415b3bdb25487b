"""Which runs stand for which of the paper's three settings.

A comparison stands for a setting if it is configured as that setting, or else (with a remark on
what differs) if its data are that corpus. Runs on other data stand for none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from yuriiformer.comparison.outcomes import Comparison
from yuriiformer.comparison.paper import (
    match_remark,
    paper_presets,
    setting_differences,
    setting_match,
)
from yuriiformer.comparison.remarks import short_text
from yuriiformer.data.paper_corpora import CORPORA
from yuriiformer.display.columns import in_units
from yuriiformer.runs.run import Run
from yuriiformer.training.presets import preset

NAMED = 6  # of the fields that differ


@dataclass(frozen=True)
class Slots:
    """The comparison of each setting that has one, in the paper's order; ``left`` says which
    comparisons have no place, and why."""

    filled: dict[str, Comparison]
    left: list[str] = field(default_factory=list)

    @property
    def openwebtext(self) -> list[str]:
        return [setting for setting in self.filled if setting.startswith("openwebtext")]

    def runs(self, setting: str) -> list[Run]:
        return [run for arm in self.filled[setting].arms for run in arm.runs]

    def steps(self, *settings: str) -> str:
        """As the paper writes it: 10k."""
        counts = dict.fromkeys(self.filled[each].baseline.first.steps for each in settings)
        return " and ".join(in_units(count) for count in counts)

    def size(self, setting: str) -> str:
        """``small`` or ``medium``, or the sizes of another model."""
        own = self.filled[setting].baseline.first.config.model
        papers = preset(setting, own.rule).model
        shape = (own.n_layer, own.n_head, own.d_model)
        if shape == (papers.n_layer, papers.n_head, papers.d_model):
            return setting.partition("-")[2]
        return "{}L/{}H/{}d".format(*shape)

    def remarks(self, *settings: str) -> list[str]:
        """What must be said of the runs of settings, or that there are none."""
        said = []
        for setting in settings:
            if setting not in self.filled:
                said.append(f"No runs of {setting}.")
                continue
            comparison = self.filled[setting]
            papers = match_remark(comparison.preset, comparison.baseline.first)
            text = papers or self._differs(setting)
            said += [f"{setting}: {text}"] if text else []
        return said

    def _differs(self, setting: str) -> str:
        """In which fields runs are not the paper's setting; then its figures are not shown."""
        comparison = self.filled[setting]
        if comparison.preset is not None:
            return ""
        run = comparison.baseline.first
        found = setting_differences(run.config, setting)
        words = [
            f"{name} {short_text(own)} ({short_text(papers)})"
            for name, (papers, own) in list(found.items())[:NAMED]
        ]
        more = [f"{len(found) - NAMED} more"] if len(found) > NAMED else []
        data = setting_match(setting, run).said
        told = "; ".join(filter(None, [", ".join([*words, *more]), data]))
        return f"Not the paper's setting, whose values are in brackets: {told}."


def paper_slots(comparisons: Sequence[Comparison]) -> Slots:
    """The settings that comparisons stand for; of two for one setting the first counts."""
    found: dict[str, Comparison] = {}
    left = []
    for comparison in comparisons:
        setting = _setting(comparison)
        name = comparison.name or "These runs"
        if setting is None:
            source = comparison.baseline.first.data.get("source", "not recorded")
            left.append(f"{name} stand for no setting of the paper (source of the data: {source}).")
        elif setting in found:
            left.append(f"{name}: other runs stand for {setting} already.")
        else:
            found[setting] = comparison
    return Slots({name: found[name] for name in paper_presets() if name in found}, left)


def _setting(comparison: Comparison) -> str | None:
    data = comparison.baseline.first.data
    source = data.get("source")
    if comparison.preset is not None:
        own = comparison.preset.partition("-")[0]
        return comparison.preset if source in (None, own) else None
    if source not in CORPORA:
        return None
    if source == "tinystories":
        return "tinystories-small"
    deep = preset("openwebtext-medium", comparison.baseline.rule).model.n_layer
    medium = comparison.baseline.first.config.model.n_layer >= deep
    return "openwebtext-medium" if medium else "openwebtext-small"
