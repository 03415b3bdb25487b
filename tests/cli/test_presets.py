"""``yurii presets``: what each preset says."""

from __future__ import annotations

import json

from tests.launcher import yurii
from yuriiformer.training.presets import PRESETS


def test_every_preset_with_its_values():
    said = json.loads(yurii(["presets", "--json"]).stdout)
    assert list(said) == list(PRESETS)
    for name, make in PRESETS.items():
        config = make("gd-euler")
        assert said[name]["steps"] == config.recipe.steps
        assert said[name]["warmup"] == config.recipe.warmup_steps
        assert said[name]["d_model"] == config.model.d_model
        assert said[name]["micro_batch"] == config.machine.micro_batch


def test_the_table_shows_what_differs():
    few, all_ = yurii(["presets"]).stdout, yurii(["presets", "--all"]).stdout
    assert "10,000" in few
    assert "muon_lr" in few
    assert "clip" not in few
    assert "clip" in all_
    assert len(all_) > len(few)
