"""Payloads of the report page, made up but of the right form."""

from __future__ import annotations

import math
import random
from typing import Any

RULES = [
    ("gradient-descent-lie-trotter", "Gradient descent, Lie–Trotter (pre-LN transformer)"),
    ("nesterov-lie-trotter", "Nesterov, Lie–Trotter"),
    ("heavy-ball-lie-trotter", "Heavy ball, Lie–Trotter"),
    ("nesterov-euler", "Nesterov, Euler (parallel oracles)"),
    ("triple-momentum", "Triple momentum"),
    ("optimistic", "Optimistic gradient"),
    ("polyak-strang", "Polyak, Strang"),
    ("adaptive-restart", "Adaptive restart"),
]
SIGMAS = ("0", "10", "50", "200")
PROMPTS = ["Once upon a time there was a small ", "The old king said: "]
DIAGRAM = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 120" width="300" height="120">'
    '<rect x="100" y="40" width="100" height="40" rx="6" fill="#eef" stroke="#336"/>'
    '<path d="M10 60H100M200 60H290" stroke="#333" fill="none"/>'
    '<text x="150" y="65" text-anchor="middle" font-size="14">∇f</text></svg>'
)


def small() -> dict[str, Any]:
    """3 arms × 2 seeds, with whatever may be missing missing somewhere."""
    payload = {
        **_head(),
        "remarks": ["heavy-ball-lie-trotter, seed 2: failed at step 620 (loss is not finite)"],
        "groups": [make_group("", arms=3, seeds=2, steps=1000, points=120)],
    }
    last = payload["groups"][0]["arms"][2]
    last |= {"coefficients": None, "samples": [], "diagram": None}
    last["runs"][1] |= {"status": "failed", "status_text": "loss is not finite", "step": 620}
    return payload


def big() -> dict[str, Any]:
    """17 arms × 5 seeds, about 1,500 points a training curve."""
    return {**_head(), "groups": [make_group("", arms=17, seeds=5, steps=30000, points=1500)]}


def two_groups() -> dict[str, Any]:
    """A small and a medium model; the second has not been validated yet."""
    groups = [
        make_group("small", arms=3, seeds=2, steps=1000, points=100),
        make_group("medium", arms=2, seeds=1, steps=4000, points=100),
    ]
    for arm in groups[1]["arms"]:
        for curves in [arm["curves"], *(run["curves"] for run in arm["runs"])]:
            curves["val"] = {"step": [], "loss": []}
        arm["difference"] = None
    groups[1]["ranking"] = []
    return {**_head(), "groups": groups}


def bare() -> dict[str, Any]:
    """Nothing has begun: every list empty, everything that may be null null."""
    group = make_group("", arms=2, seeds=1, steps=100, points=5)
    group["ranking"], group["table"]["rows"] = [], []
    nothing = dict.fromkeys(
        ("curves", "difference", "coefficients", "diagram", "tokens_a_step", "flops_a_token")
    )
    for arm in group["arms"]:
        arm |= {**nothing, "runs": [], "equations": [], "note": "", "samples": [], "facts": []}
    return {**_head(), "headline": [], "commands": [], "data": [], "groups": [group]}


def _head() -> dict[str, Any]:
    return {
        "title": "tales-tiny",
        "subtitle": "tales-tiny · several rules × several seeds · tales, bpe:2048",
        "made": "2026-11-16 03:20 UTC, yuriiformer 0.1.0",
        "headline": [
            "Nesterov, Lie–Trotter ends 0.0412 ± 0.0031 below the baseline (2 paired seeds).",
            "It reaches the baseline's final loss after 71% of the tokens.",
        ],
        "remarks": [],
        "commands": [
            {"what": "Prepare the data", "command": "yurii prepare tales --tokenizer bpe:2048"},
            {
                "what": "Train every arm",
                "command": "yurii compare tales-tiny --rules nesterov-lie-trotter "
                "heavy-ball-lie-trotter --seeds 1 2 --out runs/tales-tiny",
            },
        ],
        "data": [["source", "tales"], ["tokeniser", "bpe:2048"], ["tokens", "12,345,678"]],
    }


def make_group(name: str, *, arms: int, seeds: int, steps: int, points: int) -> dict[str, Any]:
    made = [_arm(index, seeds, steps, points) for index in range(arms)]
    ends = {arm["id"]: [r["curves"]["val"]["loss"][-1] for r in arm["runs"]] for arm in made}
    means = {key: sum(values) / len(values) for key, values in ends.items()}
    best = min(means.values())
    ranking = [
        {
            "arm": key,
            "mean": means[key],
            "low": means[key] - 0.02 if seeds > 1 else None,
            "high": means[key] + 0.02 if seeds > 1 else None,
            "n": seeds,
            "points": ends[key],
        }
        for key in sorted(means, key=means.__getitem__)
    ]
    return {
        "name": name,
        "metric": "Final",
        "baseline": made[0]["id"],
        "table": _table(made, means, best),
        "tables_extra": [_extra(made)],
        "ranking": ranking,
        "arms": made,
    }


