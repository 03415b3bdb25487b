"""Studies and suites of them, with runs that were never trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.comparison.synthetic import falling, write_run
from yuriiformer.comparison.definition import Request
from yuriiformer.comparison.folder import SuiteFolder
from yuriiformer.comparison.study import Study, read_study
from yuriiformer.config import TrainConfig

STUDY = """
title = "Is it the momentum or the table?"
question = "Which of the two?"
preset = "tales-tiny"
seeds = [0, 1, 2]
baseline = "gd"
settings = { steps = 20 }
[[arms]]
label = "gd"
rule = "gd-lie-trotter"
[[arms]]
label = "momentum"
rule = "nesterov-lie-trotter"
settings = { muon_lr = 0.01 }
why = "Because."
[[arms]]
label = "own"
equations = '''
V = norm(beta * V + gamma * attn(X))
X = X + V
X = X + mlp(X)
'''
coefficients = { beta = 0.5 }
[[hypotheses]]
claim = "Momentum ends lower than gradient descent"
arm = "momentum"
against = "gd"
direction = "lower"
difference = 0.005
family = "main"
"""

EQUAL = """
[[hypotheses]]
claim = "The own rule changes nothing"
arm = "own"
against = "gd"
direction = "equal"
difference = 0.01
family = "other"
"""
DATA = {"train_tokens": 1000, "val_tokens": 100, "folder": "/data/here"}


def study_file(folder: Path, text: str = STUDY) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def request(study: Study) -> Request:
    baseline = next((arm.slug for arm in study.arms if arm.label == study.baseline), None)
    return Request(study.preset, study.arms, study.seeds, DATA, study.settings, 1, baseline, study)


def begin(folder: Path, text: str = STUDY) -> SuiteFolder:
    """The suite of a study, its runs asked for and not begun."""
    suite = SuiteFolder(folder / "suite")
    suite.extend(request(read_study(study_file(folder, text))), "yurii suite")
    return suite


def run_all(suite: SuiteFolder, finals: Mapping[str, Mapping[int, float]], **run: Any) -> None:
    """Runs that end about there, by arm and seed; those not named stay unbegun."""
    for spec in suite.runs():
        if spec.seed not in finals.get(spec.label, {}):
            continue
        config = TrainConfig.from_dict(json.loads(spec.config_file.read_text()))
        steps = config.recipe.steps
        curve = falling(finals[spec.label][spec.seed], steps)
        write_run(spec.folder.path, config, **{"val": curve, "noise": 0.01, **run})
        if run.get("until") is None:
            final = spec.folder.checkpoints / "final"
            final.mkdir(parents=True, exist_ok=True)
            (final / "manifest.json").write_text(json.dumps({"about": {"step": steps}}))
