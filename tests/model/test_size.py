"""Parameter counts, on the meta device: nothing is allocated."""

from __future__ import annotations

import pytest
import torch

import yuriiformer as yf
from yuriiformer.methods.drawing.listing import extra_parameters

SIZES = {
    "small": ({"n_layer": 12, "n_head": 12, "d_model": 768}, 123.6, 38.6),
    "medium": ({"n_layer": 24, "n_head": 16, "d_model": 1024}, 353.6, 51.5),
}


def on_meta(rule: str, **options) -> yf.YuriiFormer:
    with torch.device("meta"):
        return yf.YuriiFormer(yf.ModelConfig(rule, **options))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rule", yf.rules)
def test_the_papers_counts(size, rule):
    options, millions, table = SIZES[size]
    model = on_meta(rule, **options)
    assert all(p.is_meta for p in model.parameters())
    assert round(model.num_parameters() / 1e6, 1) == millions
    own = [s for s, start in model.streams.items() if s != "X" and start == "tables"]
    extra = model.num_parameters(velocity_table=True) - model.num_parameters()
    assert round(extra / 1e6, 1) == round(table * len(own), 1) or len(own) == 2
    assert extra == len(own) * 50304 * options["d_model"]


def test_the_second_table_of_gd_is_exactly_the_velocitys():
    momentum, control = on_meta("nesterov-lie-trotter"), on_meta("gd-table")
    counts = [
        m.num_parameters(velocity_table=True) - m.num_parameters() for m in (momentum, control)
    ]
    assert counts == [38_633_472, 38_633_472]


@pytest.mark.parametrize("rule", [*yf.rules, "nesterov-lie-trotter+channel=mu+head=beta+V=zero"])
@pytest.mark.parametrize("velocity_norm", ["shared", "separate"])
def test_what_a_rule_adds_is_known_without_building_it(rule, velocity_norm):
    options = {"n_layer": 5, "n_head": 4, "d_model": 32, "vocab_size": 101}
    base = on_meta("gd-lie-trotter", **options).num_parameters()
    model = on_meta(rule, velocity_norm=velocity_norm, **options)
    extra = extra_parameters(
        yf.get_rule(rule), separate_norms=velocity_norm == "separate", **options
    )
    assert model.num_parameters(velocity_table=True) - base == extra.total
    assert model.num_parameters() - base == extra.norms + extra.coefficients
