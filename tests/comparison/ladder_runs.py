"""Ladders without training: runs of several sizes whose losses follow a law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.comparison.synthetic import DATA, plan, write_run
from yuriiformer.comparison.ladders import Family, Rung
from yuriiformer.comparison.outcomes import Arm
from yuriiformer.methods.references import get_rule
from yuriiformer.runs.run import read_run
from yuriiformer.training.presets import preset

FLOOR = 1.6
LAWS = {  # scale (FLOPs) and exponent
    "gd-lie-trotter": (3e13, 0.15),
    "nesterov-lie-trotter": (2e13, 0.17),
}
WIDTHS = (48, 64, 96, 128, 160)


def law(compute, scale: float, exponent: float, floor: float = FLOOR):
    return floor + (np.asarray(compute) / scale) ** -exponent


def write_ladder(
    folder: Path,
    laws: Mapping[str, tuple[float, float]] = LAWS,
    *,
    widths: Sequence[int] = WIDTHS,
    tokens_per_parameter: Sequence[float] = (10.0,),
    seeds: int = 2,
    noise: float = 0.004,
) -> list[Arm]:
    """Arms of every rule at every width; the noise of a seed is partly shared by the rules."""
    random = np.random.default_rng(0)
    arms = []
    for width in widths:
        for ratio in tokens_per_parameter:
            shared = noise * random.standard_normal(seeds)
            for rule, numbers in laws.items():
                base = preset("cpu-tinystories", get_rule(rule))
                base = base.with_(d_model=width, n_head=4, context=64, vocab_size=2048)
                base = base.with_(steps=10, eval_every=10)
                total = plan(base)["all_parameters"]
                config = base.with_(sequences=round(ratio * total / 640))
                flops = plan(config)["flops"]
                label = f"{rule}, d {width}"
                label += f", {ratio:g} tokens" if len(tokens_per_parameter) > 1 else ""
                runs = []
                for seed in range(seeds):
                    own = noise * random.standard_normal() / 2
                    end = float(law(flops, *numbers)) + shared[seed] + own
                    place = folder / label / f"seed-{seed}"
                    curve = lambda step, end=end: end + 3 * np.exp(-step)  # noqa: E731
                    write_run(place, config.with_(seed=seed), val=curve, facts=DATA["tinystories"])
                    runs.append(read_run(place))
                arms.append(Arm(label, label.replace(", ", "-").replace(" ", ""), runs))
    return arms


def family(
    random: np.random.Generator,
    label: str,
    numbers: tuple[float, float],
    compute: Sequence[float],
    *,
    seeds: int = 2,
    noise: float = 0.003,
    shared: np.ndarray | None = None,
) -> Family:
    """A ladder as data alone, ten tokens per parameter."""
    rungs = []
    for place, flops in enumerate(compute):
        own = noise * random.standard_normal(seeds)
        own = own if shared is None else own + shared[place]
        losses = {seed: float(law(flops, *numbers)) + own[seed] for seed in range(seeds)}
        size = (flops / 60) ** 0.5
        counts = {"all": size, "without_tables": size, "blocks": size}
        rungs.append(Rung(f"{label} {place}", counts, 10 * size, flops, losses))
    return Family(label, label == "base", rungs)
