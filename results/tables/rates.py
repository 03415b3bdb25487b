"""The search for learning rates: every trial, and the best of each family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from results.tables.archives import archive, losses, markdown

RATES = ("muon_lr", "matrix_lr", "adamw_lr")
PRESET = {"muon_lr": 0.02, "adamw_lr": 0.006}
WARMUP, SHORT = 50, 10  # steps: the preset's, and the other that was tried


@dataclass(frozen=True)
class Trial:
    """One arm of the rates: its family, and what was tried."""

    family: str
    settings: Mapping[str, Any]
    loss: float


def trials() -> list[Trial]:
    """Every finished arm of the rates, the preset's rates filled in."""
    known = {arm["label"]: arm for arm in archive("rates").definition["arms"]}
    found = []
    for label, by_seed in losses("rates").items():
        for loss in by_seed.values():
            settings = {**PRESET, **known[label]["settings"]}
            found.append(Trial(family_of(label), settings, loss))
    return found


def family_of(label: str) -> str:
    """The label without what was varied within the family."""
    varied = (*RATES, "short warmup")
    return ", ".join(part for part in label.split(", ") if not part.startswith(varied))


def families() -> list[str]:
    return list(dict.fromkeys(each.family for each in trials()))


def best(family: str) -> Trial:
    return min((each for each in trials() if each.family == family), key=lambda each: each.loss)


def at_preset(family: str) -> Trial:
    [found] = [
        each
        for each in trials()
        if each.family == family
        and "warmup" not in each.settings
        and PRESET.items() <= each.settings.items()
    ]
    return found


def distance(chosen: Callable[[str], Trial]) -> float:
    """By how much gradient descent ends above Nesterov."""
    return chosen("gd-lie-trotter").loss - chosen("nesterov-lie-trotter").loss


def edges(family: str) -> list[str]:
    """Rates whose best value is the lowest or highest that was tried, the other rates being as they
    are in the best trial."""
    chosen = best(family)
    found = []
    for rate in RATES:
        if rate not in chosen.settings or (rate == "muon_lr" and "matrix_lr" in chosen.settings):
            continue
        alike = [
            each
            for each in trials()
            if each.family == family and _others(each, rate) == _others(chosen, rate)
        ]
        values = sorted(each.settings[rate] for each in alike)
        if chosen.settings[rate] in (values[0], values[-1]):
            found.append(rate)
    return found


def _others(trial: Trial, rate: str) -> dict[str, Any]:
    return {name: value for name, value in trial.settings.items() if name not in (rate, "warmup")}


HEADS = ("family", "matrices", "AdamW", "warmup", "exact loss")


def rates_table() -> str:
    """A row for each trial, the best of its family in bold."""
    rows = []
    for family in families():
        chosen = best(family)
        own = [trial for trial in trials() if trial.family == family]
        rows += [_row(each, bold=each == chosen) for each in own]
    return markdown(HEADS, rows)


def best_rates_table() -> str:
    """A row for each family: its best trial, and how many there were."""
    counts = Counter(trial.family for trial in trials())
    rows = [[*_row(best(family)), str(counts[family])] for family in families()]
    return markdown([*HEADS, "trials"], rows)


def _row(trial: Trial, *, bold: bool = False) -> list[str]:
    matrices = trial.settings.get("matrix_lr", trial.settings["muon_lr"])
    warmup = trial.settings.get("warmup")
    loss = f"{trial.loss:.4f}"
    return [
        trial.family,
        f"{matrices:g}",
        f"{trial.settings['adamw_lr']:g}",
        str(WARMUP if warmup is None else warmup),
        f"**{loss}**" if bold else loss,
    ]
