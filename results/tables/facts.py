"""The numbers in the words of docs/results.md, as phrases computed from the archives.

Every phrase stands in the page, and the page has no number outside its tables that is in none of
them (`differences`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from results.tables import rates
from results.tables.archives import archive, losses
from yuriiformer.methods.catalog import paper
from yuriiformer.runs.run import Run

GD, NESTEROV = "gd-lie-trotter", "nesterov-lie-trotter"
OTHERS = "others"  # what other projects measured: no archive has it
CHANNEL, NO_LOOKAHEAD = "one-drift, per channel", "one-drift, no lookahead"


def gains(study: str, label: str, over: str = GD) -> list[float]:
    """By how much an arm ends below another, seed by seed."""
    found = losses(study)
    return [found[over][seed] - found[label][seed] for seed in sorted(found[over])]


def each(values: Sequence[float], form: str) -> str:
    return " and ".join(format(value, form).replace("%", " %") for value in values)


def seed_noise() -> list[float]:
    """How much each arm's difference to gradient descent changes from one seed to the other."""
    return [abs(np.diff(gains("screening", arm))[0]) for arm in losses("screening") if arm != GD]


def runs(study: str) -> dict[str, Run]:
    """One of each arm."""
    return {entry.label: entry.run for entry in archive(study).entries if entry.run is not None}


def parameters(study: str, label: str) -> int:
    return int(runs(study)[label].plan("all_parameters") or 0)


@cache
def facts() -> list[str]:
    return [*_setting(), *_leads(), *_limits(), *_rates(), *_further()]


def _setting() -> Iterator[str]:
    run, data = runs("screening")[GD], archive("screening").definition["data"]
    train, held = data["train_tokens"], data["val_tokens"]
    model, recipe = run.config.model, run.config.recipe
    yield f"{train / 1e6:.2f} million tokens for training and {held / 1e6:.2f} million held out"
    yield f"a BPE of {int(data['tokenizer'].partition(':')[2]):,} tokens"
    yield f"{model.n_layer} layers, d = {model.d_model}, {model.n_head} heads"
    yield f"context {model.context}, {recipe.steps} steps of {recipe.sequences} × {model.context}"
    yield f"{len(losses('screening'))} arms with two seeds"


def _leads() -> Iterator[str]:
    noise = np.array(seed_noise())
    yield f"changed by {np.median(noise):.2f} from one seed to the other"
    yield f"by {noise.max():.2f} at most"
    # The standard error of a mean over two seeds, pooled over the arms, twice.
    yield f"below about {2 * np.sqrt(np.mean(noise**2) / 2 / 2):.2f} say nothing"
    yield f"{rates.distance(rates.at_preset):.2f} above Nesterov"
    yield f"the distance was {rates.distance(rates.best):.2f}"
    whole = gains("screening", NESTEROV)
    for words, label in {
        "without momentum, brought {} of it": "gd-table",
        "as width, {}": f"{GD}, wider",
        "injected into every block, {}": "gd, second embedding injected",
    }.items():
        own = gains("screening", label)
        yield words.format(each([a / b for a, b in zip(own, whole, strict=True)], ".0%"))
    yield f"{each(gains('screening-adamw', NESTEROV), '.3f')} below gradient descent"
    yield f"with Muon {each(whole, '.3f')}"
    best = min(np.mean(list(losses("screening")[name].values())) for name in paper)
    below = [best - np.mean(list(losses("screening")[n].values())) for n in (CHANNEL, NO_LOOKAHEAD)]
    yield f"a coefficient per channel, by {below[0]:.3f}; no lookahead, by {below[1]:.3f}"
    more = parameters("screening", CHANNEL) / parameters("screening", NESTEROV) - 1
    yield f"a coefficient per channel adds {more:.1%}".replace("%", " %")


def _limits() -> Iterator[str]:
    low, high = (round(parameters("screening", name) / 1e6, 1) for name in (GD, NESTEROV))
    yield f"{low} to {high} million parameters"
    run, data = runs("screening")[GD], archive("screening").definition["data"]
    share = run.steps * run.config.tokens_per_step / data["train_tokens"]
    yield f"{share:.0%} of the text".replace("%", " %")


def _rates() -> Iterator[str]:
    preset = rates.PRESET
    yield f"({preset['muon_lr']:g}, {preset['adamw_lr']:g}, {rates.WARMUP} steps)"
    unfinished = sum(each.run is None for each in archive("rates").entries)
    yield f"{unfinished} more were not run"
    yield f"{rates.best(GD).settings['adamw_lr'] / preset['adamw_lr']:.0f} times the preset's"
    steps = runs("rates")[f"{GD}, muon_lr=0.02"].steps
    short, usual = (100 * warmup // steps for warmup in (rates.SHORT, rates.WARMUP))
    yield f"a warmup of {short} % ended lower than one of {usual} %"
    lower = f"{NESTEROV}, muon_lr=0.04, lower starts"
    used, starts = (
        runs("rates")[label].rule.coefficients for label in (f"{NESTEROV}, muon_lr=0.04", lower)
    )
    names = ("mu", "beta", "gamma")
    told = [", ".join(f"{spec[name].initial:g}" for name in names) for spec in (starts, used)]
    yield f"({told[0]} instead of {told[1]})"
    apart = abs(losses("rates")[lower][0] - losses("rates")[f"{NESTEROV}, muon_lr=0.04"][0])
    yield f"within {np.ceil(100 * apart) / 100:g}"


def _further() -> Iterator[str]:
    channel = parameters("ideas", f"{CHANNEL}, no lookahead, no table")
    yield f"plus {channel / parameters('screening', GD) - 1:.1%}".replace("%", " %")
    yield f"over its {len(paper)} rules"
    yield "the middle 95 %"  # of readings_table


def prose(page: str, tables: Sequence[str]) -> str:
    """The page's words on one line, without tables, code and the targets of links."""
    for name in tables:
        page = re.sub(rf"<!-- {name} -->.*?<!-- end of {name} -->", "", page, flags=re.DOTALL)
    page = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", page, flags=re.DOTALL)
    return " ".join(page.split())


def differences(page: str, tables: Sequence[str]) -> list[str]:
    """Phrases that the page lacks, and numbers in it that no phrase has."""
    words, found = prose(page, [*tables, OTHERS]), []
    for phrase in facts():
        if phrase not in words:
            found.append(f"it does not say {phrase!r}")
        words = words.replace(phrase, "")
    return found + [
        f"{each!r} is not the archives'" for each in re.findall(r"(?<![\w.])\d[\d.,]*", words)
    ]
