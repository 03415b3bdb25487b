"""Whether the paper's figures belong beside runs: its setting, its data, its rule, nothing else.

The setting is the whole configuration but the rule, the seed and the machine (`paper_preset`). The
data are judged by their source and the paper's own counts. A rule that was varied, an arm that
differs in a setting, a run that began from a trained model have no figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from yuriiformer.comparison.paper import is_papers, paper_preset
from yuriiformer.config import Machine, TrainConfig
from yuriiformer.data.paper_corpora import CORPORA, DataMatch, match_data

if TYPE_CHECKING:
    from yuriiformer.comparison.outcomes import Arm

MACHINE = {part.name for part in fields(Machine)}


def setting_match(setting: str, saved: Mapping[str, Any]) -> DataMatch:
    """How far the data of a run (``saved`` is its ``config.json``) are those of a setting."""
    if saved.get("init"):
        return DataMatch("other", "the runs began from a trained model")
    return match_data(CORPORA[setting.partition("-")[0]], saved["data"])


def own_setting(saved: Mapping[str, Any]) -> str | None:
    """The setting of the paper whose figures belong beside a run; None if there is none."""
    setting = paper_preset(TrainConfig.from_dict(saved["config"]))
    if setting is None or setting_match(setting, saved).grade == "other":
        return None
    return setting


def match_remark(setting: str | None, saved: Mapping[str, Any]) -> str:
    """What a report says of the paper's figures; empty where they belong without any remark."""
    if setting is None:
        return ""
    found = setting_match(setting, saved)
    if found.grade == "same":
        return ""
    if found.grade == "near":
        return f"The paper's figures are of nearly the same data only: {found.said}."
    return f"The paper's figures are not shown: {found.said}."


def is_papers_arm(arm: Arm) -> bool:
    """Whether an arm is one of the paper's: its rule unvaried, no other setting than the baseline's
    but the machine's, and every run begun from random weights."""
    begun = not any(run.saved.get("init") for run in arm.runs)
    return is_papers(arm.rule) and set(arm.differs) <= MACHINE and begun