def _table(arms: list[dict[str, Any]], means: dict[str, float], best: float) -> dict[str, Any]:
    base = means[arms[0]["id"]]
    columns = [
        _column("rule", "Rule", "The method whose step a block is", False, None),
        _column("loss", "Validation loss", "At the last step, mean over seeds", True, True),
        _column("delta", "To baseline", "Paired difference of the losses", True, True),
        _column("speed", "Tokens/s", "On this machine", True, False),
        _column("parameters", "Parameters", "", True, None),
        _column("reached", "Baseline's loss at", "Step that reaches it", True, True),
    ]
    rows = []
    for index, arm in enumerate(arms):
        mean = means[arm["id"]]
        delta = None if index == 0 else mean - base
        reached = None if index in (0, 2) else 700 + 10 * index
        cells = {
            "rule": {"text": arm["label"], "value": arm["label"], "help": arm["rule"]},
            "loss": {"text": f"{mean:.4f} ± 0.0200", "value": mean, "bold": mean == best},
            "delta": {"text": "–" if delta is None else f"{delta:+.4f}", "value": delta},
            "speed": {"text": f"{9000 - 137 * index:,}", "value": 9000 - 137 * index},
            "parameters": {"text": f"{1.2 + index / 10:.1f} M", "value": 1.2 + index / 10},
            "reached": {"text": "–" if reached is None else str(reached), "value": reached},
        }
        rows.append({"arm": arm["id"], "cells": cells})
    return {"columns": columns, "rows": rows}


def _extra(arms: list[dict[str, Any]]) -> dict[str, Any]:
    columns = [
        _column("pair", "Pair", "", False, None),
        _column("p", "p", "Paired t-test, Holm's correction", True, True),
    ]
    rows = [
        {
            "arm": None,
            "cells": {
                "pair": {"text": f"{arm['label']} − baseline", "value": arm["label"]},
                "p": {"text": f"0.0{index}", "value": index / 100},
            },
        }
        for index, arm in enumerate(arms[1:], 1)
    ]
    return {"title": "Tests", "note": "Two-sided.", "columns": columns, "rows": rows}


def _column(key: str, title: str, help: str, numeric: bool, lower: bool | None) -> dict[str, Any]:
    return {"key": key, "title": title, "help": help, "numeric": numeric, "lower_is_better": lower}


def _arm(index: int, seeds: int, steps: int, points: int) -> dict[str, Any]:
    rule, label = RULES[index % len(RULES)]
    again = index // len(RULES)
    rule, label = (f"{rule}-{again + 1}", f"{label} {again + 1}") if again else (rule, label)
    every = [_curves(index, seed, steps, points) for seed in range(1, seeds + 1)]
    step = every[0]["val"]["step"]
    gap = [-0.02 * index * (1 - math.exp(-s / steps * 4)) for s in step]
    return {
        "id": f"arm-{index}",
        "label": label,
        "rule": rule,
        "baseline": index == 0,
        "style": index,
        "tokens_a_step": 2048,
        "flops_a_token": 7.5e6 * (1 + index / 20),
        "curves": _curves(index, 0, steps, points),
        "runs": [
            {
                "seed": seed,
                "status": "finished",
                "status_text": "finished in 12 min",
                "step": steps,
                "steps": steps,
                "curves": curves,
            }
            for seed, curves in enumerate(every, 1)
        ],
        "difference": None
        if index == 0
        else {
            "step": step,
            "mean": gap,
            "low": [None if seeds < 2 or i < 2 else g - 0.015 for i, g in enumerate(gap)],
            "high": [None if seeds < 2 or i < 2 else g + 0.015 for i, g in enumerate(gap)],
        },
        "coefficients": _coefficients(index, step),
        "diagram": DIAGRAM,
        "equations": ["V⁺ = β V + γ Attn(X + μ V)", "X⁺ = X + V⁺"],
        "note": f"Made-up rule {index}.",
        "samples": [
            {"prompt": p, "text": f"fox who lived near the river. Arm {index} went on. " * 3}
            for p in PROMPTS
        ],
        "samples_note": "Temperature 0.8, from the first seed's last checkpoint.",
        "facts": [["parameters", f"{1.2 + index / 10:.1f} M"], ["FLOPs per token", "7.5 M"]],
        "config": {"rule": rule, "steps": steps, "model": {"n_layer": 6, "d_model": 128}},
        "command": f"yurii train tales-tiny --rule {rule} --steps {steps}",
    }


def _coefficients(index: int, step: list[int]) -> dict[str, Any]:
    steps = step[::5]
    layers, most = range(6), steps[-1] or 1
    return {
        "steps": steps,
        "values": {
            name: [[start + 0.1 * layer * s / most for layer in layers] for s in steps]
            for name, start in (("mu", 0.9), ("beta", 0.5 + index / 50), ("gamma", 1.0))
        },
    }


def _curves(index: int, seed: int, steps: int, points: int) -> dict[str, Any]:
    random_ = random.Random(f"{index} {seed}")
    shift = 0.02 * index - 0.01 * random_.random()

    def loss(step: float, noise: float) -> float:
        smooth = 2.4 - shift + 6 * math.exp(-step / steps * 9) + 0.8 * math.exp(-step / steps * 2)
        return round(smooth + random_.gauss(0, noise), 4)

    train = [round(steps * i / (points - 1)) for i in range(points)]
    val = [round(steps * i / 30) for i in range(31)]
    pace = 0.7 + index / 40
    return {
        "val": {"step": val, "loss": [loss(s, 0.003) for s in val]},
        "train": {
            sigma: {"step": train, "loss": [loss(s, 0.1 / (1 + int(sigma))) for s in train]}
            for sigma in SIGMAS
        },
        "time": {"step": [0, steps // 2, steps], "seconds": [0, pace * steps / 2, pace * steps]},
    }
