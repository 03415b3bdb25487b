"""A run's configuration: any field by its own name."""

from __future__ import annotations

import pytest

import yuriiformer as yf
from yuriiformer.errors import ConfigError


def test_fields_are_set_wherever_they_belong():
    base = yf.preset("tales-tiny", "gd-euler")
    changed = base.with_(steps=10, d_model=32, eval_every=5, threads=1, rule="polyak-euler")
    assert (changed.recipe.steps, changed.model.d_model) == (10, 32)
    assert (changed.validation.eval_every, changed.machine.threads) == (5, 1)
    assert changed.model.rule == yf.rules["polyak-euler"]
    assert changed.recipe.muon_lr == base.recipe.muon_lr
    assert base == yf.preset("tales-tiny", "gd-euler")
    assert base.with_() == base


def test_unknown_fields_and_bad_values_are_named():
    base = yf.preset("tales-tiny", "gd-euler")
    with pytest.raises(ConfigError, match="unknown field 'stepss'.*steps"):
        base.with_(stepss=10)
    with pytest.raises(ConfigError, match="steps"):
        base.with_(steps=-1)
